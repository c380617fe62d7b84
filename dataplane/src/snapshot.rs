//! What every replica knows without asking: routes, keys and the fingerprint key, kept fresh by the Watch stream
//! ([`follow`]) and read without a lock ([`store`]).

pub(crate) mod follow;
pub(crate) mod route;
pub(crate) mod store;

pub(crate) use route::{BackendEntry, RouteEntry};
pub(crate) use store::{Snapshot, SnapshotStore};
