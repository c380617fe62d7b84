//! Request transforms: byte edits of a JSON body, everything outside an edit stays as it is (payloads.md §3, rulings §7).

mod cch_strip;
mod include_usage;
mod kimi_normalize;
mod look;
mod string_fields;
mod system_hoist;
mod top_level;

use std::cell::OnceCell;

use memchr::memmem;

use self::top_level::TopLevel;
use super::edit::Edits;
use super::peek::without_bom;

/// How tool call ids of Kimi models are numbered (payloads.md §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KimiStrategy {
    /// By place in the conversation.
    #[default]
    Rerank,
    /// By content.
    Hash,
    /// By place, the last one with the largest number seen.
    RerankMaxlast,
    /// Numbers that rise are kept.
    Keepinc,
}

impl KimiStrategy {
    /// Reads the option's word.
    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "hash" => Self::Hash,
            "rerank_maxlast" => Self::RerankMaxlast,
            "keepinc" => Self::Keepinc,
            _ => Self::Rerank,
        }
    }
}

/// Which transforms are on for a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transforms {
    /// Take the billing marker off.
    pub cch_strip: bool,
    /// Normalize Kimi's tool call ids, in this way.
    pub kimi_normalize: Option<KimiStrategy>,
    /// Ask for token counts. Only of bodies of `/v1/chat/completions` and `/v1/completions`.
    pub include_usage: bool,
    /// Move system messages up. Only of bodies of `/v1/messages`.
    pub system_hoist: bool,
}

/// What was done to a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is of another transform")]
pub struct Changes {
    /// Billing markers were taken off.
    pub cch_stripped: bool,
    /// Tool call ids that were replaced.
    pub kimi_ids: u64,
    /// Token counts are asked for, which the client did not.
    pub usage_asked: bool,
    /// System messages that were moved.
    pub hoisted: u64,
    /// `stream_options` is such that token counts can't be asked for.
    pub usage_not_possible: bool,
    /// Tool call ids stay: with new ones the body would more than double its length.
    pub kimi_too_long: bool,
    /// System messages stay, for the same reason.
    pub hoist_too_long: bool,
}

impl Transforms {
    /// Applies what is on, in the order cch, kimi, usage, hoist; the result is as if one were applied after the other.
    /// `None` for the body: it stays as it is, as does one that is not one JSON object in UTF-8. A transform with which it
    /// would more than double its length is left out.
    pub fn apply(&self, body: &[u8]) -> (Option<Vec<u8>>, Changes) {
        let json = without_bom(body);
        let (edited, changes) = self.try_apply(json).unwrap_or_default();
        let bom = body.get(..body.len() - json.len()).unwrap_or_default();
        let edited = edited.map(|edited| if bom.is_empty() { edited } else { [bom, &edited].concat() });
        (edited, changes)
    }

    fn try_apply(self, body: &[u8]) -> Option<(Option<Vec<u8>>, Changes)> {
        let on = self.that_may_apply(body)?;
        let top = TopLevel::read(body)?;
        let mut edits = Edits::new(top.text);
        let cch_stripped = on.cch_strip && cch_strip::edit(&top, &mut edits);
        let kimi_ids = on
            .kimi_normalize
            .map_or(Some(0), |strategy| edits.attempt(|edits| kimi_normalize::edit(&top, strategy, edits)));
        let usage = on.include_usage.then(|| edits.attempt(|edits| include_usage::edit(&top, edits))).flatten();
        let hoisted = if on.system_hoist { edits.attempt(|edits| system_hoist::edit(&top, edits)) } else { Some(0) };
        let changes = Changes {
            cch_stripped,
            kimi_ids: kimi_ids.unwrap_or(0),
            usage_asked: usage == Some(include_usage::Outcome::Asked),
            hoisted: hoisted.unwrap_or(0),
            usage_not_possible: usage == Some(include_usage::Outcome::NotPossible),
            kimi_too_long: kimi_ids.is_none(),
            hoist_too_long: hoisted.is_none(),
        };
        let edited = edits.apply().ok()?;
        Some((edited.map(String::into_bytes), changes))
    }

    /// Those whose words the body holds: a look for a word costs next to nothing beside a parse.
    fn that_may_apply(self, body: &[u8]) -> Option<Self> {
        let has_escapes = OnceCell::new();
        let holds = |word: &str| memmem::find(body, word.as_bytes()).is_some();
        // A JSON string may write any letter of the word as an escape, and they all start alike.
        let may_hold = |word: &str| holds(word) || *has_escapes.get_or_init(|| holds("\\u00"));
        let on = Self {
            cch_strip: self.cch_strip && holds(cch_strip::MARKER),
            kimi_normalize: self.kimi_normalize.filter(|_| may_hold("imi-") && may_hold("tool_calls")),
            include_usage: self.include_usage && may_hold("stream"),
            system_hoist: self.system_hoist && may_hold("\"system\""),
        };
        (on != Self::default()).then_some(on)
    }
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod properties;
