//! Admission: which backend a request gets, that it waits, or why it is refused (gateway.md §3, routing.md §3, §5, §6). A plain
//! view in, a [`Decision`] out; the owner of the pool applies it under the same lock.

pub mod choose;
pub mod claim;
pub mod decide;
pub mod rank;
mod tier;
pub mod view;

pub use claim::Claims;
pub use decide::{Binding, Grant, Pick, belongs, competing, decide, refusal, reserve};
pub use view::{Ask, BackendView, PoolView, Preference, Slot, has_window};

pub use crate::refusal::Refusal;

/// The outcome for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// A lease on a backend.
    Grant(Grant),
    /// One slot of the pool, on no backend yet: [`reserve`]'s grant.
    Reserve,
    /// Every candidate is full and the queue has a place.
    Wait,
    /// Refused; nothing changes.
    Refuse(Refusal),
}

#[cfg(test)]
mod tests;
