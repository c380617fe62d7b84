//! The HTTP side: health and metrics.

pub mod health;
