//! Request transforms: byte edits of a JSON body, everything outside an edit stays as it is (payloads.md §3, rulings §7).

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
}

impl Transforms {
    /// Applies what is on. `None` for the body: it stays as it is. `body` is one JSON object; what is not stays as it is too.
    pub fn apply(&self, _body: &[u8]) -> (Option<Vec<u8>>, Changes) {
        (None, Changes::default())
    }
}
