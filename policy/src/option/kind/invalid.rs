//! What is wrong with a value.

use std::fmt;

/// A value that its option does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// The option's kind, in words.
    pub expected: String,
    /// The kind seen (and the value, when it is short and plain).
    pub got: String,
    /// The bounds; empty where `expected` says it all.
    pub allowed: String,
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, got, allowed } = self;
        write!(f, "{expected} expected, got {got}")?;
        if allowed.is_empty() { Ok(()) } else { write!(f, "; allowed: {allowed}") }
    }
}

impl std::error::Error for InvalidValue {}
