//! The options of payload handling (payloads.md §3 to §6).

use super::{FlowSettings, Reader, Value};
use crate::body::transform::KimiStrategy;
use crate::reject::{MatchSyntax, RuleSet};
use crate::sse::rewrite::Handler;

/// When streamed completions are asked for their token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeUsage {
    /// Where the route measures TPS.
    Auto,
    /// Where it has a pool per model.
    ByModel,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What becomes of a request whose body reject rules can't read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// It is served: no rule refuses it.
    Pass,
    /// It is refused.
    Refuse,
}

/// Every option of payload handling. What may be switched at run time is what holds without a switch.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each field is the catalogue's option of that name, described there")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct PayloadSettings {
    pub cch_strip: bool,
    pub kimi_normalize: bool,
    pub kimi_strategy: KimiStrategy,
    pub include_usage: IncludeUsage,
    pub include_usage_hide: bool,
    pub system_hoist: bool,
    pub reject_rules: RuleSet,
    pub reject_rules_enabled: bool,
    pub reject_rules_status: u16,
    pub reject_rules_unreadable: Unreadable,
    pub postprocess: Option<Handler>,
    pub bodylog: bool,
    pub bodylog_pct: f64,
}

impl PayloadSettings {
    pub(super) fn read(read: &Reader<'_>) -> Self {
        let syntax = MatchSyntax::from_word(read.word("match_syntax"));
        Self {
            cch_strip: read.flag("cch_default_enabled"),
            kimi_normalize: read.flag("kimi_normalize_default_enabled"),
            kimi_strategy: KimiStrategy::from_word(read.word("kimi_normalize_strategy")),
            include_usage: match read.word("include_usage_default_enabled") {
                "by_model" => IncludeUsage::ByModel,
                "true" => IncludeUsage::On,
                "false" => IncludeUsage::Off,
                _ => IncludeUsage::Auto,
            },
            include_usage_hide: read.flag("include_usage_hide"),
            system_hoist: read.flag("system_hoist_default_enabled"),
            reject_rules: match read.value("reject_rules") {
                // With a pattern that is none in this syntax a document is refused; what is there all the same is left out.
                Some(Value::RejectRules(rules)) => RuleSet::of_valid(&rules, syntax),
                _ => RuleSet::default(),
            },
            reject_rules_enabled: read.flag("reject_rules_default_enabled"),
            reject_rules_status: u16::try_from(read.int("reject_rules_status")).unwrap_or(429),
            reject_rules_unreadable: match read.word("reject_rules_unreadable") {
                "refuse" => Unreadable::Refuse,
                _ => Unreadable::Pass,
            },
            postprocess: Handler::named(read.word("postprocess")),
            bodylog: read.flag("bodylog_default_enabled"),
            bodylog_pct: f64::from(read.small("bodylog_default_pct")),
        }
    }

    /// Whether streamed completions of the route are asked for their token counts, without a switch.
    pub fn asks_for_usage(&self, flow: &FlowSettings, is_by_model: bool) -> bool {
        match self.include_usage {
            IncludeUsage::Auto => flow.measures_tps(),
            IncludeUsage::ByModel => is_by_model,
            IncludeUsage::On => true,
            IncludeUsage::Off => false,
        }
    }
}
