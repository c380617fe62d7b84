//! What is read of bodies, and what the router itself answers.

pub mod models;
pub mod peek;
pub mod transform;
pub mod usage;
