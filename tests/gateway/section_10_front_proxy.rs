//! What a front proxy must keep, proved with the files that the documentation shows: events as they come, the client's hanging
//! up, the key; and no credentials or bodies in its log.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::client::timed_chunks;
use router_tests::database::DatabaseKind;
use router_tests::front_proxy::{FrontProxy, FrontProxyKind};
use router_tests::raw::RawClient;
use serde_json::json;

use super::gateway;

router_tests::on_any_database!(nginx_keeps_what_it_must, haproxy_keeps_what_it_must);

async fn nginx_keeps_what_it_must() -> anyhow::Result<()> {
    keeps_what_it_must(FrontProxyKind::Nginx).await
}

async fn haproxy_keeps_what_it_must() -> anyhow::Result<()> {
    keeps_what_it_must(FrontProxyKind::Haproxy).await
}

async fn keeps_what_it_must(kind: FrontProxyKind) -> anyhow::Result<()> {
    let builder = gateway(DatabaseKind::Sqlite).engines(1).engine_args(&["--token-gap-ms", "100", "--tokens", "10"]);
    let cluster = builder.option("auth", "required").start().await?;
    let secret = cluster.add_key("client").await?;
    let front = FrontProxy::start(kind, &cluster.replica_addresses()?, cluster.folder()).await?;

    // Events as they come: ten tokens, 100 ms apart, do not arrive together.
    let words = "words-that-nobody-logs";
    let chat = Chat::of("s").key(&secret).streamed().messages(vec![json!({"role": "user", "content": words})]);
    let mut response = chat.open(&cluster.client, front.address()).await?;
    assert_eq!(response.status(), StatusCode::OK);
    let chunks = timed_chunks(response.body_mut(), Instant::now()).await?;
    let spread = chunks.last().expect("events").0.saturating_sub(chunks.first().expect("events").0);
    assert!(chunks.len() > 5 && spread > Duration::from_millis(500), "{} pieces in {spread:?}", chunks.len());
    // The key passes, and without it nothing does.
    let keyless = Chat::of("s").send(&cluster.client, front.address()).await?;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED);

    // A client that leaves ends its request on the engine.
    cluster.engines[0].reset().await?;
    let mut leaver = RawClient::send(front.address(), &chat).await?;
    leaver.read_until("data: ").await?;
    drop(leaver);
    let left = || async { Ok((cluster.engines[0].stats().await?.aborted_total == 1).then_some(())) };
    until("the engine sees the client leave", PATIENCE, left).await?;
    cluster.until_in_flight(0).await?;

    let logged = || async { Ok(Some(front.logs()).filter(|logs| logs.contains("/v1/chat/completions"))) };
    let logs = until("the access log has the requests", PATIENCE, logged).await?;
    assert!(!logs.contains(&secret) && !logs.contains(words), "{logs}");
    cluster.finish()
}
