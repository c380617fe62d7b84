//! The status pages: the same on every replica, for the whole fleet; changes by loopback only; nothing secret on any.

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

router_tests::on_any_database!(
    every_page_has_its_fields_on_every_replica,
    a_page_changes_what_the_tool_changes,
    on_the_traffic_port_only_when_asked_for,
    sessions_and_keys_stand_nowhere,
);

/// Each page and fields that it must have.
const PAGES: [(&str, &[&str]); 12] = [
    ("_health_status", &["_meta"]),
    ("_active_conns", &[]),
    ("_cluster_avg", &["route", "realtime_sum", "buckets", "samples", "avg_5min", "cur_bucket_idx"]),
    ("_route_state", &["route", "active_level", "limit", "healthy_peers_in_level", "by_priority"]),
    (
        "_route_debug?sid=abc",
        &[
            "route",
            "session_id",
            "algorithm",
            "natural_target",
            "natural_banned",
            "actual_pick",
            "actual_mode",
            "session_affinity_enabled",
        ],
    ),
    ("_route_inspect", &["route", "source", "mode", "pick", "active_level"]),
    (
        "_ttft_status",
        &[
            "route",
            "global_enabled",
            "runtime_off",
            "active",
            "enforcing",
            "ttft_429_enabled",
            "ewma_ms",
            "alpha",
            "ttl",
            "probe_window",
            "probe_per_window",
            "probe_used_cur_window",
            "metrics",
        ],
    ),
    (
        "_tps_status",
        &[
            "route",
            "global_enabled",
            "runtime_off",
            "active",
            "opt_in",
            "tps_limit_source",
            "ewma_tps",
            "nousage_samples",
            "min_tokens",
            "adaptive_cc_on",
            "adaptive_cc",
            "adaptive_cc_min",
            "adaptive_cc_max",
            "adaptive_cc_init",
            "adaptive_cc_conc",
            "adaptive_cc_rej",
            "adaptive_cc_at_pressure",
            "adaptive_cc_at_slack",
            "adaptive_cc_hold_when_idle",
            "adaptive_cc_pressure_frac",
            "adaptive_cc_slack_frac",
            "adaptive_cc_abs",
            "adaptive_cc_interval",
        ],
    ),
    ("_429_status", &["scope", "total", "by_reason", "by_route", "note", "rate_limit"]),
    ("_route_opts", &["directives", "advanced"]),
    ("_rate_limit_status", &["enabled", "source", "trips"]),
    ("_session_status", &["enabled", "table", "pools"]),
];

async fn every_page_has_its_fields_on_every_replica() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(2).option("adaptive_cc", "true");
    let cluster = builder.option("tps_limit_tps", "5").option("ttft_limit_ms", "9000").start().await?;
    for number in 0..4 {
        Chat::of("abc").streamed().send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
    }
    cluster.until_in_flight(0).await?;
    for (page, fields) in PAGES {
        let mut answers = Vec::new();
        for replica in 0..2 {
            let answer = cluster.client.get(cluster.replica_admin(replica)?, &format!("/chat/{page}")).await?;
            assert_eq!(answer.status, StatusCode::OK, "{page}: {}", answer.text());
            assert!(answer.header("content-type").starts_with("application/json"), "{page}");
            let json = answer.json()?;
            for field in fields {
                assert!(json.get(*field).is_some(), "{page} has no {field}: {json}");
            }
            assert!(!answer.text().contains(":null"), "{page}: what is absent is left out: {}", answer.text());
            answers.push(json);
        }
        let same = page == "_route_inspect" || answers[0] == answers[1];
        assert!(same, "{page}: one fleet, one answer: {answers:#?}");
    }
    let [first, second] = [0, 1].map(|index| cluster.engines[index].address().to_string());
    let health = cluster.client.get(cluster.replica_admin(0)?, "/chat/_health_status").await?.json()?;
    assert_eq!((&health[&first]["banned"], &health[&second]["active"]), (&json!(false), &json!(0)), "{health}");

    for (path, status) in [("/nowhere/_route_state", 404), ("/chat/_nothing", 404)] {
        let answer = cluster.client.get(cluster.replica_admin(0)?, path).await?;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
        assert!(answer.json()?.get("error").is_some(), "{path}");
    }
    cluster.finish()
}

async fn a_page_changes_what_the_tool_changes() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(1).start().await?;
    let page =
        async |path: &str| cluster.client.post(cluster.replica_admin(0)?, &format!("/chat/{path}"), &json!({})).await;
    for (path, name, value) in [
        ("_rate_limit_toggle?on=0", "load_rate_limit", "off"),
        ("_ttft_toggle?on=0", "ttft", "off"),
        ("_tps_toggle?on=0", "tps", "off"),
        ("_ttft_429_toggle?on=0", "ttft_429", "off"),
        ("_session_prio_toggle?on=1", "session_prio", "on"),
        ("_ttft_limit?ms=1500", "ttft_limit_ms", "1500"),
        ("_tps_limit?tps=12.5&ttl=0", "tps_limit_tps", "12.5"),
    ] {
        let answer = page(path).await?;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        let set = cluster.route().await?.toggles;
        let found = set.iter().find(|toggle| toggle.name == name);
        assert_eq!(found.map(|toggle| toggle.value.as_str()), Some(value), "{path}: {set:?}");
        let lasts = found.is_some_and(|toggle| toggle.left_ms > 0);
        assert_eq!(lasts, path.starts_with("_ttft_limit"), "{path}: two hours unless said otherwise: {set:?}");
    }
    for path in
        ["_ttft_toggle", "_ttft_toggle?on=2", "_ttft_limit?ms=-1", "_tps_limit?tps=NaN", "_ttft_limit?ms=5&ttl=-1"]
    {
        let answer = page(path).await?;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}: {}", answer.text());
    }
    page("_rate_limit_toggle?reset=1").await?.ok()?;
    page("_ttft_limit?ms=0").await?.ok()?;
    let names: Vec<String> = cluster.route().await?.toggles.into_iter().map(|toggle| toggle.name).collect();
    assert!(!names.iter().any(|name| name == "load_rate_limit" || name == "ttft_limit_ms"), "{names:?}");
    cluster.finish()
}

async fn on_the_traffic_port_only_when_asked_for() -> anyhow::Result<()> {
    let plain = Cluster::builder(DatabaseKind::Sqlite).engines(1).start().await?;
    let hidden = plain.client.get(plain.replica(0)?, "/chat/_route_state").await?;
    assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{}", hidden.text());
    plain.finish()?;
    let open = Cluster::builder(DatabaseKind::Sqlite).engines(1).replica_args(&["--debug-endpoints"]).start().await?;
    let shown = open.client.get(open.replica(0)?, "/chat/_route_state").await?.ok()?;
    assert_eq!(shown.json()?["route"], "chat");
    open.finish()
}

async fn sessions_and_keys_stand_nowhere() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(1).option("session_prio", "true").start().await?;
    let (session, key) = ("a-very-secret-session", "sk-a-very-secret-key");
    let header = json!({"session_id": session, "turn": 3}).to_string();
    let chat = Chat::of(session).key(key).streamed().header("x-phanrouter-session", &header);
    chat.send(&cluster.client, cluster.replica(0)?).await?;
    let mut texts = Vec::new();
    for (page, _) in PAGES {
        texts.push(cluster.client.get(cluster.replica_admin(0)?, &format!("/chat/{page}")).await?.text());
    }
    texts.push(cluster.client.get(cluster.replica_admin(0)?, "/metrics").await?.text());
    texts.push(cluster.client.get(cluster.control_plane.address("http")?, "/metrics").await?.text());
    texts.push(cluster.control_plane.log()?);
    texts.push(cluster.replicas[0].log()?);
    assert!(texts.iter().any(|text| text.contains("router_")), "the control: there are metrics");
    for text in texts {
        assert!(!text.contains(session) && !text.contains(key), "{text}");
    }
    cluster.finish()
}
