//! When a backend is out of admission and when it is back.

pub mod round;
