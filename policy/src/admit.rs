//! Admission: which backend a request gets, that it waits, or why it is refused (gateway.md §3). A plain view in, a
//! [`Decision`] out; the owner of the pool applies it under the same lock.

pub mod choose;
pub mod claim;
pub mod decide;
pub mod rank;
pub mod view;

pub use claim::Claims;
pub use decide::{Binding, Decision, decide, reserve};
pub use view::{Ask, BackendView, PoolView, Slot, has_window};

#[cfg(test)]
mod tests;
