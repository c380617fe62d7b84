//! SIGTERM ends a process in order: running streams finish, nothing new is taken, the exit code is 0. A second one ends
//! it at once.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::process::Signal;
use router_tests::raw::RawClient;

router_tests::on_both_databases!(
    a_replica_finishes_its_streams,
    the_grace_period_ends_them,
    a_second_signal_ends_it_at_once,
    everything_stops_cleanly_when_idle,
);

async fn a_replica_finishes_its_streams(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster =
        Cluster::builder(kind).engines(1).engine_args(&["--token-gap-ms", "100", "--tokens", "20"]).start().await?;
    let mut stream = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    stream.read_until("data: ").await?;
    let admin = cluster.replica_admin(0)?;
    cluster.replicas[0].signal(Signal::Term).await?;
    let not_ready = || async {
        // Not ready any more, or already gone.
        let answer = cluster.client.get(admin, "/readyz").await;
        Ok(answer.map_or(true, |answer| answer.status == StatusCode::SERVICE_UNAVAILABLE).then_some(()))
    };
    until("the replica says that it is not ready", PATIENCE, not_ready).await?;
    let whole = stream.read_until("data: [DONE]").await?;
    assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    let status = cluster.replicas[0].ended(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(0), "{status}");
    cluster.until_in_flight(0).await?;
    Chat::of("s").max_tokens(1).send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    cluster.finish()
}

async fn the_grace_period_ends_them(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).engines(1).engine_args(&["--token-gap-ms", "50", "--tokens", "100000"]);
    let mut cluster = builder.replica_args(&["--grace", "1s"]).start().await?;
    cluster.expect_log("grace");
    let mut stream = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    stream.read_until("data: ").await?;
    let status = cluster.replicas[0].sigterm(Duration::from_secs(15)).await?;
    assert!(status.code().is_some(), "it ended by itself: {status}");
    assert!(!stream.read_to_end().await?.contains("[DONE]"), "the stream was cut");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn a_second_signal_ends_it_at_once(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).engines(1).engine_args(&["--token-gap-ms", "50", "--tokens", "100000"]);
    let mut cluster = builder.start().await?;
    cluster.expect_log("signal");
    let mut stream = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    stream.read_until("data: ").await?;
    cluster.replicas[0].signal(Signal::Term).await?;
    let early = cluster.replicas[0].ended(Duration::from_millis(700)).await;
    assert!(early.is_err(), "the control: the first signal waits for the stream");
    let second = Instant::now();
    cluster.replicas[0].signal(Signal::Interrupt).await?;
    let status = cluster.replicas[0].ended(Duration::from_secs(10)).await?;
    assert!(second.elapsed() < Duration::from_secs(5));
    assert_ne!(status.code(), Some(0), "scripts can tell it from an orderly end");
    drop(stream);
    cluster.finish()
}

async fn everything_stops_cleanly_when_idle(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).start().await?;
    Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    for replica in &mut cluster.replicas {
        assert_eq!(replica.sigterm(Duration::from_secs(10)).await?.code(), Some(0));
    }
    assert_eq!(cluster.control_plane.sigterm(Duration::from_secs(10)).await?.code(), Some(0));
    for engine in &mut cluster.engines {
        assert_eq!(engine.process.sigterm(Duration::from_secs(10)).await?.code(), Some(0));
    }
    cluster.finish()
}
