//! The control plane: the owner of routes, backends, bindings, leases, bans, drains and keys. Replicas ask it over one long
//! stream each; operators over the Admin service. It never sees a request or response body.
//!
//! A request's way: [`grpc::coordinator`] reads the operation, [`pool`] decides and applies it under one lock
//! (`router_policy::admit` is the decision), [`store::group_commit`] makes a new binding durable, and the answer leaves
//! through the stream's outbound side.

pub mod clock;
pub mod config;
pub mod error;
pub mod files;
pub mod fleet;
pub mod grpc;
pub mod marks;
pub mod metrics;
pub mod page;
pub mod pool;
pub mod probe;
pub mod replicas;
pub mod run;
pub mod snapshot;
pub mod store;
pub mod upkeep;
pub mod web;

pub use config::{Config, ControlPlaneArgs};
pub use error::Error;
pub use run::{Listeners, run};
