//! Requests that are refused for what their body holds (payloads.md §4, rulings §6, §7).
//!
//! [`RuleList`] is what a route document says, [`RuleSet`] is the same made ready: the fields that the rules need are known
//! before a body comes, which is parsed once; only what the rules look at is read again. Called by the route validator, by each replica for each request
//! of a route with rules, and by `routerctl rules test`. Nothing here keeps or prints a body.

mod cursor;
mod evaluate;
mod explain;
mod field;
mod lua;
mod node;
mod number;
mod pattern;
mod rule;

#[cfg(test)]
mod tests;

pub use self::evaluate::{RuleSet, Unreadable, Verdict};
pub use self::explain::{Explanation, NodeResult, RuleResult, Test};
pub use self::node::Op;
pub use self::rule::{Rule, RuleList};

/// What the patterns of `match` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchSyntax {
    /// Regular expressions.
    #[default]
    Regex,
    /// Lua patterns.
    Lua,
}

impl MatchSyntax {
    /// The words of the option `match_syntax`.
    pub const NAMES: [&str; 2] = ["regex", "lua"];

    /// Of a word of that option; what is none of them is the default.
    pub fn from_word(word: &str) -> Self {
        if word == "lua" { Self::Lua } else { Self::Regex }
    }
}

/// A rule that can't be, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{node}{}{problem}", if node.is_empty() { "" } else { ": " })]
pub struct InvalidRule {
    /// Where in the list: `[0].all[1].op`; empty for the list itself.
    pub node: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}
