//! No engine ever holds more requests than its limit, however many replicas and clients there are, and the whole capacity
//! is used. The engines' own counters are the proof.

use std::time::Duration;

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use tokio::task::JoinSet;

router_tests::on_both_databases!(a_burst_never_exceeds_the_limit_and_reaches_it, own_limits_of_backends_hold);

const CLIENTS: usize = 200;
const PER_ENGINE: u64 = 8;

/// Sends one request per client at once, spread over the replicas; every second one belongs to a session.
fn burst(cluster: &Cluster) -> anyhow::Result<JoinSet<anyhow::Result<StatusCode>>> {
    let replicas = cluster.replica_addresses()?;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let replica = replicas[number % replicas.len()];
        let client = cluster.client.clone();
        let chat = if number % 2 == 0 { Chat::of(&format!("s{}", number / 4)) } else { Chat::new() };
        clients.spawn(async move { Ok(chat.streamed().send(&client, replica).await?.status) });
    }
    Ok(clients)
}

async fn a_burst_never_exceeds_the_limit_and_reaches_it(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind)
        .replicas(3)
        .engines(3)
        .engine_args(&["--ttft-ms", "20", "--token-gap-ms", "5", "--tokens", "4"])
        .option("max_concurrency", "8")
        .option("max_waiting", "200")
        .option("queue_timeout", "60s")
        .start()
        .await?;

    // Held engines let the burst pile up: the limit is reached and stays reached.
    for engine in &cluster.engines {
        engine.hold().await?;
    }
    let mut clients = burst(&cluster)?;
    let full = || async {
        let mut now = 0;
        for engine in &cluster.engines {
            now += engine.stats().await?.in_flight;
        }
        Ok((now == 3 * PER_ENGINE).then_some(()))
    };
    until("24 requests in flight", PATIENCE, full).await?;
    cluster.until_waiting(u32::try_from(CLIENTS)? - 24).await?;
    for engine in &cluster.engines {
        engine.release().await?;
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status??, StatusCode::OK, "all are served in the end");
    }
    let mut served = 0;
    for engine in &cluster.engines {
        let stats = engine.stats().await?;
        assert_eq!(stats.max_in_flight, PER_ENGINE, "the limit is reached, never exceeded");
        served += stats.completed_total;
    }
    assert_eq!(served, CLIENTS as u64);
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn own_limits_of_backends_hold(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind)
        .replicas(2)
        .engines(2)
        .engine_args(&["--ttft-ms", "10"])
        .option("max_concurrency", "6")
        .option("max_waiting", "200")
        .option("queue_timeout", "60s")
        .start()
        .await?;
    let small = cluster.engines[0].address().to_string();
    cluster.ctl()?.ok(&["backend", "set", "chat", &small, "--max-concurrency", "2"]).await?;
    let mut clients = burst(&cluster)?;
    while let Some(status) = tokio::time::timeout(Duration::from_secs(60), clients.join_next()).await? {
        assert_eq!(status??, StatusCode::OK);
    }
    assert_eq!(cluster.engines[0].stats().await?.max_in_flight, 2);
    assert_eq!(cluster.engines[1].stats().await?.max_in_flight, 6);
    cluster.finish()
}
