//! Requests that are refused for what their body holds (payloads.md §4).

use serde_json::Value as Json;

pub mod condition;

/// What the patterns of `match` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchSyntax {
    /// Regular expressions.
    #[default]
    Regex,
    /// Lua patterns.
    Lua,
}

/// Rules as written, valid but for their patterns, whose syntax is another option's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleList {
    written: Vec<Json>,
}

/// A rule that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{node}: {problem}")]
pub struct InvalidRule {
    /// Where in the list: `[0].all[1].op`.
    pub node: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl RuleList {
    /// Reads a list of rules.
    pub fn parse(_json: &Json) -> Result<Self, InvalidRule> {
        Ok(Self::default())
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// As written.
    pub fn to_json(&self) -> Json {
        Json::Array(self.written.clone())
    }
}

/// A route's rules, ready to be asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleSet {
    syntax: MatchSyntax,
}

/// The rule that a request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Its name.
    pub rule: &'a str,
    /// Its own status.
    pub status: Option<u16>,
    /// Its own message.
    pub message: Option<&'a str>,
}

impl RuleSet {
    /// Makes rules ready; the first with a pattern that is none is named.
    pub fn compile(_rules: &RuleList, syntax: MatchSyntax) -> Result<Self, InvalidRule> {
        Ok(Self { syntax })
    }

    /// Makes ready what can be, and leaves out the rest.
    pub fn of_valid(rules: &RuleList, syntax: MatchSyntax) -> Self {
        Self::compile(rules, syntax).unwrap_or_default()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// The first rule that a body meets. One that is no JSON object or list meets none.
    pub fn judge(&self, _body: &[u8]) -> Option<Verdict<'_>> {
        None
    }
}
