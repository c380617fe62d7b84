//! When every engine is full a request waits, for a bounded time in a bounded queue; each refusal says what to do.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use tokio::task::JoinSet;

router_tests::on_both_databases!(
    a_full_queue_refuses_at_once,
    a_wait_ends_at_the_queue_timeout,
    a_waiter_gets_the_slot_that_becomes_free,
    no_healthy_backend_is_503,
);

/// One engine with one slot, held.
async fn full_cluster(kind: DatabaseKind, max_waiting: &str, queue_timeout: &str) -> anyhow::Result<Cluster> {
    let cluster = Cluster::builder(kind)
        .engines(1)
        .option("max_concurrency", "1")
        .option("max_waiting", max_waiting)
        .option("queue_timeout", queue_timeout)
        .start()
        .await?;
    cluster.engines[0].hold().await?;
    Ok(cluster)
}

fn send(cluster: &Cluster, replica: usize, tasks: &mut JoinSet<anyhow::Result<Answer>>) -> anyhow::Result<()> {
    let (client, address) = (cluster.client.clone(), cluster.replica(replica)?);
    tasks.spawn(async move { Chat::new().send(&client, address).await });
    Ok(())
}

async fn a_full_queue_refuses_at_once(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = full_cluster(kind, "2", "30s").await?;
    let mut tasks = JoinSet::new();
    send(&cluster, 0, &mut tasks)?;
    cluster.until_in_flight(1).await?;
    // The queue is one for the fleet: one waiter comes by each replica.
    send(&cluster, 0, &mut tasks)?;
    send(&cluster, 1, &mut tasks)?;
    cluster.until_waiting(2).await?;

    let asked = Instant::now();
    let refused = Chat::new().send(&cluster.client, cluster.replica(1)?).await?;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.error_code()?, "queue_full");
    assert!(asked.elapsed() < Duration::from_secs(10), "at once, not after the queue timeout");

    // A refusal has no side effect, and the waiters are served.
    cluster.until_waiting(2).await?;
    cluster.engines[0].release().await?;
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }
    cluster.until_in_flight(0).await?;
    assert_eq!(cluster.engines[0].stats().await?.max_in_flight, 1);
    cluster.finish()
}

async fn a_wait_ends_at_the_queue_timeout(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = full_cluster(kind, "8", "700ms").await?;
    let mut holder = JoinSet::new();
    send(&cluster, 0, &mut holder)?;
    cluster.until_in_flight(1).await?;

    let asked = Instant::now();
    let refused = Chat::of("late").send(&cluster.client, cluster.replica(1)?).await?;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(refused.error_code()?, "queue_timeout");
    assert!(asked.elapsed() >= Duration::from_millis(650), "it waited for its whole time: {:?}", asked.elapsed());
    assert_eq!(cluster.route().await?.waiting, 0);

    cluster.engines[0].release().await?;
    while let Some(answer) = holder.join_next().await {
        answer??.ok()?;
    }
    cluster.finish()
}

async fn a_waiter_gets_the_slot_that_becomes_free(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = full_cluster(kind, "8", "60s").await?;
    let mut tasks = JoinSet::new();
    for number in 0..9 {
        send(&cluster, number % 2, &mut tasks)?;
    }
    cluster.until_waiting(8).await?;
    cluster.engines[0].release().await?;
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }
    let stats = cluster.engines[0].stats().await?;
    assert_eq!((stats.max_in_flight, stats.completed_total), (1, 9), "one after the other, none lost");
    cluster.finish()
}

async fn no_healthy_backend_is_503(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(2).start().await?;
    cluster.ctl()?.ok(&["drain", "--route", "chat"]).await?;
    let refused = Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(refused.error_code()?, "no_backend");
    assert_eq!(cluster.admin().await?.bindings().await?.len(), 0, "a refusal binds nothing");

    cluster.ctl()?.ok(&["undrain", "--route", "chat"]).await?;
    Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    cluster.finish()
}
