//! A pool whose streams begin late, or whose answers come slowly, refuses all but a few probes, and recovers by them.

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::set;

router_tests::on_any_database!(late_first_bytes_refuse_and_recover, slow_answers_refuse);

async fn ask(cluster: &Cluster, replica: usize) -> anyhow::Result<Answer> {
    Chat::new().streamed().send(&cluster.client, cluster.replica(replica)?).await
}

/// Sends through both replicas until one is refused by `gate`.
async fn until_refused(cluster: &Cluster, gate: &str) -> anyhow::Result<Answer> {
    let look = || async {
        for replica in 0..2 {
            let answer = ask(cluster, replica).await?;
            if answer.status != StatusCode::OK {
                assert_eq!(answer.error_code()?, gate, "{}", answer.text());
                return Ok(Some(answer));
            }
        }
        Ok(None)
    };
    until(&format!("a refusal by {gate}"), PATIENCE, look).await
}

/// Sends through both replicas until ten in a row are served.
async fn until_served(cluster: &Cluster) -> anyhow::Result<()> {
    let look = || async {
        for number in 0..10 {
            if ask(cluster, number % 2).await?.status != StatusCode::OK {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    until("ten answers in a row", PATIENCE, look).await
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
    let refused = until_refused(&cluster, "ttft").await?;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
    let details = refused.json()?["error"]["details"].clone();
    assert_eq!(details["error"], "ttft limit exceeded");
    assert_eq!(details["ttft_limit"], 400);
    assert_eq!((&details["metric"], &details["route"]), (&json!("p80"), &json!("chat")));
    assert!(details["ttft_ewma"].as_f64().is_some_and(|ewma| ewma >= 600.0), "{details}");
    // Ten at once in one window: a few pass as probes, most do not.
    for engine in &cluster.engines {
        engine.set(&json!({"ttft_ms": 0})).await?;
    }
    until_served(&cluster).await?;

    // The control: slow again, with the refusal switched off.
    for engine in &cluster.engines {
        engine.set(&json!({"ttft_ms": 600})).await?;
    }
    until_refused(&cluster, "ttft").await?;
    set(&cluster, &["ttft_429_default_enabled=false"]).await?;
    for number in 0..4 {
        ask(&cluster, number % 2).await?.ok()?;
    }
    let ewma = cluster.route().await?.pools[0].ttft_ewma_ms;
    assert!(ewma.is_some_and(|ewma| ewma >= 400.0), "still measured: {ewma:?}");
    cluster.finish()
}

async fn slow_answers_refuse() -> anyhow::Result<()> {
    // 16 tokens, 50 ms apart: about 20 a second.
    let mut builder = Cluster::builder(DatabaseKind::Sqlite).engines(2).engine_args(&["--token-gap-ms", "50"]);
    for (name, value) in
        [("tps_limit_tps", "40"), ("tps_window", "1s"), ("tps_ewma_alpha", "1"), ("tps_probe_window", "1s")]
    {
        builder = builder.option(name, value);
    }
    let cluster = builder.option("tps_min_decode_s", "0s").start().await?;
    let look = || async {
        let answer = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
        Ok((answer.status != StatusCode::OK).then_some(answer))
    };
    let refused = until("a refusal by tps", PATIENCE, look).await?;
    assert_eq!(refused.error_code()?, "tps");
    assert_eq!(refused.json()?["error"]["details"]["tps_limit"], 40.0);
    // The control: with an adaptive limit, slow answers lower that instead.
    set(&cluster, &["adaptive_cc=true"]).await?;
    for number in 0..8 {
        Chat::new().send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
    }
    cluster.finish()
}
