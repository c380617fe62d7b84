//! What is read of bodies and changed in them, and what the router itself answers.

pub(crate) mod edit;
pub mod models;
pub mod peek;
pub mod transform;
pub mod usage;
