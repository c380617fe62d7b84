//! The one mapping between messages and policy types: `TryFrom` and `From`, nothing else. An error names the field, what
//! was there and what is allowed.

mod admin;
mod admission;
mod route;

pub use self::route::KnownRules;

/// A message that does not say what its type needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidMessage {
    /// The field's path.
    pub field: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl InvalidMessage {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}
