//! The entry point: bare `/v1/...`, bodies up to 64 MiB, and a body on its way holds a slot.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use router_tests::chat::Chat;
use router_tests::client::Client;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use tokio::task::JoinSet;

use super::gateway;

router_tests::on_both_databases!(a_slow_body_holds_one_slot_and_is_cut_when_it_stops);

router_tests::on_any_database!(
    the_preset_s_defaults_are_the_gateway_s,
    a_64_mib_body_is_held_once,
    a_refused_upload_is_told_so,
    uploads_that_wait_do_not_starve_those_that_hold_a_slot,
);

const MIB: usize = 1 << 20;

async fn the_preset_s_defaults_are_the_gateway_s() -> anyhow::Result<()> {
    let cluster = gateway(DatabaseKind::Sqlite).start().await?;
    let route = cluster.route().await?;
    assert!(route.is_default && route.preset == "gateway");
    let option = |name: &str| {
        let found = route.options.iter().find(|option| option.name == name);
        found.unwrap_or_else(|| panic!("an option {name}")).value.clone()
    };
    for (name, value) in [
        ("max_body_size", "64MiB"),
        ("upstream_timeout", "3h"),
        ("max_concurrency", "32"),
        ("max_waiting", "32"),
        ("queue_timeout", "5s"),
        ("max_sessions", "16384"),
        ("on_full", "refuse"),
        ("session_idle_ttl", "none"),
        ("health_failures", "1"),
        ("health_successes", "2"),
        ("model_context_limit", "none"),
        ("backend_managed_affinity", "false"),
    ] {
        assert_eq!(option(name), value, "{name}");
    }
    cluster.finish()
}

async fn a_slow_body_holds_one_slot_and_is_cut_when_it_stops(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = gateway(kind).engines(1).option("max_concurrency", "1").option("max_waiting", "0");
    let cluster = builder.replica_args(&["--body-timeout", "1s"]).start().await?;
    let body = Chat::new().body();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n", body.len());

    let mut slow = RawClient::connect(cluster.replica(0)?).await?;
    slow.write(head.as_bytes()).await?;
    slow.write(&body.as_bytes()[..10]).await?;
    cluster.until_reserved(1).await?;
    // The slot is taken for the whole fleet, before any engine has seen the request.
    let refused = Chat::new().send(&cluster.client, cluster.replica(1)?).await?;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
    assert_eq!(cluster.engines[0].stats().await?.requests_total, 0);
    // It stops sending: it is cut, and its slot is the next one's.
    let answer = slow.read_until("body_timeout").await?;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    cluster.until_reserved(0).await?;
    Chat::new().send(&cluster.client, cluster.replica(1)?).await?.ok()?;

    // The control: one that is slow and does not stop is served.
    let mut slow = RawClient::connect(cluster.replica(0)?).await?;
    slow.write(head.as_bytes()).await?;
    for piece in body.as_bytes().chunks(body.len().div_ceil(4)) {
        tokio::time::sleep(Duration::from_millis(400)).await;
        slow.write(piece).await?;
    }
    let answer = slow.read_until("usage").await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // One that leaves in the middle gives its slot back at once.
    let mut leaver = RawClient::connect(cluster.replica(1)?).await?;
    leaver.write(head.as_bytes()).await?;
    cluster.until_reserved(1).await?;
    drop(leaver);
    cluster.until_reserved(0).await?;
    cluster.finish()
}

async fn a_64_mib_body_is_held_once() -> anyhow::Result<()> {
    let cluster = gateway(DatabaseKind::Sqlite).engines(1).replicas(1).start().await?;
    let address = cluster.replica(0)?;
    Chat::new().send(&cluster.client, address).await?.ok()?;
    let before = cluster.replicas[0].peak_memory()?;
    let body = vec![b'x'; 64 * MIB];
    let send = |body: Vec<u8>| cluster.client.send(address, Method::POST, "/v1/echo", &[], body);
    let echo = send(body.clone()).await?.ok()?.json()?;
    assert_eq!(echo["body_bytes"], 64 * MIB);
    let more = usize::try_from(cluster.replicas[0].peak_memory()? - before)?;
    assert!(more < 64 * MIB + 24 * MIB, "more than one copy: {} MiB", more / MIB);
    assert!(more > 32 * MIB, "the control: the body was there ({} MiB)", more / MIB);

    // The same in pieces of a length that nobody stated.
    let mut client = RawClient::connect(address).await?;
    client.write(b"POST /v1/echo HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    for piece in body.chunks(MIB) {
        client.write(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
        client.write(piece).await?;
        client.write(b"\r\n").await?;
    }
    client.write(b"0\r\n\r\n").await?;
    let echo = client.read_until("body_bytes").await?;
    assert!(echo.contains(&(64 * MIB).to_string()), "{echo}");
    let more = usize::try_from(cluster.replicas[0].peak_memory()? - before)?;
    assert!(more < 64 * MIB + 24 * MIB, "more than one copy: {} MiB", more / MIB);

    let too_large = [body, vec![b'x']].concat();
    let mut client = RawClient::connect(address).await?;
    client
        .write(format!("POST /v1/echo HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n", too_large.len()).as_bytes())
        .await?;
    let refused = client.read_until("body_too_large").await?;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    cluster.finish()
}

/// All on one HTTP/2 connection: what the waiting ones have sent and nobody reads must not fill it up.
async fn uploads_that_wait_do_not_starve_those_that_hold_a_slot() -> anyhow::Result<()> {
    let builder = gateway(DatabaseKind::Sqlite).engines(1).replicas(1).option("max_concurrency", "2");
    let cluster = builder.option("queue_timeout", "60s").start().await?;
    let client = Client::h2c();
    let started = Instant::now();
    let mut uploads = JoinSet::new();
    for _ in 0..12 {
        let (client, address) = (client.clone(), cluster.replica(0)?);
        uploads.spawn(async move { client.send(address, Method::POST, "/v1/echo", &[], vec![b'x'; 3 * MIB]).await });
    }
    while let Some(answer) = uploads.join_next().await {
        assert_eq!(answer??.ok()?.json()?["body_bytes"], 3 * MIB);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "no timeout had to help: {:?}", started.elapsed());
    cluster.finish()
}

async fn a_refused_upload_is_told_so() -> anyhow::Result<()> {
    let builder = gateway(DatabaseKind::Sqlite).engines(1).option("max_concurrency", "1").option("max_waiting", "0");
    let cluster = builder.start().await?;
    cluster.engines[0].hold().await?;
    let mut busy = RawClient::send(cluster.replica(0)?, &Chat::new()).await?;
    cluster.until_in_flight(1).await?;
    // A client that writes its whole body before it reads anything, as most do.
    let body = vec![b'x'; 20 * MIB];
    let refused = cluster.client.send(cluster.replica(1)?, Method::POST, "/v1/echo", &[], body).await?;
    assert_eq!((refused.status, refused.error_code()?.as_str()), (StatusCode::TOO_MANY_REQUESTS, "queue_full"));
    cluster.engines[0].release().await?;
    busy.read_until("usage").await?;
    cluster.finish()
}
