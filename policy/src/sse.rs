//! Answers on their way to the client: server-sent events cut into lines and rewritten (payloads.md §5, rulings §7).

mod line;
mod object;
pub mod rewrite;
