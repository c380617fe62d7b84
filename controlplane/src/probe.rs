//! Active health probing: every backend of every route, in parallel, from the start.

mod http;
pub mod schedule;
