//! A pool whose streams begin late, or whose answers come slowly, refuses all but a few probes, and recovers by them.

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::{Tasks, send, set};

router_tests::on_any_database!(late_first_bytes_refuse_and_recover, slow_answers_refuse);

/// Six at once, three by each replica: more than the probe slots of any window.
async fn burst(cluster: &Cluster, chat: &Chat) -> anyhow::Result<Vec<Answer>> {
    let mut tasks = Tasks::new();
    for number in 0..6 {
        send(cluster, number % 2, chat.clone(), &mut tasks)?;
    }
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        answers.push(answer??);
    }
    Ok(answers)
}

/// Sends until some are refused by `gate`, and some not: the probes.
async fn until_refused(cluster: &Cluster, chat: &Chat, gate: &str) -> anyhow::Result<Answer> {
    let look = || async {
        let (served, refused): (Vec<_>, Vec<_>) =
            burst(cluster, chat).await?.into_iter().partition(|answer| answer.status == StatusCode::OK);
        for answer in &refused {
            assert_eq!(answer.error_code()?, gate, "{}", answer.text());
        }
        Ok(refused.into_iter().next().filter(|_| !served.is_empty()))
    };
    until(&format!("refusals by {gate} but for probes"), PATIENCE, look).await
}

/// Sends until all are served.
async fn until_served(cluster: &Cluster, chat: &Chat) -> anyhow::Result<()> {
    let look = || async {
        let is_served = burst(cluster, chat).await?.iter().all(|answer| answer.status == StatusCode::OK);
        Ok(is_served.then_some(()))
    };
    until("everybody served", PATIENCE, look).await
}

async fn late_first_bytes_refuse_and_recover() -> anyhow::Result<()> {
    let mut builder = Cluster::builder(DatabaseKind::Sqlite).engines(2).engine_args(&["--ttft-ms", "600"]);
    for (name, value) in [
        ("ttft_limit_ms", "400"),
        ("ttft_window", "1s"),
        ("ttft_ewma_alpha", "1"),
        ("ttft_probe_window", "1s"),
        ("ttft_probe_per_window", "2"),
    ] {
        builder = builder.option(name, value);
    }
    let cluster = builder.start().await?;
    let streamed = Chat::new().streamed();
    let refused = until_refused(&cluster, &streamed, "ttft").await?;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
    let details = refused.json()?["error"]["details"].clone();
    assert_eq!(details["error"], "ttft limit exceeded");
    assert_eq!(details["ttft_limit"], 400);
    assert_eq!((&details["metric"], &details["route"]), (&json!("p80"), &json!("chat")));
    assert!(details["ttft_ewma"].as_f64().is_some_and(|ewma| ewma >= 600.0), "{details}");
    for engine in &cluster.engines {
        engine.set(&json!({"ttft_ms": 0})).await?;
    }
    until_served(&cluster, &streamed).await?;

    // The control: slow again, with the refusal switched off.
    for engine in &cluster.engines {
        engine.set(&json!({"ttft_ms": 600})).await?;
    }
    until_refused(&cluster, &streamed, "ttft").await?;
    set(&cluster, &["ttft_429_default_enabled=false"]).await?;
    for answer in burst(&cluster, &streamed).await? {
        answer.ok()?;
    }
    let ewma = cluster.route().await?.pools[0].ttft_ewma_ms;
    assert!(ewma.is_some_and(|ewma| ewma >= 400.0), "still measured: {ewma:?}");
    cluster.finish()
}

async fn slow_answers_refuse() -> anyhow::Result<()> {
    // 16 tokens, 50 ms apart: about 20 a second.
    let mut builder = Cluster::builder(DatabaseKind::Sqlite).engines(2).engine_args(&["--token-gap-ms", "50"]);
    for (name, value) in [
        ("tps_limit_tps", "40"),
        ("tps_window", "1s"),
        ("tps_ewma_alpha", "1"),
        ("tps_probe_window", "1s"),
        ("tps_probe_per_window", "2"),
    ] {
        builder = builder.option(name, value);
    }
    let cluster = builder.option("tps_min_decode_s", "0s").start().await?;
    let refused = until_refused(&cluster, &Chat::new(), "tps").await?;
    assert_eq!(refused.error_code()?, "tps");
    assert_eq!(refused.json()?["error"]["details"]["tps_limit"], 40.0);
    // The control: with an adaptive limit, slow answers lower that instead.
    set(&cluster, &["adaptive_cc=true"]).await?;
    for answer in burst(&cluster, &Chat::new()).await? {
        answer.ok()?;
    }
    cluster.finish()
}
