//! The gRPC edge: streams of replicas, and operators' calls.

pub mod admin;
pub mod auth;
pub mod coordinator;
mod outbound;
mod status;
pub mod watch;
