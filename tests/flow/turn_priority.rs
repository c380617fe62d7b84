//! Under load, first turns are refused first while warm sessions fit; `_session_status` shows it.

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::{Tasks, send, toggle};

router_tests::on_both_databases!(first_turns_are_refused_first_while_warm_sessions_fit);

fn turn(session: &str, turn: u32) -> Chat {
    let header = json!({"session_id": session, "turn": turn}).to_string();
    Chat::new().header("x-phanrouter-session", &header)
}

async fn release(cluster: &Cluster, tasks: &mut Tasks) -> anyhow::Result<()> {
    for engine in &cluster.engines {
        engine.release().await?;
    }
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }
    cluster.until_in_flight(0).await
}

async fn first_turns_are_refused_first_while_warm_sessions_fit(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut builder = Cluster::builder(kind).engines(2);
    for (name, value) in
        [("session_prio", "true"), ("session_prio_r_new", "0.5"), ("max_concurrency", "4"), ("max_waiting", "0")]
    {
        builder = builder.option(name, value);
    }
    let cluster = builder.start().await?;
    for engine in &cluster.engines {
        engine.hold().await?;
    }
    // Eight slots; first turns may fill four of them, by whichever replica.
    let mut tasks = Tasks::new();
    for number in 0..4 {
        send(&cluster, number % 2, turn(&format!("new {number}"), 1), &mut tasks)?;
    }
    cluster.until_in_flight(4).await?;
    for replica in 0..2 {
        let refused = turn("one more", 1).send(&cluster.client, cluster.replica(replica)?).await?;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
        assert_eq!(refused.error_code()?, "queue_full");
    }
    for number in 0..3 {
        send(&cluster, number % 2, turn(&format!("warm {number}"), 40), &mut tasks)?;
    }
    // A request without the header counts as warm.
    send(&cluster, 1, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(8).await?;
    let full = turn("warm too", 40).send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(full.status, StatusCode::TOO_MANY_REQUESTS, "full is full");
    release(&cluster, &mut tasks).await?;

    let page = cluster.client.get(cluster.replica_admin(1)?, "/chat/_session_status").await?.ok()?.json()?;
    let buckets = page["table"].as_array().cloned().unwrap_or_default();
    let counts: Vec<_> =
        buckets.iter().map(|bucket| (bucket["admits"].as_u64(), bucket["refusals"].as_u64())).collect();
    assert_eq!(counts.first(), Some(&(Some(4), Some(2))), "{page}");
    assert_eq!(counts.last(), Some(&(Some(3), Some(1))), "{page}");
    assert_eq!(page["no_header"]["admits"], 1, "{page}");
    assert!(buckets[0]["ptok"].as_u64().is_some_and(|tokens| tokens > 0), "{page}");

    // The header's id is the session.
    let answer = turn("new 0", 2).send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    assert_eq!((answer.mode(), answer.header("x-routed-source")), ("bound", "header.x-phanrouter-session"));

    // The control: switched off, first turns fill everything, and the header says nothing.
    toggle(&cluster, &["session_prio", "off"]).await?;
    let source = || async {
        let answer = turn("new 0", 3).send(&cluster.client, cluster.replica(1)?).await?.ok()?;
        Ok((answer.header("x-routed-source") == "none").then_some(()))
    };
    router_tests::await_event::until("the header means nothing", router_tests::await_event::PATIENCE, source).await?;
    for engine in &cluster.engines {
        engine.hold().await?;
    }
    for number in 0..8 {
        send(&cluster, number % 2, turn(&format!("newer {number}"), 1), &mut tasks)?;
    }
    cluster.until_in_flight(8).await?;
    release(&cluster, &mut tasks).await?;
    cluster.finish()
}
