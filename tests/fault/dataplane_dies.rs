//! A replica dies: its own streams end, its leases come back within the lease TTL, nobody else notices.

use std::time::{Duration, Instant};

use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::process::Signal;
use router_tests::raw::RawClient;
use router_tests::traffic::{Outcome, Traffic};

router_tests::on_both_databases!(
    its_leases_come_back_within_the_ttl,
    traffic_on_the_others_goes_on,
    a_frozen_replica_loses_its_leases_and_comes_back,
);

const TTL: Duration = Duration::from_secs(2);

async fn start(kind: DatabaseKind, engine_args: &[&str]) -> anyhow::Result<Cluster> {
    let builder = Cluster::builder(kind).replicas(2).engines(1).engine_args(engine_args);
    let mut cluster = builder.control_plane_args(&["--lease-ttl", "2s"]).start().await?;
    for piece in ["replica", "lease", "link", "control plane", "heartbeat"] {
        cluster.expect_log(piece);
    }
    Ok(cluster)
}

async fn its_leases_come_back_within_the_ttl(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = start(kind, &["--token-gap-ms", "100", "--tokens", "100000"]).await?;
    let mut streams = Vec::new();
    for number in 0..5 {
        // Three by the replica that dies, two by the other.
        let replica = cluster.replica(usize::from(number >= 3))?;
        let mut stream = RawClient::send(replica, &Chat::of(&format!("s{number}")).streamed()).await?;
        stream.read_until("data: ").await?;
        streams.push(stream);
    }
    cluster.until_in_flight(5).await?;
    // The control: without a death nothing comes back, TTL or not.
    let all_held = || async { Ok(cluster.in_flight().await? == 5) };
    throughout("all five are held", TTL + Duration::from_secs(1), all_held).await?;

    let died = Instant::now();
    cluster.replicas[0].kill9().await?;
    cluster.until_in_flight(2).await?;
    assert!(died.elapsed() < TTL + Duration::from_secs(3), "it took {:?}", died.elapsed());
    for stream in streams.iter_mut().take(3) {
        assert!(!stream.read_to_end().await?.contains("[DONE]"), "its own streams ended");
    }
    let still_two = || async { Ok(cluster.in_flight().await? == 2) };
    throughout("the other's leases stay", TTL * 2, still_two).await?;
    let before = streams[4].received().len();
    let look = || async { Ok((cluster.engines[0].stats().await?.in_flight == 2).then_some(())) };
    until("the engine is rid of the dead replica's requests", PATIENCE, look).await?;
    streams[4].read_until("data: ").await?;
    assert!(streams[4].received().len() >= before);
    cluster.finish()
}

async fn traffic_on_the_others_goes_on(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = start(kind, &["--ttft-ms", "5"]).await?;
    let homes = cluster.admin().await?.bindings().await?;
    assert!(homes.is_empty());
    let traffic = Traffic::start(8, &[cluster.replica(1)?], &Chat::new());
    traffic.until_more(40).await?;
    cluster.replicas[0].kill9().await?;
    traffic.until_more(100).await?;
    cluster.replicas[0].restart().await?;
    cluster.replicas[0].ready().await?;
    cluster.until_connected(2).await?;
    traffic.until_more(40).await?;
    let outcomes = traffic.stop().await?;
    let bad: Vec<String> = outcomes.iter().filter(|outcome| !outcome.is_good()).map(Outcome::text).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let back = Chat::of("traffic-0").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    assert_eq!(back.mode(), "bound", "the new process knows every session at once");
    cluster.finish()
}

/// Frozen longer than the TTL, as a process under a debugger or on a stalled machine: it must not count for ever, and must
/// find its way back.
async fn a_frozen_replica_loses_its_leases_and_comes_back(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = start(kind, &["--token-gap-ms", "50", "--tokens", "100000"]).await?;
    let mut stream = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    stream.read_until("data: ").await?;
    cluster.until_in_flight(1).await?;
    cluster.replicas[0].signal(Signal::Stop).await?;
    cluster.until_in_flight(0).await?;
    cluster.replicas[0].signal(Signal::Continue).await?;
    cluster.until_connected(2).await?;
    let served = || async {
        let answer = Chat::new().max_tokens(1).send(&cluster.client, cluster.replica(0)?).await?;
        Ok(answer.status.is_success().then_some(()))
    };
    until("it serves again", PATIENCE, served).await?;
    drop(stream);
    cluster.until_in_flight(0).await?;
    let engine = || async { Ok((cluster.engines[0].stats().await?.in_flight == 0).then_some(())) };
    until("nothing is left at the engine", PATIENCE, engine).await?;
    cluster.finish()
}
