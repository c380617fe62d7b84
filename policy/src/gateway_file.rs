//! The session gateway's two files (gateway.md §6, §9) as formats: bytes in, what they say or every complaint out. Read by
//! the control plane, which follows them, and by `routerctl import gateway`, which takes them over once.
//!
//! A complaint is `field: what was expected, got the kind seen; allowed: …`. None repeats a string that stands in a file:
//! it may be a secret in the wrong place.

pub mod control_file;
pub mod key_store;

use serde_json::Value as Json;

/// Complaints that are worth reading at once.
const MAX_COMPLAINTS: usize = 20;

fn read_json(bytes: &[u8]) -> Result<Json, Vec<String>> {
    serde_json::from_slice(bytes)
        .map_err(|error| vec![format!("not JSON: line {}, column {}", error.line(), error.column())])
}

/// The value if there are no complaints, else the first of them and how many more there are.
fn unless_complaints<T>(value: T, mut complaints: Vec<String>) -> Result<T, Vec<String>> {
    if complaints.is_empty() {
        return Ok(value);
    }
    let more = complaints.len().saturating_sub(MAX_COMPLAINTS);
    complaints.truncate(MAX_COMPLAINTS);
    if more > 0 {
        complaints.push(format!("and {more} more"));
    }
    Err(complaints)
}
