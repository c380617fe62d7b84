//! A drain takes a backend out under live traffic without one failed request; its sessions move and stay moved.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use router_tests::await_event::throughout;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use router_tests::traffic::{Outcome, Traffic};

router_tests::on_both_databases!(
    sessions_move_under_traffic_and_stay_moved,
    wait_returns_when_the_last_stream_has_ended,
    a_drain_outlives_a_restart_of_the_control_plane,
);

fn port(cluster: &Cluster, engine: usize) -> String {
    cluster.engines[engine].address().port().to_string()
}

/// The engine of each client's last answer.
fn last_peers(outcomes: &[Outcome]) -> BTreeMap<usize, String> {
    let peer = |outcome: &Outcome| outcome.answer.as_ref().map(|answer| answer.peer().to_owned()).unwrap_or_default();
    outcomes.iter().map(|outcome| (outcome.client, peer(outcome))).collect()
}

fn all_good(outcomes: &[Outcome]) {
    let bad: Vec<String> = outcomes.iter().filter(|outcome| !outcome.is_good()).map(Outcome::text).collect();
    assert!(bad.is_empty(), "{} of {} requests failed: {bad:#?}", bad.len(), outcomes.len());
}

async fn sessions_move_under_traffic_and_stay_moved(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(3).engine_args(&["--ttft-ms", "5"]).start().await?;
    let replicas = cluster.replica_addresses()?;
    let ctl = cluster.ctl()?;
    let drained = cluster.engines[0].address().to_string();

    let traffic = Traffic::start(12, &replicas, &Chat::new().streamed());
    traffic.until_more(60).await?;
    assert!(cluster.backend(0).await?.sessions > 0, "the engine to be drained has sessions");
    ctl.ok(&["drain", "--port", &port(&cluster, 0), "--wait"]).await?;
    assert_eq!(cluster.backend(0).await?.in_flight, 0, "--wait returns when nothing is in flight");
    let served_before = cluster.engines[0].stats().await?.requests_total;
    traffic.until_more(60).await?;
    let outcomes = traffic.stop().await?;
    all_good(&outcomes);
    assert_eq!(cluster.engines[0].stats().await?.requests_total, served_before, "nothing reaches a drained engine");
    let moved = outcomes.iter().flat_map(|outcome| &outcome.answer).filter(|answer| answer.mode() == "moved").count();
    assert!(moved > 0, "some sessions moved");
    let after = last_peers(&outcomes);
    assert!(after.values().all(|peer| *peer != drained));
    assert_eq!(cluster.backend(0).await?.sessions, 0, "every session that asked has moved");

    // Back in: new sessions use it, moved ones stay where they are.
    ctl.ok(&["undrain", "--port", &port(&cluster, 0)]).await?;
    let traffic = Traffic::start(12, &replicas, &Chat::new().streamed());
    traffic.until_more(60).await?;
    let outcomes = traffic.stop().await?;
    all_good(&outcomes);
    assert_eq!(last_peers(&outcomes), after, "nobody moves back");
    let newcomer = Chat::of("a new one").send(&cluster.client, replicas[0]).await?.ok()?;
    assert_eq!(newcomer.peer(), drained, "the engine with the fewest sessions takes new ones");
    cluster.finish()
}

async fn wait_returns_when_the_last_stream_has_ended(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    cluster.engines[0].hold().await?;
    let mut client = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    cluster.until_in_flight(1).await?;

    let ctl = cluster.ctl()?;
    let number = port(&cluster, 0);
    let drain = ["drain", "--port", number.as_str(), "--wait"];
    let mut wait = Box::pin(ctl.run(&drain));
    let early = tokio::time::timeout(Duration::from_millis(1500), &mut wait).await;
    assert!(early.is_err(), "it waits while the stream runs, but ended: {early:?}");
    assert!(cluster.backend(0).await?.condition.is_some_and(|condition| condition.draining));

    cluster.engines[0].release().await?;
    let released = Instant::now();
    wait.await?.ok()?;
    assert!(released.elapsed() < Duration::from_secs(10));
    let text = client.read_until("[DONE]").await?;
    assert!(text.starts_with("HTTP/1.1 200"), "the running stream went on to its end: {text}");
    cluster.finish()
}

async fn a_drain_outlives_a_restart_of_the_control_plane(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).engines(2).start().await?;
    cluster.expect_log("control plane");
    cluster.ctl()?.ok(&["drain", "--port", &port(&cluster, 0)]).await?;
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(2).await?;
    let is_drained = || async { Ok(cluster.backend(0).await?.condition.is_some_and(|condition| condition.draining)) };
    throughout("it is drained", Duration::from_millis(300), is_drained).await?;
    for number in 0..8 {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        assert_eq!(answer.peer(), cluster.engines[1].address().to_string());
    }
    cluster.finish()
}
