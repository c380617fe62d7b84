//! What the control plane learns of an answer while it passes and once it has passed (limits.md §3, §4).

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::{Backend, Wire};
use super::client::{connect, post};
use super::control::{Control, route};
use super::replica::Replica;

const USAGE: &str =
    r#"{"usage":{"prompt_tokens":50,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":48}}}"#;

async fn started() -> (Backend, Control, Replica, Wire) {
    let backend = Backend::start().await;
    let mut chat = route("chat", &[("tps_min_decode_s", "0s")]);
    chat.backends = vec![v1::Backend { address: backend.addr.clone(), ..Default::default() }];
    let mut control = Control::start(vec![chat]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let client = connect(replica.addr).await;
    (backend, control, replica, client)
}

fn counts(release: &v1::Release) -> (Option<u32>, Option<u32>, Option<u32>) {
    (release.tokens, release.prompt_tokens, release.cached_tokens)
}

#[tokio::test]
async fn limits_3_a_stream_s_beginning_is_told_at_once_and_once() {
    let (backend, mut control, replica, mut client) = started().await;
    client.write(post("/v1/x", &[], "{}")).await;
    let (mut upstream, _) = backend.request().await;
    control.acquire().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.head().await;
    assert!(control.heartbeat().await.is_empty(), "headers are no first chunk");
    upstream.write("3\r\none\r\n").await;
    client.until("one").await;
    let first_chunk = control.first_chunk().await;
    assert_eq!((first_chunk.lease, first_chunk.route.as_str()), (100, "chat"));
    assert!(first_chunk.ttft_us > 0);
    upstream.write(format!("3\r\ntwo\r\n{:x}\r\n{USAGE}\r\n0\r\n\r\n", USAGE.len())).await;
    client.until("0\r\n\r\n").await;
    let release = control.release().await;
    assert_eq!((release.lease, release.http_status, release.outcome()), (100, 200, v1::Outcome::Complete));
    assert_eq!(counts(&release), (Some(20), Some(50), Some(48)));
    let ttft_ms = u64::from(release.ttft_ms.unwrap());
    assert_eq!(ttft_ms, first_chunk.ttft_us / 1000, "the same moment");
    let metrics = replica.metrics().await;
    let labels = format!(r#"{{route="chat",backend="{}"}}"#, backend.addr);
    for (name, value) in [
        ("ttft_seconds_count", 1),
        ("tokens_per_second_count", 1),
        ("prompt_tokens_total", 50),
        ("cached_tokens_total", 48),
        ("completion_tokens_total", 20),
    ] {
        let line = format!("router_{name}{labels} {value}\n");
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn limits_3_and_4_what_is_no_sample() {
    let (backend, mut control, replica, mut client) = started().await;
    let all = (Some(20), Some(50), Some(48));
    let none = (None, None, None);
    for (status, kind, more, begins, expected) in [
        // The control.
        (200, "text/event-stream; charset=utf-8", "", true, all),
        (201, "application/x-EVENT-stream", "", true, all),
        (200, "application/json", "", false, all),
        (200, "application/vnd.x+json", "", false, all),
        (200, "text/plain", "", false, none),
        (200, "text/event-stream", "Content-Encoding: br\r\n", true, none),
        (200, "application/json", "Content-Encoding: gzip\r\n", false, none),
        (429, "text/event-stream", "", false, none),
        (400, "application/json", "", false, none),
        (500, "application/json", "", false, none),
    ] {
        client.write(post("/v1/x", &[], "{}")).await;
        let (mut upstream, _) = backend.request().await;
        let length = USAGE.len();
        upstream
            .write(format!(
                "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}Content-Length: {length}\r\n\r\n{USAGE}"
            ))
            .await;
        assert_eq!(client.message().await.text(), USAGE);
        let (_, acquire) = control.acquire().await;
        if begins {
            control.first_chunk().await;
        }
        let release = control.release().await;
        assert_eq!((release.http_status, counts(&release)), (status, expected), "{acquire:?} {kind} {more}");
        assert!(release.ttft_ms.is_some());
    }
    let metrics = replica.metrics().await;
    let labels = format!(r#"{{route="chat",backend="{}"}}"#, backend.addr);
    for (name, value) in [("ttft_seconds_count", 3), ("tokens_per_second_count", 4), ("completion_tokens_total", 80)] {
        let line = format!("router_{name}{labels} {value}\n");
        assert!(metrics.contains(&line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_stream_that_a_client_leaves_has_begun_and_has_a_status_but_no_count() {
    let (backend, mut control, _replica, mut client) = started().await;
    client.write(post("/v1/x", &[], "{}")).await;
    let (mut upstream, _) = backend.request().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await;
    upstream.write(USAGE).await;
    client.until(USAGE).await;
    drop(client);
    control.acquire().await;
    control.first_chunk().await;
    let release = control.release().await;
    assert_eq!((release.outcome(), release.http_status), (v1::Outcome::ClientGone, 200));
    assert_eq!(counts(&release), (None, None, None));
}

#[tokio::test]
async fn without_a_link_the_beginning_is_not_told_and_nothing_waits_for_it() {
    let (backend, mut control, replica, mut client) = started().await;
    client.write(post("/v1/x", &[], "{}")).await;
    let (mut upstream, _) = backend.request().await;
    control.acquire().await;
    control.open(false);
    control.cut();
    replica.unlinked().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\none").await;
    client.until("one").await;
    control.open(true);
    assert_eq!(control.hello().await.held[0].lease, 100);
    drop(upstream);
    client.until("0\r\n\r\n").await;
    // Told only if a new link was being made at that moment; never later.
    let next = match control.next().await.1 {
        Kind::FirstChunk(_) => control.next().await.1,
        other => other,
    };
    assert!(matches!(next, Kind::Release(release) if release.lease == 100));
}
