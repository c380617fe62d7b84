use super::*;

/// Each option with a value unlike its default.
const OTHERS: [(&str, &str); 91] = [
    ("affinity", "off"),
    ("session_affinity_enabled", "false"),
    ("disable_body_user_affinity", "true"),
    ("session_sources", "body.user"),
    ("extra_session_headers", "x-smg-routing-key"),
    ("max_sessions", "2"),
    ("on_full", "refuse"),
    ("session_idle_ttl", "none"),
    ("max_concurrency", "7"),
    ("max_waiting", "0"),
    ("queue_timeout", "1s"),
    ("rt_limit_factor", "2"),
    ("cross_tier_fallback", "true"),
    ("load_rate_limit", "false"),
    ("cluster_avg_interval", "10s"),
    ("ttft_limit_ms", "500"),
    ("ttft_limit_by_model", r#"{"m":500}"#),
    ("ttft_metrics", r#"[{"metric":"p9","q":0.9,"threshold":1.5}]"#),
    ("ttft_429_default_enabled", "false"),
    ("ttft_window", "10s"),
    ("ttft_ewma_alpha", "0.5"),
    ("ttft_ttl", "30s"),
    ("ttft_probe_window", "5s"),
    ("ttft_probe_per_window", "1"),
    ("tps_limit_tps", "20.5"),
    ("tps_limit_by_model", r#"{"m":0.5}"#),
    ("tps_metrics", r#"[{"metric":"avg","threshold":3}]"#),
    ("tps_basis", "decode"),
    ("tps_window", "10s"),
    ("tps_ewma_alpha", "0.5"),
    ("tps_ttl", "30s"),
    ("tps_probe_window", "5s"),
    ("tps_probe_per_window", "1"),
    ("tps_min_tokens", "1"),
    ("tps_min_decode_s", "1s"),
    ("adaptive_cc", "true"),
    ("adaptive_cc_min", "2"),
    ("adaptive_cc_init", "3"),
    ("adaptive_cc_use_ttft", "false"),
    ("adaptive_cc_hold_when_idle", "false"),
    ("adaptive_cc_min_frac", "0.5"),
    ("adaptive_cc_init_frac", "0.5"),
    ("adaptive_cc_interval", "5s"),
    ("adaptive_cc_dec", "0.9"),
    ("adaptive_cc_inc", "1.1"),
    ("adaptive_cc_pressure_frac", "0.8"),
    ("adaptive_cc_slack_frac", "0.5"),
    ("adaptive_cc_abs", "2"),
    ("adaptive_cc_ttl", "1m"),
    ("session_prio", "true"),
    ("session_prio_r_new", "0.5"),
    ("session_prio_full_turn", "16"),
    ("session_prio_table", r#"[{"min_turn":1,"share":0.5,"tol":1}]"#),
    ("session_prio_severe", "2"),
    ("session_prio_release", "0.8"),
    ("session_prio_t1_probes", "0"),
    ("session_prio_warn_frac", "0.1"),
    ("health_check_interval", "3s"),
    ("health_timeout", "1s"),
    ("health_failures", "3"),
    ("health_successes", "3"),
    ("health_ban_ttl", "none"),
    ("health_probe_path", "/health"),
    ("passive_ban", "off"),
    ("retry_on", "none"),
    ("max_more_tries", "all"),
    ("retry_within", "10s"),
    ("model_context_limit", "4096"),
    ("backend_context_limits", "19001=4096"),
    ("backend_managed_affinity", "true"),
    ("connect_timeout", "1s"),
    ("upstream_timeout", "1s"),
    ("answer_501_for", "400,404"),
    ("max_body_size", "1KiB"),
    ("auth", "required"),
    ("forward_authorization", "true"),
    ("expose_routed", "false"),
    ("cch_default_enabled", "true"),
    ("kimi_normalize_default_enabled", "true"),
    ("kimi_normalize_strategy", "keepinc"),
    ("include_usage_default_enabled", "true"),
    ("include_usage_hide", "false"),
    ("system_hoist_default_enabled", "true"),
    ("reject_rules", r#"[{"field":"x","op":"exists"}]"#),
    ("reject_rules_default_enabled", "true"),
    ("reject_rules_status", "413"),
    ("reject_rules_unreadable", "refuse"),
    ("match_syntax", "lua"),
    ("postprocess", "vllm_format"),
    ("bodylog_default_enabled", "false"),
    ("bodylog_default_pct", "10"),
];

#[test]
fn no_option_of_the_catalogue_is_left_unread() {
    // Each option set to a value unlike its default must change the resolved options.
    let defaults = RouteOptions::default();
    assert_eq!(OTHERS.len(), CATALOGUE.len());
    for (name, text) in OTHERS {
        let option = find(name).unwrap();
        let set = OptionSet::from([(option.name, option.kind.parse_text(text).unwrap())]);
        assert_ne!(RouteOptions::resolve(Preset::None, &set), defaults, "{name}");
        let shown = effective(Preset::None, &set);
        let row = shown.iter().find(|row| row.0 == name).unwrap();
        assert_eq!((row.1.as_str(), row.2), (text, true));
    }
}

#[test]
fn tries() {
    assert!(RetryTries::AtMost(2).allows(2));
    assert!(!RetryTries::AtMost(2).allows(3));
    assert!(!RetryTries::AtMost(0).allows(1));
    assert!(RetryTries::All.allows(1000));
}

#[test]
fn rulings_7_streams_are_asked_for_usage_where_somebody_counts() {
    let asks = |preset, options: &[(&str, &str)], is_by_model| {
        let set = options.iter().map(|(name, text)| {
            let option = find(name).unwrap();
            (option.name, option.kind.parse_text(text).unwrap())
        });
        let options = RouteOptions::resolve(preset, &set.collect());
        options.payload.asks_for_usage(&options.flow, is_by_model)
    };
    assert!(!asks(Preset::None, &[], true), "nobody counts");
    for tps in [("tps_limit_tps", "20"), ("tps_limit_by_model", r#"{"m":1}"#), ("adaptive_cc", "true")] {
        assert!(asks(Preset::None, &[tps], false), "{tps:?}");
    }
    assert!(!asks(Preset::None, &[("tps_limit_tps", "20"), ("include_usage_default_enabled", "false")], true));
    assert!(asks(Preset::None, &[("include_usage_default_enabled", "true")], false));
    assert!(asks(Preset::Openresty, &[], true), "example 24");
    assert!(!asks(Preset::Openresty, &[("tps_limit_tps", "20")], false), "example 28: a flat pool is never touched");
}
