//! One client request: [`handle`] lists the steps, the other modules are one step each. An error becomes HTTP in
//! [`error_response`] and nowhere else.

mod auth;
mod body;
pub(crate) mod error;
mod error_response;
pub(crate) mod handle;
mod health;
mod host;
pub(crate) mod id;
pub(crate) mod models;
pub(crate) mod page;
pub(crate) mod payload;
mod route;
mod routed;
mod session;
pub(crate) mod tally;
mod upload;
