//! Status pages and switches of payload handling: each page has its fields and is the same on every replica; each switch acts on
//! all replicas within a second, and outlives the control plane's process.

use std::time::Duration;

use http::StatusCode;
use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::{Value as Json, json};

router_tests::on_both_databases!(a_switch_acts_on_every_replica_at_once_and_outlives_the_control_plane);

router_tests::on_any_database!(every_page_has_its_fields_on_every_replica, a_page_changes_what_the_tool_changes);

const MARKER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab;";
const RULES: &str = r#"[{"name": "cold", "field": "temperature", "op": "lt", "value": 0.1, "status": 422, "message": "too cold"},
    {"all": [{"field": "messages_count", "op": "gt", "value": 99}, {"field": "model", "op": "in", "value": ["a", "b"]}]}]"#;

/// Each page and what it must have (payloads.md §9).
const PAGES: [(&str, &str); 9] = [
    ("_cch_strip_status", "route enabled default parsed_total stripped_total strip_ratio"),
    ("_cch_strip_toggle", "route ok changes enabled"),
    ("_kimi_normalize_toggle", "route ok changes enabled changes_total req_count"),
    ("_include_usage_toggle", "route ok changes enabled injected_total note"),
    ("_system_hoist_toggle", "route ok changes enabled"),
    (
        "_reject_rules_status",
        "route ok enabled default_status rule_count rules/0/name rules/0/status rules/0/cond rules/0/hits rules/1/cond",
    ),
    ("_reject_rules_toggle", "route ok changes enabled"),
    ("_bodylog_status", "route enabled sample_pct logger_initted write_count drop_count encode_errs now"),
    ("_bodylog_toggle", "route ok changes enabled sample_pct"),
];

async fn every_page_has_its_fields_on_every_replica() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(1).option("cch_default_enabled", "true");
    let cluster = builder.option("reject_rules", RULES).option("reject_rules_default_enabled", "true").start().await?;
    for replica in 0..2 {
        ask(&cluster, replica, &marked(1.0)).await?.ok()?;
        assert_eq!(ask(&cluster, replica, &marked(0.0)).await?.status, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let page = async |replica: usize, name: &str| {
        cluster.client.get(cluster.replica_admin(replica)?, &format!("/chat/{name}")).await?.ok()?.json()
    };
    // Replicas tell their counts now and then.
    until("both replicas have told", PATIENCE, async || {
        let parsed = page(0, "_cch_strip_status").await?["parsed_total"] == 4;
        Ok((parsed && page(0, "_reject_rules_status").await?["rules"][0]["hits"] == 2).then_some(()))
    })
    .await?;
    for (name, fields) in PAGES {
        let mut answers = [page(0, name).await?, page(1, name).await?];
        for field in fields.split_whitespace() {
            assert!(answers[0].pointer(&format!("/{field}")).is_some(), "{name} has no {field}: {:#}", answers[0]);
        }
        for answer in &mut answers {
            // The moment of the answer itself.
            answer.as_object_mut().and_then(|fields| fields.remove("now"));
        }
        assert_eq!(answers[0], answers[1], "{name}: one fleet, one answer");
        assert_eq!(answers[0]["scope"], "fleet", "{name}");
    }
    assert_eq!(page(1, "_cch_strip_status").await?["stripped_total"], 2, "what a rule refuses is not changed");
    let rules = page(1, "_reject_rules_status").await?;
    assert_eq!(rules["rules"][0]["cond"], "temperature lt 0.1");
    assert_eq!(rules["rules"][1]["cond"], "ALL(messages_count gt 99 & model in [a,b])");
    assert_eq!(page(1, "_429_status").await?["by_reason"]["rule"], 2);
    let tested = cluster.client.post(cluster.replica_admin(0)?, "/chat/_cch_test?full=1", &marked(1.0)).await?.ok()?;
    let tested = tested.json()?;
    assert_eq!(tested["cch_stripped"], true, "{tested}");
    assert!(!tested["body_after"].as_str().unwrap_or("billing").contains("billing"), "{tested}");
    cluster.finish()
}

async fn a_page_changes_what_the_tool_changes() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(1).option("reject_rules", RULES).start().await?;
    let page = async |path: &str| {
        cluster.client.post(cluster.replica_admin(0)?, &format!("/chat/{path}"), &json!({})).await?.ok()?.json()
    };
    for (path, name, value) in [
        ("_cch_strip_toggle?on=1", "cch_strip", "on"),
        ("_kimi_normalize_toggle?on=true", "kimi_normalize", "on"),
        ("_include_usage_toggle?on=1", "include_usage", "on"),
        ("_system_hoist_toggle?on=1", "system_hoist", "on"),
        ("_reject_rules_toggle?on=1", "reject_rules", "on"),
        ("_bodylog_toggle?on=0", "bodylog", "off"),
        ("_bodylog_toggle?pct=7", "bodylog_pct", "7"),
    ] {
        page(path).await?;
        let set = cluster.route().await?.toggles;
        let found = set.iter().find(|toggle| toggle.name == name);
        assert_eq!(found.map(|toggle| toggle.value.as_str()), Some(value), "{path}: {set:?}");
    }
    assert_eq!(page("_cch_strip_toggle?on=maybe").await?["changes"], json!({}), "a value that is none is passed over");
    assert_eq!(page("_bodylog_toggle").await?["sample_pct"], 7);
    cluster.finish()
}

fn marked(temperature: f64) -> Json {
    let content = format!("{MARKER} Hello.");
    json!({"model": "kimi-k2.6", "temperature": temperature, "messages": [{"role": "user", "content": content}]})
}

async fn ask(cluster: &Cluster, replica: usize, body: &Json) -> anyhow::Result<Answer> {
    cluster.client.post(cluster.replica(replica)?, "/v1/chat/completions", body).await
}

/// Whether each replica takes the marker off, and whether it refuses what is cold.
async fn acts(cluster: &Cluster) -> anyhow::Result<[(bool, bool); 2]> {
    let mut acts = [(false, false); 2];
    for (replica, acts) in acts.iter_mut().enumerate() {
        let answer = ask(cluster, replica, &marked(0.0)).await?;
        let is_refused = answer.status == StatusCode::UNPROCESSABLE_ENTITY;
        assert!(is_refused || answer.status == StatusCode::OK, "{}", answer.text());
        ask(cluster, replica, &marked(1.0)).await?.ok()?;
        let got = cluster.engines[0].recorded().await?.pop().map(|request| request.body).unwrap_or_default();
        *acts = (!got.contains("billing"), is_refused);
    }
    Ok(acts)
}

async fn a_switch_acts_on_every_replica_at_once_and_outlives_the_control_plane(
    kind: DatabaseKind,
) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).engines(1).option("reject_rules", RULES).start().await?;
    cluster.expect_log("control plane");
    cluster.engines[0].record(1).await?;
    assert_eq!(acts(&cluster).await?, [(false, false); 2], "the control: nothing is on");
    let ctl = cluster.ctl()?;
    for (on, expected) in [("on", (true, true)), ("off", (false, false)), ("on", (true, true))] {
        ctl.ok(&["toggle", "chat", "cch_strip", on]).await?;
        ctl.ok(&["toggle", "chat", "reject_rules", on]).await?;
        let at_once = async || Ok((acts(&cluster).await? == [expected; 2]).then_some(()));
        until("each replica does as it is told", Duration::from_secs(1), at_once).await?;
    }
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.until_ready().await?;
    let still = async || Ok(acts(&cluster).await? == [(true, true); 2]);
    throughout("the switches are as they were", Duration::from_millis(500), still).await?;
    ctl.ok(&["toggle", "chat", "cch_strip", "reset"]).await?;
    until("the option is in force again", PATIENCE, async || {
        Ok((acts(&cluster).await? == [(false, true); 2]).then_some(()))
    })
    .await?;
    cluster.finish()
}
