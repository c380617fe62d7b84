//! The status pages: the same on every replica, for the whole fleet; changes by loopback only; nothing secret on any.

use http::StatusCode;
use router_tests::await_event;
use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::{Value as Json, json};

router_tests::on_any_database!(
    every_page_has_its_fields_on_every_replica,
    a_page_changes_what_the_tool_changes,
    limits_by_model_are_told,
    a_session_s_place_is_told_by_the_route_s_affinity,
    on_the_traffic_port_only_when_asked_for,
    sessions_and_keys_stand_nowhere,
);

/// Each page and the fields that it must have in the state of the test (limits.md §12.2 to §12.7, payloads.md §9 and §9.1); a
/// `/` leads into an object or a list. What is absent in that state is an omitted key, and is asked for elsewhere: a session's
/// hashes and limits by model below, shadowed limits and EWMAs in the control plane's own tests.
const PAGES: [(&str, &str); 12] = [
    ("_health_status", "_meta/api_keys_configured _meta/route_auth_enabled _meta/key_file_status"),
    ("_active_conns", "scope"),
    ("_cluster_avg", "route realtime_sum buckets samples avg_5min cur_bucket_idx"),
    (
        "_route_state",
        "route active_level limit healthy_peers_in_level by_priority/0/priority by_priority/0/healthy by_priority/0/banned \
         by_priority/0/active by_priority/0/max by_priority/0/peers/0/peer \
         by_priority/0/peers/0/banned by_priority/0/peers/0/active by_priority/0/peers/0/max by_priority/0/peers/1/peer",
    ),
    (
        "_route_debug?sid=abc",
        "route session_id algorithm natural_target natural_banned actual_pick actual_mode session_affinity_enabled \
         active_level scores/0/idx scores/0/name scores/0/banned scores/1/idx",
    ),
    ("_route_inspect", "route source mode pick active_level cch_stripped"),
    (
        "_ttft_status",
        "route global_enabled dict_declared runtime_off active enforcing ttft_429_enabled ttft_limit_ms \
         ewma_ms queue_wait_ms alpha ttl probe_window probe_per_window probe_used_cur_window \
         metrics/0/model metrics/0/source metrics/0/items/0/metric metrics/0/items/0/q metrics/0/items/0/threshold_ms",
    ),
    (
        "_tps_status",
        "route global_enabled dict_declared runtime_off active opt_in tps_limit_source tps_limit_tps \
         ewma_tps decode_tps nousage_samples/_ min_tokens alpha ttl probe_window probe_per_window probe_used_cur_window \
         metrics/0/model metrics/0/source metrics/0/items/0/metric metrics/0/items/0/q metrics/0/items/0/threshold_tps \
         adaptive_cc_on adaptive_cc adaptive_cc_min/_ adaptive_cc_max/_ adaptive_cc_init/_ adaptive_cc_conc \
         adaptive_cc_rej/_ adaptive_cc_at_pressure/_ adaptive_cc_at_slack/_ adaptive_cc_hold_when_idle \
         adaptive_cc_pressure_frac adaptive_cc_slack_frac adaptive_cc_abs adaptive_cc_interval",
    ),
    (
        "_429_status",
        "scope total by_reason/concurrency by_reason/ttft by_reason/tps by_route/chat/concurrency note \
         rate_limit/enabled rate_limit/source rate_limit/trips/concurrency",
    ),
    (
        "_route_opts",
        "directives/0/key directives/0/label directives/0/group directives/0/kind directives/0/default \
         directives/0/description directives/0/value directives/0/is_set advanced/0/key pools/_/static_max pools/_/floor \
         pools/_/start",
    ),
    ("_rate_limit_status", "route enabled source trips/concurrency trips/ttft trips/tps"),
    (
        "_session_status",
        "route enabled source table/0/bucket table/0/min_turn table/0/share table/0/tol table/0/admits table/0/refusals \
         table/0/over table/0/ptok table/0/ctok no_header/admits no_header/refusals no_header/over no_header/ptok \
         no_header/ctok severe release t1_probes warn_frac pools/_/hold pools/_/t1_probes_used_cur_window",
    ),
];

/// Each control and what it answers with (limits.md §12.8).
const CONTROLS: [(&str, &str); 7] = [
    ("_rate_limit_toggle?on=0", "route ok enabled source"),
    ("_ttft_toggle?on=0", "route ok global_enabled runtime_off active"),
    ("_tps_toggle?on=0", "route ok global_enabled runtime_off active"),
    ("_ttft_429_toggle?on=0", "route ok ttft_429_enabled note"),
    ("_session_prio_toggle?on=1", "route ok enabled source"),
    (
        "_ttft_limit?ms=1500",
        "route ok limit_override_ms static_limit_ms priority override_ttl_s override_effective \
         shadowed_limit_ms declares_metrics",
    ),
    (
        "_tps_limit?tps=12.5&ttl=0",
        "route ok limit_override_tps static_limit_tps priority override_ttl_s override_effective \
         shadowed_limit_tps declares_metrics enforcing warning",
    ),
];

fn requires(page: &str, answer: &Answer, fields: &str) -> anyhow::Result<Json> {
    let json = answer.json()?;
    for field in fields.split_whitespace() {
        assert!(json.pointer(&format!("/{field}")).is_some(), "{page} has no {field}: {json:#}");
    }
    assert!(!answer.text().contains(":null"), "{page}: what is absent is left out: {}", answer.text());
    Ok(json)
}

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
            answers.push(requires(page, &answer, fields)?);
        }
        let same = page == "_route_inspect" || answers[0] == answers[1];
        assert!(same, "{page}: one fleet, one answer: {answers:#?}");
    }
    let [first, second] = [0, 1].map(|index| cluster.engines[index].address().to_string());
    let health = cluster.client.get(cluster.replica_admin(0)?, "/chat/_health_status").await?.json()?;
    let connections = cluster.client.get(cluster.replica_admin(0)?, "/chat/_active_conns").await?.json()?;
    for backend in [&first, &second] {
        assert_eq!(health[backend], json!({"active": 0, "banned": false}), "{health}");
        assert_eq!(connections[backend], json!(0), "{connections}");
    }

    for (path, status) in [("/nowhere/_route_state", 404), ("/chat/_nothing", 404)] {
        let answer = cluster.client.get(cluster.replica_admin(0)?, path).await?;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text());
        assert!(answer.json()?.get("error").is_some(), "{path}");
    }
    cluster.finish()
}

async fn a_page_changes_what_the_tool_changes() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(1);
    let cluster = builder.option("tps_limit_tps", "5").option("ttft_limit_ms", "9000").start().await?;
    let page =
        async |path: &str| cluster.client.post(cluster.replica_admin(0)?, &format!("/chat/{path}"), &json!({})).await;
    let set_by = [
        ("load_rate_limit", "off"),
        ("ttft", "off"),
        ("tps", "off"),
        ("ttft_429", "off"),
        ("session_prio", "on"),
        ("ttft_limit_ms", "1500"),
        ("tps_limit_tps", "12.5"),
    ];
    for ((path, fields), (name, value)) in CONTROLS.into_iter().zip(set_by) {
        let answer = page(path).await?;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        requires(path, &answer, fields)?;
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

async fn limits_by_model_are_told() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(1).start().await?;
    let options = json!({"ttft_limit_by_model": {"m": 8000}, "tps_limit_by_model": {"m": 4}});
    let document = json!({"name": "many", "options": options,
        "peers_by_model": {"m": [cluster.engines[0].address().to_string()]}});
    cluster.ctl()?.run_with_stdin(&["apply", "-f", "-"], &document.to_string()).await?.ok()?;
    for (page, fields) in [
        ("_ttft_status", "ttft_limit_by_model/m metrics/0/items/0/threshold_ms"),
        ("_tps_status", "tps_limit_by_model/m opt_in tps_limit_source metrics/0/items/0/threshold_tps"),
        ("_ttft_limit", "static_by_model/m"),
        ("_tps_limit", "static_by_model/m"),
    ] {
        let known = || async {
            let answer = cluster.client.get(cluster.replica_admin(0)?, &format!("/many/{page}")).await?;
            Ok((answer.status == StatusCode::OK).then_some(answer))
        };
        let answer = await_event::until("the replica knows the route", await_event::PATIENCE, known).await?;
        let json = requires(page, &answer, fields)?;
        for only_of_a_route in ["ttft_limit_ms", "tps_limit_tps"] {
            assert_eq!(json.get(only_of_a_route), None, "{page}: none is stated for the whole route: {json}");
        }
    }
    cluster.finish()
}

async fn a_session_s_place_is_told_by_the_route_s_affinity() -> anyhow::Result<()> {
    let of_session = "route session_id algorithm natural_target natural_banned actual_pick actual_mode active_level \
         session_affinity_enabled scores/0/name scores/1/banned";
    for (affinity, algorithm, more) in [
        ("binding", "binding", ""),
        ("hash", "crc32", "natural_hash actual_hash"),
        ("rendezvous", "rendezvous", "natural_hash actual_hash scores/0/hash scores/1/hash"),
    ] {
        let builder = Cluster::builder(DatabaseKind::Sqlite).engines(2).option("affinity", affinity);
        let cluster = builder.start().await?;
        let home = Chat::of("abc").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
        cluster.until_in_flight(0).await?;
        let admin = cluster.replica_admin(1)?;
        let answer = cluster.client.get(admin, "/chat/_route_debug?sid=abc").await?.ok()?;
        let debug = requires(affinity, &answer, &format!("{of_session} {more}"))?;
        assert_eq!((&debug["session_id"], &debug["algorithm"]), (&json!("abc"), &json!(algorithm)));
        assert_eq!((&debug["natural_target"], &debug["natural_hash"]), (&debug["actual_pick"], &debug["actual_hash"]));
        assert_eq!(debug.get("natural_hash").is_some(), !more.is_empty(), "{debug}");

        let body = json!({"model": "mock-model", "metadata": {"session_id": "abc"}});
        let answer = cluster.client.post(admin, "/chat/_route_inspect", &body).await?.ok()?;
        let fields = "route session_id source mode pick active_level cch_stripped";
        let hash = if more.is_empty() { "" } else { "hash" };
        let inspect = requires(affinity, &answer, &format!("{fields} {hash}"))?;
        assert_eq!((&inspect["session_id"], &inspect["source"]), (&json!("abc"), &json!("body.metadata.session_id")));
        assert_eq!((&inspect["pick"], &inspect["hash"]), (&debug["actual_pick"], &debug["actual_hash"]), "{inspect}");
        assert_eq!(answer.header("x-routed-active-level"), "0");
        let names = cluster.engines.iter().filter(|engine| inspect["pick"] == engine.address().to_string()).count();
        assert_eq!(names, 1, "it names an address: {inspect}");
        let mode = if affinity == "binding" { "bound" } else { affinity };
        assert_eq!((&inspect["mode"], &debug["actual_mode"]), (&json!(mode), &json!(mode)), "{}", home.text());
        cluster.finish()?;
    }
    Ok(())
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
