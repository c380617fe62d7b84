//! The option catalogue: each route option once, with its kind, its default in each preset, and its description. It is the
//! only place where a default stands (rulings §1; routing.md §2.2).

mod entries;

pub use entries::{CATALOGUE, CONCURRENCY_MAX, CONTEXT_MAX};

use super::kind::{Kind, Value};

/// A named set of defaults (rulings §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// The `default` column.
    #[default]
    None,
    /// The session gateway (gateway.md).
    Gateway,
    /// The session router as its README describes it (routing.md).
    Openresty,
}

impl Preset {
    /// The words that a route document may use.
    pub const NAMES: [&'static str; 3] = ["none", "gateway", "openresty"];

    /// Reads a preset's name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "gateway" => Some(Self::Gateway),
            "openresty" => Some(Self::Openresty),
            _ => None,
        }
    }

    /// The preset's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gateway => "gateway",
            Self::Openresty => "openresty",
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
    /// What a number of it counts, or "time" or "bytes"; empty for words and bare numbers.
    pub unit: &'static str,
    /// For fine tuning only: tables list it when asked for everything.
    pub is_hidden: bool,
    /// Another name that documents may use, or empty.
    pub alias: &'static str,
    /// Default without a preset, as text.
    default: &'static str,
    /// Default under `preset: gateway`, when it differs.
    gateway: Option<&'static str>,
    /// Default under `preset: openresty`, when it differs.
    openresty: Option<&'static str>,
    /// What it does, in one or two sentences.
    pub description: &'static str,
}

impl OptionDef {
    /// The name in words, for tables.
    pub fn label(&self) -> String {
        self.name.replace('_', " ")
    }

    const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    const fn alias(mut self, alias: &'static str) -> Self {
        self.alias = alias;
        self
    }

    const fn gateway(mut self, default: &'static str) -> Self {
        self.gateway = Some(default);
        self
    }

    const fn openresty(mut self, default: &'static str) -> Self {
        self.openresty = Some(default);
        self
    }

    /// The default under a preset, as text.
    pub fn default_text(&self, preset: Preset) -> &'static str {
        match preset {
            Preset::None => self.default,
            Preset::Gateway => self.gateway.unwrap_or(self.default),
            Preset::Openresty => self.openresty.unwrap_or(self.default),
        }
    }

    /// The default under a preset. `None` can't happen: a test parses each default.
    pub(super) fn default_value(&self, preset: Preset) -> Option<Value> {
        self.kind.parse_text(self.default_text(preset)).ok()
    }
}

/// The option of that name, or with that alias.
pub fn find(name: &str) -> Option<&'static OptionDef> {
    CATALOGUE.iter().find(|option| option.name == name || (!option.alias.is_empty() && option.alias == name))
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
    use serde_json::json;

    use super::*;
    use crate::flow::cluster_avg;

    #[test]
    fn each_default_is_valid_and_each_name_stands_once() {
        for (index, option) in CATALOGUE.iter().enumerate() {
            for preset in [Preset::None, Preset::Gateway, Preset::Openresty] {
                let value = option.default_value(preset);
                assert!(value.is_some(), "{} under {}", option.name, preset.name());
            }
            let names =
                |one: &OptionDef| [one.name, one.alias].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
            let later = CATALOGUE[index + 1..].iter().flat_map(names);
            assert!(later.into_iter().all(|other| !names(option).contains(&other)), "{}", option.name);
            assert!(!option.description.is_empty());
        }
    }

    /// The table of rulings §1, row by row.
    #[test]
    fn rulings_1_defaults() {
        let rows = [
            ("affinity", "binding", "binding", "hash"),
            ("max_sessions", "1000000", "16384", "1000000"),
            ("on_full", "unbound", "refuse", "unbound"),
            ("session_idle_ttl", "24h", "none", "24h"),
            ("max_waiting", "32", "32", "0"),
            ("queue_timeout", "5s", "5s", "5s"),
            ("max_concurrency", "32", "32", "20"),
            ("health_check_interval", "2s", "2s", "10s"),
            ("health_failures", "1", "1", "1"),
            ("health_successes", "2", "2", "1"),
            ("health_ban_ttl", "5m", "none", "5m"),
            ("passive_ban", "connect", "connect", "off"),
            ("retry_on", "connect,502,503", "connect,5xx", "connect,header_timeout,502,503"),
            ("max_more_tries", "2", "all", "2"),
            // routing.md §8.2; gateway.md has no such limit.
            ("retry_within", "1m", "none", "1m"),
            ("max_body_size", "10MiB", "64MiB", "10MiB"),
            ("auth", "auto", "required", "open-if-unconfigured"),
            ("forward_authorization", "false", "false", "true"),
            ("upstream_timeout", "1h", "3h", "1h"),
            ("connect_timeout", "2s", "2s", "2s"),
        ];
        for (name, default, gateway, openresty) in rows {
            let option = find(name).unwrap();
            let text = |preset| option.default_value(preset).unwrap().to_string();
            assert_eq!(text(Preset::None), default, "{name}");
            assert_eq!(text(Preset::Gateway), gateway, "{name}");
            assert_eq!(text(Preset::Openresty), openresty, "{name}");
        }
    }

    /// The defaults of payload handling (rulings §7; the preset as payloads.md has them).
    #[test]
    fn rulings_7_defaults() {
        let rows = [
            ("cch_default_enabled", "false", "true"),
            ("kimi_normalize_default_enabled", "false", "true"),
            ("kimi_normalize_strategy", "rerank", "rerank"),
            ("include_usage_default_enabled", "auto", "by_model"),
            ("include_usage_hide", "true", "false"),
            ("system_hoist_default_enabled", "false", "true"),
            ("reject_rules", "none", "none"),
            ("reject_rules_default_enabled", "false", "false"),
            ("reject_rules_status", "429", "429"),
            ("match_syntax", "regex", "lua"),
            ("postprocess", "none", "none"),
            ("answer_501_for", "none", "none"),
            ("bodylog_default_enabled", "true", "true"),
            ("bodylog_default_pct", "100", "100"),
        ];
        for (name, default, openresty) in rows {
            let option = find(name).unwrap();
            let text = |preset| option.default_value(preset).unwrap().to_string();
            assert_eq!(text(Preset::None), default, "{name}");
            assert_eq!(text(Preset::Gateway), default, "{name}: the gateway has none of this");
            assert_eq!(text(Preset::Openresty), openresty, "{name}");
        }
    }

    /// The defaults of routing.md §2.2, limits.md §5.3, §8.1 and §9.2, as rulings §3 changes them: no threshold is set unless
    /// the operator sets one.
    #[test]
    fn limits_defaults() {
        let rows = [
            ("rt_limit_factor", "1"),
            ("cross_tier_fallback", "false"),
            ("cluster_avg_interval", "30s"),
            ("load_rate_limit", "true"),
            ("ttft_limit_ms", "none"),
            ("ttft_window", "20s"),
            ("ttft_ewma_alpha", "0.3"),
            ("ttft_ttl", "1m"),
            ("ttft_probe_window", "10s"),
            ("ttft_probe_per_window", "5"),
            ("ttft_429_default_enabled", "true"),
            ("tps_limit_tps", "none"),
            ("tps_window", "20s"),
            ("tps_ewma_alpha", "0.3"),
            ("tps_ttl", "1m"),
            ("tps_probe_window", "10s"),
            ("tps_probe_per_window", "5"),
            ("tps_min_tokens", "16"),
            ("tps_min_decode_s", "500ms"),
            ("tps_basis", "total"),
            ("adaptive_cc", "false"),
            ("adaptive_cc_min", "none"),
            ("adaptive_cc_min_frac", "0.4"),
            ("adaptive_cc_init", "none"),
            ("adaptive_cc_init_frac", "none"),
            ("adaptive_cc_interval", "none"),
            ("adaptive_cc_dec", "0.97"),
            ("adaptive_cc_inc", "1.02"),
            ("adaptive_cc_pressure_frac", "0.9"),
            ("adaptive_cc_slack_frac", "0.7"),
            ("adaptive_cc_abs", "5"),
            ("adaptive_cc_ttl", "5m"),
            ("adaptive_cc_use_ttft", "true"),
            ("adaptive_cc_hold_when_idle", "true"),
            ("session_prio", "false"),
            ("session_prio_r_new", "0.85"),
            ("session_prio_full_turn", "32"),
            ("session_prio_severe", "1.5"),
            ("session_prio_release", "0.9"),
            ("session_prio_t1_probes", "1"),
            ("session_prio_warn_frac", "0.2"),
        ];
        for (name, default) in rows {
            let option = find(name).unwrap();
            for preset in [Preset::None, Preset::Gateway, Preset::Openresty] {
                assert_eq!(option.default_value(preset).unwrap().to_string(), default, "{name}");
            }
        }
    }

    #[test]
    fn a_limit_of_0_is_refused_and_a_metric_s_threshold_of_0_is_not() {
        for name in ["ttft_limit_ms", "tps_limit_tps"] {
            let kind = find(name).unwrap().kind;
            let error = kind.parse_json(&json!(0)).unwrap_err();
            assert!(error.allowed.starts_with("more than 0, up to ") && error.allowed.ends_with(" or none"), "{error}");
            assert_eq!(kind.parse_json(&json!(0.5)).unwrap(), Value::Decimal(0.5), "the control");
            assert_eq!(kind.parse_text("none").unwrap(), Value::Word("none"));
        }
        for name in ["ttft_limit_by_model", "tps_limit_by_model"] {
            let kind = find(name).unwrap().kind;
            let error = kind.parse_json(&json!({"m": 0})).unwrap_err();
            assert!(error.to_string().contains("got the number 0; allowed: none, or an object"), "{error}");
            assert_eq!(kind.parse_text("m=0.5").unwrap().to_string(), r#"{"m":0.5}"#, "the control");
        }
        for name in ["ttft_metrics", "tps_metrics"] {
            let list = json!([{"metric": "avg", "threshold": 0}]);
            assert_eq!(find(name).unwrap().kind.parse_json(&list).unwrap().to_string(), list.to_string());
        }
    }

    #[test]
    fn cluster_averages_lose_no_sample() {
        let kind = find("cluster_avg_interval").unwrap().kind;
        let longest = cluster_avg::TTL / u32::try_from(cluster_avg::SLOTS).unwrap();
        assert_eq!(kind.parse_text("36s").unwrap(), Value::Duration(longest));
        assert!(kind.parse_text("37s").is_err());
    }

    #[test]
    fn rulings_2_source_order_leaves_out_only_the_first_message() {
        let Some(Value::Words(sources)) = find("session_sources").unwrap().default_value(Preset::None) else {
            panic!("a list of words")
        };
        assert_eq!(sources, SESSION_SOURCES[..SESSION_SOURCES.len() - 1]);
    }
}
