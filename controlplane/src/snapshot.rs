//! What every replica knows without asking: versioned items, and the deltas between versions.

pub mod delta;
pub mod version;

pub use version::SnapshotHub;
