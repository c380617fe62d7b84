//! The option catalogue: each route option once, with its kind, its default in each preset, and its description. It is the
//! only place where a default stands (rulings §1; routing.md §2.2).

mod entries;

pub use entries::{CATALOGUE, CONTEXT_MAX};

use super::kind::{Kind, Value};

/// A named set of defaults (rulings §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// The `default` column.
    #[default]
    None,
    /// The session gateway (gateway.md).
    Gateway,
}

impl Preset {
    /// The words that a route document may use.
    pub const NAMES: [&'static str; 2] = ["none", "gateway"];

    /// Reads a preset's name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "gateway" => Some(Self::Gateway),
            _ => None,
        }
    }

    /// The preset's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gateway => "gateway",
        }
    }
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct OptionDef {
    /// The key in route documents and on command lines.
    pub name: &'static str,
    /// Where tables list it.
    pub group: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Default without a preset, as text.
    default: &'static str,
    /// Default under `preset: gateway`, when it differs.
    gateway: Option<&'static str>,
    /// What it does, in one or two sentences.
    pub description: &'static str,
}

impl OptionDef {
    /// The default under a preset, as text.
    pub fn default_text(&self, preset: Preset) -> &'static str {
        match preset {
            Preset::None => self.default,
            Preset::Gateway => self.gateway.unwrap_or(self.default),
        }
    }

    /// The default under a preset. `None` can't happen: a test parses each default.
    pub(super) fn default_value(&self, preset: Preset) -> Option<Value> {
        self.kind.parse_text(self.default_text(preset)).ok()
    }
}

/// The option of that name.
pub fn find(name: &str) -> Option<&'static OptionDef> {
    CATALOGUE.iter().find(|option| option.name == name)
}

/// Session sources in the order of rulings §2; also the words of `session_sources`.
pub const SESSION_SOURCES: &[&str] = &[
    "header.x-session-affinity",
    "header.x-deepseek-harness-session-id",
    "header.x-litellm-session-id",
    "header.x-claude-code-session-id",
    "header.x-session-id",
    "body.metadata.session_id",
    "body.litellm_metadata.session_id",
    "body.metadata.user_id.session_id",
    "body.litellm_metadata.user_id.session_id",
    "body.metadata.user_id",
    "body.litellm_metadata.user_id",
    "body.conversation",
    "body.prompt_cache_key",
    "body.user",
    "body.first_user_message",
];

/// Failures that may be tried on another backend.
pub const RETRY_CONDITIONS: &[&str] = &["connect", "header_timeout", "5xx", "500", "502", "503", "504"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_is_valid_and_each_name_stands_once() {
        for (index, option) in CATALOGUE.iter().enumerate() {
            for preset in [Preset::None, Preset::Gateway] {
                let value = option.default_value(preset);
                assert!(value.is_some(), "{} under {}", option.name, preset.name());
            }
            assert!(CATALOGUE[index + 1..].iter().all(|other| other.name != option.name));
            assert!(!option.description.is_empty());
        }
    }

    /// The table of rulings §1, row by row, for the options that exist.
    #[test]
    fn rulings_1_defaults() {
        let rows = [
            ("affinity", "binding", "binding"),
            ("max_sessions", "1000000", "16384"),
            ("on_full", "unbound", "refuse"),
            ("session_idle_ttl", "24h", "none"),
            ("max_waiting", "32", "32"),
            ("queue_timeout", "5s", "5s"),
            ("max_concurrency", "32", "32"),
            ("health_check_interval", "2s", "2s"),
            ("health_failures", "1", "1"),
            ("health_successes", "2", "2"),
            ("health_ban_ttl", "5m", "none"),
            ("passive_ban", "connect", "connect"),
            ("retry_on", "connect,502,503", "connect,5xx"),
            ("max_more_tries", "2", "all"),
            ("max_body_size", "10MiB", "64MiB"),
            ("auth", "auto", "required"),
            ("forward_authorization", "false", "false"),
            ("upstream_timeout", "1h", "3h"),
            ("connect_timeout", "2s", "2s"),
        ];
        for (name, default, gateway) in rows {
            let option = find(name).unwrap();
            let text = |preset| option.default_value(preset).unwrap().to_string();
            assert_eq!(text(Preset::None), default, "{name}");
            assert_eq!(text(Preset::Gateway), gateway, "{name}");
        }
    }

    #[test]
    fn rulings_2_source_order_leaves_out_only_the_first_message() {
        let Some(Value::Words(sources)) = find("session_sources").unwrap().default_value(Preset::None) else {
            panic!("a list of words")
        };
        assert_eq!(sources, SESSION_SOURCES[..SESSION_SOURCES.len() - 1]);
    }
}
