//! The worked examples of limits.md §14, by their numbers.

mod limits;
mod signals;
mod turns;
