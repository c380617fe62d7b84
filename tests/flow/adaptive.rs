//! A slow engine makes the adaptive limit fall; once it is fast again the limit climbs back. It survives a restart.

use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::traffic::Traffic;
use serde_json::json;

use super::{expect_outage, restart_control_plane, set};

router_tests::on_both_databases!(the_limit_falls_while_answers_are_slow_and_climbs_back);

const START: f64 = 16.0;

async fn limit(cluster: &Cluster) -> anyhow::Result<f64> {
    Ok(cluster.route().await?.pools[0].limit)
}

async fn the_limit_falls_while_answers_are_slow_and_climbs_back(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut builder = Cluster::builder(kind).engines(2).engine_args(&["--token-gap-ms", "1"]);
    for (name, value) in [
        ("max_concurrency", "10"),
        ("queue_timeout", "30s"),
        ("adaptive_cc", "true"),
        ("tps_limit_tps", "60"),
        ("tps_window", "1s"),
        ("tps_ewma_alpha", "1"),
        ("tps_min_decode_s", "0s"),
        ("adaptive_cc_min", "2"),
        ("adaptive_cc_init", "16"),
        ("adaptive_cc_dec", "0.5"),
        ("adaptive_cc_inc", "2"),
        ("adaptive_cc_interval", "1s"),
    ] {
        builder = builder.option(name, value);
    }
    let mut cluster = builder.start().await?;
    expect_outage(&mut cluster);
    let traffic = Traffic::start(12, &cluster.replica_addresses()?, &Chat::new());
    traffic.until_more(50).await?;
    let start = limit(&cluster).await?;
    assert!(start >= START, "fast: it does not fall: {start}");

    for engine in &cluster.engines {
        engine.set(&json!({"token_gap_ms": 40})).await?;
    }
    let has_fallen = || async { Ok(Some(limit(&cluster).await?).filter(|limit| *limit <= 4.0)) };
    let low = until("a lower limit", PATIENCE, has_fallen).await?;
    assert!(low >= 2.0, "never below its floor");
    // It holds the pool: no more are in flight than it says, over both replicas.
    let holds = || async { Ok((f64::from(cluster.in_flight().await?) <= low.ceil()).then_some(())) };
    until("no more in flight than the limit", PATIENCE, holds).await?;

    traffic.stop().await?;
    let before = limit(&cluster).await?;
    restart_control_plane(&mut cluster).await?;
    let after = limit(&cluster).await?;
    assert!(after <= before * 2.0 && after < START, "remembered: {before}, then {after}");

    for engine in &cluster.engines {
        engine.set(&json!({"token_gap_ms": 1})).await?;
    }
    let traffic = Traffic::start(12, &cluster.replica_addresses()?, &Chat::new());
    let has_climbed = || async { Ok(Some(limit(&cluster).await?).filter(|limit| *limit >= START)) };
    until("the limit is back", PATIENCE, has_climbed).await?;

    // The control: without it, answers as slow change nothing, whatever the gate makes of them.
    set(&cluster, &["adaptive_cc=false", "tps_limit_tps=none"]).await?;
    for engine in &cluster.engines {
        engine.set(&json!({"token_gap_ms": 40})).await?;
    }
    let is_slow = || async {
        let pool = cluster.route().await?.pools[0].clone();
        Ok(pool.tps_ewma.filter(|tps| *tps < 60.0).map(|_| pool.limit))
    };
    let limit = until("slow answers", PATIENCE, is_slow).await?;
    assert!((limit - 20.0).abs() < 1e-9, "the sum over both backends: {limit}");
    traffic.stop().await?;
    cluster.finish()
}
