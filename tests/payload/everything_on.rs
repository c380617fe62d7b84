//! Real clients, served by two replicas while everything that reads or changes bodies is on: they notice nothing, and the body log
//! holds what they sent and got.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use router_tests::await_event::{PATIENCE, until};
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::process::Process;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::corpus::{self, CLIENTS, SCRIPTS};

router_tests::on_both_databases!(real_clients_are_served_with_everything_on);

/// A rule that refuses none of them, and is asked of each.
const RULES: &str = r#"[{"name": "huge", "all": [{"field": "input_chars", "op": "gt", "value": 1000000},
    {"any": [{"field": "model", "op": "match", "value": "^kimi"}, {"field": "user", "op": "exists"}]}]}]"#;

async fn real_clients_are_served_with_everything_on(kind: DatabaseKind) -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("router-bodylog-")?;
    let log = folder.path().join("log");
    let args = ["bodylog", "serve", "--port", "0", "--http-port", "0", "--dir", log.to_str().context("a path")?];
    let collector = Process::start("collector", &args, folder.path()).await?;
    collector.ready().await?;
    let port = collector.address("frames")?.port().to_string();

    let mut builder =
        Cluster::builder(kind).engines(2).replica_args(&["--bodylog-host", "127.0.0.1", "--bodylog-port", &port]);
    for option in ["cch", "kimi_normalize", "include_usage", "system_hoist", "reject_rules"] {
        builder = builder.option(&format!("{option}_default_enabled"), "true");
    }
    builder = builder.option("reject_rules", RULES).option("postprocess", "vllm_format");
    let mut cluster = builder.start().await?;
    cluster.expect_log("body log");
    let mut sent = Vec::new();
    for (number, client) in CLIENTS.iter().enumerate() {
        let target = format!("http://{}", cluster.replica(number % 2)?);
        let environment = [("TARGET".to_owned(), target)];
        SCRIPTS.run(client, &environment).await?;
    }
    cluster.until_in_flight(0).await?;

    // Each request is in the log, as its client sent it, with what the engine answered.
    sent.extend(corpus::record(folder.path()).await?);
    let records = until("every request is in the log", PATIENCE, async || {
        let records = read_log(&log)?;
        Ok((records.len() >= sent.len()).then_some(records))
    })
    .await?;
    assert_eq!(records.len(), sent.len());
    assert_eq!(bodies(sent.iter().map(|request| request.body.as_str())), bodies(records.iter().map(request_body)));
    for record in &records {
        assert_eq!(record["status"], 200, "{record}");
        let path = record["uri"].as_str().unwrap_or_default();
        if path.ends_with("/completions") || path.ends_with("/messages") {
            assert!(!record["resp_body"].as_str().unwrap_or_default().is_empty(), "its text: {record}");
            assert!(record["resp_meta"]["finish_reason"].is_string() || record["resp_meta"]["stop_reason"].is_string());
            assert!(record["resp_meta"]["usage"].is_object(), "streams have been asked for it: {record}");
        }
        for name in record["req_headers"].as_object().context("headers")?.keys() {
            assert!(!["authorization", "x-api-key"].contains(&name.as_str()), "{record}");
        }
    }

    // Each feature has been at work.
    let page = async |name: &str| {
        let answer = cluster.client.get(cluster.replica_admin(0)?, &format!("/chat/{name}")).await?.ok()?;
        answer.json()
    };
    until("the fleet's counts are in", PATIENCE, async || {
        let written = page("_bodylog_status").await?["write_count"].as_u64();
        Ok((written == Some(sent.len() as u64)).then_some(()))
    })
    .await?;
    let dropped = page("_bodylog_status").await?["drop_count"].as_u64();
    let stripped = page("_cch_strip_status").await?["stripped_total"].as_u64();
    let ids = page("_kimi_normalize_toggle").await?["changes_total"].as_u64();
    let asked = page("_include_usage_toggle").await?["injected_total"].as_u64();
    let hoisted = page("_system_hoist_toggle").await?["hoisted_total"].as_u64();
    assert_eq!(dropped, Some(0));
    assert!(hoisted > Some(1), "{hoisted:?}");
    assert!(stripped > Some(5) && ids > Some(20) && asked > Some(5), "{stripped:?} {ids:?} {asked:?}");
    let ask =
        json!({"model": "kimi-k2.6", "user": "u", "stream": true, "messages": [{"role": "user", "content": "Hi."}]});
    let ask_one = async |body: &Json| cluster.client.post(cluster.replica(1)?, "/v1/chat/completions", body).await;
    let answer = ask_one(&ask).await?.ok()?.text();
    // `"usage":null` on the other frames stays: only what was added is taken away.
    let is_hidden = answer.contains("[DONE]") && !answer.contains("total_tokens");
    assert!(is_hidden, "the frame that was asked for: {answer}");
    assert!(!answer.contains("system_fingerprint"), "the handler is at work: {answer}");
    let mut huge = ask;
    huge["messages"][0]["content"] = Json::from("x".repeat(1_000_001));
    assert_eq!(ask_one(&huge).await?.status, 429, "the rule is in force");
    cluster.finish()
}

/// How often each body stands there. Ids of a run are the same in the next.
fn bodies<'a>(all: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    all.fold(BTreeMap::new(), |mut counts, body| {
        *counts.entry(body).or_default() += 1;
        counts
    })
}

fn request_body(record: &Json) -> &str {
    record["req_body"].as_str().unwrap_or_default()
}

/// Every full record.
fn read_log(log: &Path) -> anyhow::Result<Vec<Json>> {
    let entries = |folder: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
        paths.collect::<Result<_, std::io::Error>>().map_err(Into::into)
    };
    let mut records = Vec::new();
    for day in entries(log)?.iter().filter(|path| path.is_dir() && !path.ends_with("metrics")) {
        for hour in entries(day)? {
            let text = std::fs::read_to_string(hour)?;
            let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            records.extend(whole.map(serde_json::from_str::<Json>).collect::<Result<Vec<_>, _>>()?);
        }
    }
    Ok(records)
}
