//! kill -9 of the control plane: no binding is lost, no limit exceeded, no running stream harmed.

use std::collections::BTreeMap;

use anyhow::Context as _;
use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use router_tests::traffic::Traffic;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

router_tests::on_both_databases!(
    no_binding_is_lost,
    running_streams_are_unharmed_and_still_counted,
    no_limit_is_exceeded_under_load,
    a_replica_that_starts_first_waits_for_it,
);

/// Replicas say loudly that they lost the control plane.
fn expect_outage(cluster: &mut Cluster) {
    for piece in ["control plane", "link", "coordinat", "watch", "static"] {
        cluster.expect_log(piece);
    }
}

async fn kill_and_restart(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(cluster.replicas.len()).await?;
    cluster.until_ready().await
}

async fn no_binding_is_lost(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).replicas(2).engines(3).start().await?;
    expect_outage(&mut cluster);
    let mut homes = BTreeMap::new();
    for round in 0..3 {
        // New sessions, and the kill comes right after the last answer: a grant is durable before it is sent.
        for number in 0..15 {
            let session = format!("round {round}, session {number}");
            let answer = Chat::of(&session).send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
            homes.insert(session, answer.peer().to_owned());
        }
        // The list is read after the restart and compared with what clients saw, never with the dead process.
        kill_and_restart(&mut cluster).await?;
        cluster.until_healthy().await?;
        let bindings = cluster.admin().await?.bindings().await?;
        assert_eq!(bindings.len(), homes.len());
        for (number, (session, home)) in homes.iter().enumerate() {
            let answer = Chat::of(session).send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
            assert_eq!((answer.mode(), answer.peer()), ("bound", home.as_str()), "{session}");
        }
        assert_eq!(cluster.admin().await?.bindings().await?, bindings, "asking changed nothing");
    }
    let used: std::collections::BTreeSet<&String> = homes.values().collect();
    assert_eq!(used.len(), 3, "the control: sessions live on all three, so 'the same one' is not chance");
    cluster.finish()
}

async fn running_streams_are_unharmed_and_still_counted(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder =
        Cluster::builder(kind).replicas(2).engines(2).engine_args(&["--token-gap-ms", "100", "--tokens", "80"]);
    let mut cluster = builder.start().await?;
    expect_outage(&mut cluster);
    let mut streams = Vec::new();
    for number in 0..6 {
        let chat = Chat::of(&format!("s{number}")).streamed();
        let mut stream = RawClient::send(cluster.replica(number % 2)?, &chat).await?;
        stream.read_until("data: ").await?;
        streams.push(stream);
    }
    cluster.until_in_flight(6).await?;
    kill_and_restart(&mut cluster).await?;
    assert_eq!(cluster.in_flight().await?, 6, "replicas report what they hold");
    let mut events = Vec::new();
    for stream in &mut streams {
        let whole = stream.read_until("data: [DONE]").await?;
        assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
        events.push(whole.matches("data: {").count());
    }
    cluster.until_in_flight(0).await?;
    cluster.engines[0].set(&json!({"token_gap_ms": 0})).await?;
    let direct = Chat::new().streamed().send(&cluster.client, cluster.engines[0].address()).await?.ok()?;
    let whole = direct.text().matches("data: {").count();
    assert_eq!(events, [whole; 6], "each client got every event of its stream");
    for engine in &cluster.engines {
        assert_eq!(engine.stats().await?.aborted_total, 0, "no stream was cut at the engine either");
    }
    cluster.finish()
}

async fn no_limit_is_exceeded_under_load(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).replicas(3).engines(2).engine_args(&["--ttft-ms", "60", "--tokens", "2"]);
    let builder = builder.option("max_concurrency", "4").option("max_waiting", "100").option("queue_timeout", "20s");
    let mut cluster = builder.start().await?;
    expect_outage(&mut cluster);
    let traffic = Traffic::start(30, &cluster.replica_addresses()?, &Chat::new());
    for _ in 0..2 {
        traffic.until_more(60).await?;
        kill_and_restart(&mut cluster).await?;
    }
    traffic.until_more(60).await?;
    let outcomes = traffic.stop().await?;
    for engine in &cluster.engines {
        let stats = engine.stats().await?;
        assert_eq!(stats.max_in_flight, 4, "never more than the limit, before, during and after; and it was reached");
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.is_good()) {
        let answer = outcome.answer.as_ref().map_err(|error| anyhow::anyhow!("no answer at all: {error}"))?;
        let is_refusal = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&answer.status);
        assert!(is_refusal, "{}", outcome.text());
        assert!(!answer.header("retry-after").is_empty(), "{}", outcome.text());
    }
    let good = outcomes.iter().filter(|outcome| outcome.is_good()).count();
    assert!(good >= 150, "{good} of {} were served", outcomes.len());
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn a_replica_that_starts_first_waits_for_it(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).replicas(1).start().await?;
    expect_outage(&mut cluster);
    cluster.control_plane.kill9().await?;
    cluster.replicas[0].kill9().await?;
    cluster.replicas[0].restart().await?;
    let admin = cluster.replica_admin(0)?;
    cluster.client.get(admin, "/healthz").await?.ok()?;
    let ready = cluster.client.get(admin, "/readyz").await?;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE, "it knows no routes yet");
    let refused = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "never a 404 or 401: {}", refused.text());
    assert!(!refused.header("retry-after").is_empty());

    // It goes on trying: somebody else at the control plane's address hears it twice, and hangs up.
    let address = cluster.control_plane.address("grpc")?;
    let bind = || async { Ok(TcpListener::bind(address).await.ok()) };
    let stranger = until("the control plane's port can be had", PATIENCE, bind).await?;
    for _ in 0..2 {
        drop(timeout(PATIENCE, stranger.accept()).await.context("the replica tries")??);
    }
    drop(stranger);
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.replicas[0].ready().await?;
    cluster.until_ready().await?;
    let served = || async {
        let answer = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
        Ok(answer.status.is_success().then_some(()))
    };
    until("it serves", PATIENCE, served).await?;
    cluster.finish()
}
