//! The patterns of `match`, made ready (payloads.md §4.3, rulings §7). They take time linear in the text, whatever the text
//! and the pattern: both syntaxes end in an automaton that never goes back.

use std::borrow::Cow;

use regex::bytes::{Regex, RegexBuilder};

use super::{MatchSyntax, lua};

/// Bytes that a pattern's program may take, and as many that its cache may.
const SIZE_LIMIT: usize = 1 << 20;
/// Groups in groups.
const NEST_LIMIT: u32 = 50;

/// Makes a pattern ready, or says what is wrong with it.
pub(super) fn compile(pattern: &str, syntax: MatchSyntax) -> Result<Regex, String> {
    let text = match syntax {
        MatchSyntax::Regex => Cow::Borrowed(pattern),
        MatchSyntax::Lua => Cow::Owned(lua::to_regex(pattern.as_bytes())?),
    };
    let mut builder = RegexBuilder::new(&text);
    builder.size_limit(SIZE_LIMIT).dfa_size_limit(SIZE_LIMIT).nest_limit(NEST_LIMIT);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => format!("pattern too large: it needs more than {limit} bytes compiled"),
        other => one_line(&other.to_string()),
    })
}

/// The library draws the pattern over several lines, with marks below the place; what counts is the last of them.
fn one_line(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default().trim();
    let problem = last.strip_prefix("error: ").unwrap_or(last);
    format!("not a regular expression: {problem}")
}
