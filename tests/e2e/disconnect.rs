//! A client that goes away gives back everything at once: its place in the queue, its slot, the engine's work.

use std::time::{Duration, Instant};

use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;

router_tests::on_both_databases!(
    while_it_waits_for_a_slot,
    before_the_head,
    in_the_middle_of_a_stream,
    before_an_answer_that_is_not_streamed,
    without_a_disconnect_the_slot_stays_held,
);

/// The promise is 100 ms; busy test machines get more. A lease that waits for its TTL would take 10 s.
const SOON: Duration = Duration::from_secs(3);

async fn one_slot(kind: DatabaseKind, engine_args: &[&str]) -> anyhow::Result<Cluster> {
    let builder = Cluster::builder(kind).engines(1).engine_args(engine_args);
    builder.option("max_concurrency", "1").option("queue_timeout", "60s").start().await
}

/// Waits until the engine has seen its client leave, then until the lease is back; both must come soon.
async fn gone_soon(cluster: &Cluster, left: Instant) -> anyhow::Result<()> {
    let engine = &cluster.engines[0];
    let look = || async { Ok((engine.stats().await?.aborted_total == 1).then_some(())) };
    until("the engine sees the client leave", PATIENCE, look).await?;
    cluster.until_in_flight(0).await?;
    assert!(left.elapsed() < SOON, "it took {:?}", left.elapsed());
    Ok(())
}

async fn while_it_waits_for_a_slot(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = one_slot(kind, &[]).await?;
    cluster.engines[0].hold().await?;
    let mut holder = RawClient::send(cluster.replica(0)?, &Chat::new()).await?;
    cluster.until_in_flight(1).await?;
    let waiter = RawClient::send(cluster.replica(1)?, &Chat::new()).await?;
    cluster.until_waiting(1).await?;

    let left = Instant::now();
    drop(waiter);
    cluster.until_waiting(0).await?;
    assert!(left.elapsed() < SOON, "it took {:?}", left.elapsed());

    cluster.engines[0].release().await?;
    holder.read_until("\"usage\"").await?;
    cluster.until_in_flight(0).await?;
    assert_eq!(cluster.engines[0].stats().await?.requests_total, 1, "the one that left never reached the engine");
    cluster.finish()
}

async fn before_the_head(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = one_slot(kind, &[]).await?;
    cluster.engines[0].hold().await?;
    let client = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    cluster.until_in_flight(1).await?;
    let look = || async { Ok((cluster.engines[0].stats().await?.in_flight == 1).then_some(())) };
    until("the request is at the engine", PATIENCE, look).await?;
    let left = Instant::now();
    drop(client);
    gone_soon(&cluster, left).await?;
    cluster.finish()
}

async fn in_the_middle_of_a_stream(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = one_slot(kind, &["--token-gap-ms", "100", "--tokens", "1000"]).await?;
    let mut client = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    client.read_until("data: ").await?;
    cluster.until_in_flight(1).await?;
    let left = Instant::now();
    drop(client);
    gone_soon(&cluster, left).await?;
    // The slot can be used: another client gets it.
    Chat::new().max_tokens(1).send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    cluster.finish()
}

async fn before_an_answer_that_is_not_streamed(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = one_slot(kind, &["--ttft-ms", "120000"]).await?;
    let client = RawClient::send(cluster.replica(0)?, &Chat::new()).await?;
    cluster.until_in_flight(1).await?;
    let look = || async { Ok((cluster.engines[0].stats().await?.in_flight == 1).then_some(())) };
    until("the request is at the engine", PATIENCE, look).await?;
    let left = Instant::now();
    drop(client);
    gone_soon(&cluster, left).await?;
    cluster.finish()
}

/// The control: a client that stays keeps its slot, so the tests above saw the disconnect and nothing else.
async fn without_a_disconnect_the_slot_stays_held(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = one_slot(kind, &["--token-gap-ms", "50", "--tokens", "100000"]).await?;
    let mut client = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    client.read_until("data: ").await?;
    cluster.until_in_flight(1).await?;
    let is_held = || async {
        let stats = cluster.engines[0].stats().await?;
        Ok(cluster.in_flight().await? == 1 && stats.in_flight == 1 && stats.aborted_total == 0)
    };
    throughout("the slot is held", SOON, is_held).await?;
    drop(client);
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
