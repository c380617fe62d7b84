//! The owner of shared state: leases, bindings, health, configuration.

pub mod store;
