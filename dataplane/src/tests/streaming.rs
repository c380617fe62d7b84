//! Streams: at once, exact, and never a clean end for a broken one.

use std::time::{Duration, Instant};

use router_proto::v1;

use super::backend::{Backend, Wire};
use super::client::{connect, get, post};
use super::control::{Control, route};
use super::replica::Replica;

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

async fn streaming(options: &[(&str, &str)]) -> (Control, Backend, Replica, Wire, Wire) {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", options)]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/chat/completions", &[], r#"{"stream": true}"#)).await;
    let (mut upstream, _) = backend.request().await;
    assert!(control.acquire().await.1.hints.unwrap().stream);
    upstream.write(STREAM_HEAD).await;
    let head = client.head().await;
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    (control, backend, replica, client, upstream)
}

async fn chunk(wire: &mut Wire, text: &str) {
    wire.write(format!("{:x}\r\n{text}\r\n", text.len())).await;
}

#[tokio::test]
async fn each_chunk_arrives_before_the_next_is_sent() {
    let (mut control, _backend, _replica, mut client, mut upstream) = streaming(&[]).await;
    for text in ["data: {\"a\":1}\n\n", ": heartbeat\n\n", "data: half a li", "ne\n\n", "data: [DONE]\n\n"] {
        chunk(&mut upstream, text).await;
        // Same chunk, same size: neither held back nor merged.
        assert_eq!(client.until(&format!("{text}\r\n")).await, format!("{:X}\r\n{text}\r\n", text.len()));
        if text.contains("\"a\"") {
            control.first_chunk().await;
        }
        assert!(control.unread().is_empty());
    }
    upstream.write("0\r\n\r\n").await;
    assert_eq!(client.until("0\r\n\r\n").await, "0\r\n\r\n");
    let release = control.release().await;
    assert_eq!(release.outcome(), v1::Outcome::Complete);
    // The connection was given back: another request finds it.
    client.write(get("/v1/x")).await;
    upstream.message().await;
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_upstream_and_gives_the_lease_back_once() {
    let (mut control, _backend, replica, mut client, mut upstream) = streaming(&[]).await;
    chunk(&mut upstream, "data: 1\n\n").await;
    client.until("data: 1\n\n\r\n").await;
    let left = Instant::now();
    drop(client);
    upstream.closed().await;
    assert!(left.elapsed() < Duration::from_millis(100), "{:?}", left.elapsed());
    control.first_chunk().await;
    let release = control.release().await;
    assert_eq!((release.lease, release.outcome()), (100, v1::Outcome::ClientGone));
    control.heartbeat().await;
    let more = control.heartbeat().await;
    assert!(more.is_empty(), "exactly once: {more:?}");
    assert!(replica.metrics().await.contains(r#"router_client_disconnects_total{route="chat"} 1"#));
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_closes_the_upstream_too() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/chat/completions", &[], "{}")).await;
    let (mut upstream, _) = backend.request().await;
    control.acquire().await;
    drop(client);
    upstream.closed().await;
    assert_eq!(control.release().await.outcome(), v1::Outcome::ClientGone);
    assert!(replica.metrics().await.contains(r#"router_requests_total{route="chat",code="499"} 1"#));
}

#[tokio::test]
async fn a_stream_that_breaks_never_ends_cleanly() {
    let (mut control, _backend, _replica, mut client, mut upstream) = streaming(&[]).await;
    chunk(&mut upstream, "data: 1\n\n").await;
    client.until("data: 1\n\n\r\n").await;
    drop(upstream);
    let rest = client.rest().await;
    assert!(rest.is_empty(), "no last chunk: {:?}", String::from_utf8_lossy(&rest));
    control.first_chunk().await;
    assert_eq!(control.release().await.outcome(), v1::Outcome::StreamBroken);
}

#[tokio::test]
async fn a_stated_length_that_breaks_off_is_cut_and_a_whole_one_is_not() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    for (sent, is_whole) in [("0123456789", true), ("01234", false)] {
        let mut client = connect(replica.addr).await;
        client.write(get("/v1/x")).await;
        let (mut upstream, _) = backend.request().await;
        upstream.write(format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{sent}")).await;
        let head = client.head().await;
        assert_eq!(head.header("content-length"), Some("10"));
        assert_eq!(client.bytes(sent.len()).await, sent.as_bytes());
        drop(upstream);
        control.acquire().await;
        let outcome = control.release().await.outcome();
        if is_whole {
            assert_eq!(outcome, v1::Outcome::Complete);
            // The client's connection goes on.
            client.write(get("/health")).await;
            assert_eq!(client.message().await.status(), 200);
        } else {
            assert_eq!(outcome, v1::Outcome::StreamBroken);
            assert!(client.rest().await.is_empty());
        }
    }
}

#[tokio::test]
async fn a_silent_stream_is_ended_and_a_slow_one_is_not() {
    let (mut control, _backend, _replica, mut client, mut upstream) = streaming(&[("upstream_timeout", "300ms")]).await;
    // Longer in all than the limit, never silent for that long.
    for number in 0..8 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        chunk(&mut upstream, &format!("data: {number}\n\n")).await;
        client.until("\n\n\r\n").await;
    }
    let silent = Instant::now();
    assert!(client.rest().await.is_empty());
    assert!(silent.elapsed() >= Duration::from_millis(250), "{:?}", silent.elapsed());
    control.first_chunk().await;
    assert_eq!(control.release().await.outcome(), v1::Outcome::Timeout);
    upstream.closed().await;
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let body: String = (0..3_000_000_u32).map(|n| char::from(b'a' + u8::try_from(n % 23).unwrap())).collect();
    let mut client = connect(replica.addr).await;
    let mut wire = connect(replica.addr).await;
    let sending = client.write(post("/v1/x", &[], &body));
    let receiving = async {
        let (upstream, request) = backend.request().await;
        assert!(request.text() == body, "the request's body differs");
        upstream
    };
    let ((), mut upstream) = tokio::join!(sending, receiving);
    let (response, ()) = tokio::join!(client.message(), upstream.answer(&body));
    assert!(response.text() == body, "the response's body differs");
    // Chunked in, Content-Length upstream.
    wire.write("POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    wire.write("6\r\n world\r\n0\r\n\r\n").await;
    let request = upstream.message().await;
    assert_eq!((request.text(), request.header("transfer-encoding")), ("hello world", None));
}
