//! What the suites share: servers to test against.

pub mod postgres;
