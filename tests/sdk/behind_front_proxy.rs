//! Three replicas behind a real front proxy, the `openai` SDK in front of it, while one backend is drained and another one
//! killed: no request fails but the streams that were running on the killed one.

use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::front_proxy::{FrontProxy, FrontProxyKind};
use serde_json::Value as Json;

use super::SCRIPTS;

router_tests::on_both_databases!(nothing_fails_behind_haproxy);

router_tests::on_any_database!(nothing_fails_behind_nginx);

async fn nothing_fails_behind_haproxy(kind: DatabaseKind) -> anyhow::Result<()> {
    nothing_fails(FrontProxyKind::Haproxy, kind).await
}

async fn nothing_fails_behind_nginx() -> anyhow::Result<()> {
    nothing_fails(FrontProxyKind::Nginx, DatabaseKind::Sqlite).await
}

async fn nothing_fails(front: FrontProxyKind, kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).preset("gateway").replicas(3).engines(3);
    let builder = builder.engine_args(&["--ttft-ms", "20", "--token-gap-ms", "10", "--tokens", "12"]);
    let mut cluster = builder.option("health_check_interval", "2s").option("auth", "required").start().await?;
    cluster.expect_log("backend");
    let secret = cluster.add_key("sdk").await?;
    let front = FrontProxy::start(front, &cluster.replica_addresses()?, cluster.folder()).await?;
    let environment = [
        ("ROUTER_FRONT".to_owned(), front.address().to_string()),
        ("ROUTER_REPLICAS".to_owned(), String::new()),
        ("ROUTER_KEY".to_owned(), secret),
    ];
    let mut script = SCRIPTS.start("behind_front_proxy.py", &environment).await?;
    script.until_more(60).await?;
    for (index, engine) in cluster.engines.iter().enumerate() {
        assert!(engine.stats().await?.completed_total > 0, "the control: engine {index} serves");
    }

    let drained = cluster.engines[0].address().to_string();
    cluster.ctl()?.ok(&["drain", "--backend", &drained, "--wait"]).await?;
    let at_the_drain = cluster.engines[0].stats().await?;
    assert_eq!(at_the_drain.in_flight, 0);
    script.until_more(60).await?;
    assert_eq!(cluster.engines[0].stats().await?.requests_total, at_the_drain.requests_total, "nothing comes any more");

    let killed = cluster.engines[1].address().to_string();
    cluster.engines[1].process.kill9().await?;
    script.until_more(120).await?;
    let failures = script.finish().await?;
    let was_running = |failure: &&Json| failure["is_stream"] == true && failure["begun_on"] == killed.as_str();
    let other: Vec<&Json> = failures.iter().filter(|failure| !was_running(failure)).collect();
    assert!(other.is_empty(), "{other:#?}");
    assert!(failures.len() <= 12, "each session runs one stream at most: {failures:#?}");
    let last = cluster.engines[2].address().to_string();
    let bindings = cluster.admin().await?.bindings().await?;
    assert!(bindings.iter().all(|(_, home)| *home == last), "{bindings:?}");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
