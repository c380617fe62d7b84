//! What is read of request bodies.

pub mod peek;
