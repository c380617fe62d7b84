//! Where a new session goes, and why a session is where it is.

use std::collections::BTreeMap;

use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use serde_json::json;

router_tests::on_both_databases!(
    new_sessions_spread_evenly,
    a_new_session_goes_to_the_idle_engine,
    a_session_whose_engine_is_full_moves_and_stays,
    a_new_backend_moves_nobody,
    sessions_can_be_shown_and_forgotten,
    every_source_of_a_session_id_is_told,
);

async fn new_sessions_spread_evenly(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).replicas(2).engines(3).start().await?;
    let mut count = BTreeMap::new();
    for number in 0..30 {
        let chat = Chat::of(&format!("s{number}"));
        let answer = chat.send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        assert_eq!(answer.mode(), "new");
        *count.entry(answer.peer().to_owned()).or_insert(0) += 1;
        let again = chat.send(&cluster.client, cluster.replica((number + 1) % 2)?).await?.ok()?;
        assert_eq!((again.mode(), again.peer()), ("bound", answer.peer()));
    }
    assert_eq!(count.values().copied().collect::<Vec<_>>(), [10, 10, 10], "fewest bound sessions: {count:?}");
    cluster.finish()
}

async fn a_new_session_goes_to_the_idle_engine(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(2).start().await?;
    cluster.engines[0].hold().await?;
    cluster.engines[1].hold().await?;
    let busy = RawClient::send(cluster.replica(0)?, &Chat::of("busy")).await?;
    cluster.until_in_flight(1).await?;
    let mut clients = vec![busy];
    let taken = usize::from(cluster.backend(0).await?.in_flight == 0);
    let idle = 1 - taken;
    clients.push(RawClient::send(cluster.replica(1)?, &Chat::of("second")).await?);
    cluster.until_in_flight(2).await?;
    assert_eq!(cluster.backend(idle).await?.in_flight, 1, "one each");
    for engine in &cluster.engines {
        engine.release().await?;
    }
    for client in &mut clients {
        client.read_until("usage").await?;
    }
    cluster.finish()
}

async fn a_session_whose_engine_is_full_moves_and_stays(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(2).option("max_concurrency", "1").start().await?;
    let first = Chat::of("mover").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    let home = first.peer().to_owned();
    // The last answer is out a moment before its lease is back; the next wait must not count that one.
    cluster.until_in_flight(0).await?;
    cluster.engine_at(&home)?.hold().await?;
    let mut blocker = RawClient::send(cluster.replica(0)?, &Chat::of("mover").streamed()).await?;
    cluster.until_in_flight(1).await?;

    let moved = Chat::of("mover").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!(moved.mode(), "moved");
    assert_ne!(moved.peer(), home);
    cluster.engine_at(&home)?.release().await?;
    blocker.read_until("[DONE]").await?;
    cluster.until_in_flight(0).await?;
    let stays = Chat::of("mover").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    assert_eq!((stays.mode(), stays.peer()), ("bound", moved.peer()), "no moving back");
    let sessions = cluster.admin().await?.sessions().await?;
    assert_eq!((sessions.len(), sessions[0].moves), (1, 1));
    cluster.finish()
}

async fn a_new_backend_moves_nobody(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(3).start().await?;
    let (ctl, third) = (cluster.ctl()?, cluster.engines[2].address().to_string());
    ctl.ok(&["backend", "remove", "chat", &third]).await?;
    let mut homes = Vec::new();
    for number in 0..12 {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(0)?).await?.ok()?;
        assert_ne!(answer.peer(), third);
        homes.push(answer.peer().to_owned());
    }
    ctl.ok(&["backend", "add", "chat", &third, "--name", "gpu-3"]).await?;
    let is_there = || async {
        let backends = cluster.route().await?.backends;
        let is_up = |b: &router_proto::v1::BackendState| b.address == third && b.condition.is_none_or(|c| !c.unhealthy);
        Ok(backends.iter().any(is_up).then_some(()))
    };
    until("the new backend is healthy", PATIENCE, is_there).await?;
    for (number, home) in homes.iter().enumerate() {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(1)?).await?.ok()?;
        assert_eq!((answer.mode(), answer.peer()), ("bound", home.as_str()));
    }
    let newcomer = Chat::of("newcomer").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!(newcomer.peer(), "gpu-3", "the empty backend takes new sessions, under its name");
    cluster.finish()
}

async fn sessions_can_be_shown_and_forgotten(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(2).start().await?;
    let ctl = cluster.ctl()?;
    let answer = Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    let short = answer.header("x-routed-session").to_owned();
    assert_eq!(short.len(), 16, "the first 16 digits of the fingerprint");
    let list = ctl.json(&["session", "list"]).await?;
    assert_eq!(list["total"], 1, "{list}");
    let shown = ctl.json(&["session", "show", &short]).await?;
    assert_eq!(shown["backend"], answer.peer(), "{shown}");
    assert!(shown["fingerprint"].as_str().is_some_and(|text| text.starts_with(&short)), "{shown}");

    ctl.ok(&["session", "forget", "chat", &short, "--yes"]).await?;
    assert_eq!(cluster.admin().await?.sessions().await?.len(), 0);
    let again = Chat::of("s").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!(again.mode(), "new");
    let missing = ctl.run(&["session", "show", "0000000000000000"]).await?;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    cluster.finish()
}

async fn every_source_of_a_session_id_is_told(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let replica = cluster.replica(0)?;
    let ask = |extra: serde_json::Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let client = cluster.client.clone();
        async move { client.post(replica, "/v1/chat/completions", &body).await?.ok() }
    };
    let rows = [
        (json!({"metadata": {"session_id": "a"}}), "body.metadata.session_id"),
        (json!({"prompt_cache_key": "a"}), "body.prompt_cache_key"),
        (json!({"user": "a"}), "body.user"),
        (json!({"prompt_cache_key": "a", "metadata": {"session_id": "b"}}), "body.metadata.session_id"),
        (json!({"prompt_cache_key": "  "}), "none"),
        (json!({}), "none"),
    ];
    for (extra, source) in rows {
        let answer = ask(extra.clone()).await?;
        assert_eq!(answer.header("x-routed-source"), source, "{extra}");
        assert_eq!(answer.header("x-routed-session").is_empty(), source == "none", "{extra}");
    }
    let both = Chat::of("h").header("x-session-affinity", "first").send(&cluster.client, replica).await?.ok()?;
    assert_eq!(both.header("x-routed-source"), "header.x-session-affinity");
    let long = Chat::of(&"x".repeat(257)).send(&cluster.client, replica).await?.ok()?;
    assert_eq!(long.header("x-routed-source"), "none", "an id of more than 256 characters is none");
    cluster.finish()
}
