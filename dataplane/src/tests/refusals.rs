//! What a request that gets no backend is told, and how it is counted.

use std::time::Duration;

use router_proto::v1::client_op::Kind;

use super::backend::Backend;
use super::client::{call, connect, post};
use super::control::{Control, route};
use super::replica::Replica;

async fn one_backend(options: &[(&str, &str)], flags: &[&str]) -> (Control, Backend, Replica) {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", options)]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, flags).await;
    control.hello().await;
    (control, backend, replica)
}

/// Waits for a line of the metrics.
async fn counted(replica: &Replica, line: &str) {
    super::soon(line, async {
        while !replica.metrics().await.contains(line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn rfc_9112_3_2_not_exactly_one_host_is_a_400_that_ends_the_connection() {
    let (mut control, backend, replica) = one_backend(&[], &[]).await;
    for (path, hosts) in [
        ("/v1/x", ""),
        ("/v1/x", "Host: a\r\nHost: a\r\n"),
        ("/v1/models", ""),
        ("/nope", ""),
        ("/health", "Host: a\r\nHost: b\r\n"),
    ] {
        let mut client = connect(replica.addr).await;
        client.write(format!("GET {path} HTTP/1.1\r\n{hosts}\r\n")).await;
        let answer = client.message().await;
        assert_eq!((answer.status(), answer.header("connection")), (400, Some("close")), "{path} {hosts}");
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(json["error"]["code"], "bad_host");
        client.closed().await;
    }
    let mut client = connect(replica.addr).await;
    client.write("POST /v1/messages HTTP/1.1\r\nContent-Length: 0\r\n\r\n").await;
    let anthropic: serde_json::Value = serde_json::from_slice(&client.message().await.body).unwrap();
    assert_eq!(anthropic["error"]["type"], "invalid_request_error", "in the shape of its API");
    assert!(control.heartbeat().await.is_empty(), "no lease was asked for");
    // The control: an empty one is one, and HTTP/1.0 needs none.
    for head in ["GET /v1/x HTTP/1.1\r\nHost:\r\n\r\n", "GET /v1/x HTTP/1.0\r\n\r\n"] {
        let mut client = connect(replica.addr).await;
        client.write(head).await;
        let (mut upstream, _) = backend.request().await;
        upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(client.message().await.status(), 200, "{head}");
    }
}

#[tokio::test]
async fn a_client_that_breaks_off_its_upload_is_counted_as_one_that_left() {
    let (mut control, _backend, replica) = one_backend(&[], &[]).await;
    for begun in [
        "POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 10\r\n\r\n12345",
        "POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12",
    ] {
        let mut client = connect(replica.addr).await;
        client.write(begun).await;
        drop(client);
    }
    counted(&replica, r#"router_requests_total{route="chat",code="499"} 2"#).await;
    counted(&replica, r#"router_client_disconnects_total{route="chat"} 2"#).await;
    assert!(!replica.metrics().await.contains(r#"code="400""#));
    // The control: a client that is there and sends nonsense reads a 400, and that is counted.
    let mut client = connect(replica.addr).await;
    client.write("POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").await;
    let answer = client.message().await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("body_broken"));
    counted(&replica, r#"router_requests_total{route="chat",code="400"} 1"#).await;
    assert!(replica.metrics().await.contains(r#"router_client_disconnects_total{route="chat"} 2"#));
    // On a slow machine an upload may have taken a slot to come in by; a backend is asked for by none.
    let asked_for_a_backend = |kind: &Kind| matches!(kind, Kind::Acquire(acquire) if !acquire.reserve);
    let ops = control.heartbeat().await;
    assert!(!ops.iter().any(asked_for_a_backend), "{ops:?}");
}

#[tokio::test]
async fn rulings_4_every_answer_of_a_route_says_how_it_was_routed() {
    let (_control, backend, replica) = one_backend(&[("max_body_size", "10B")], &[]).await;
    let answer = call(replica.addr, &post("/v1/x", &[], "01234567890")).await;
    assert_eq!(answer.status(), 413);
    assert_eq!((answer.header("x-routed-source"), answer.header("x-routed-retries")), (Some("none"), Some("0")));
    assert_eq!((answer.header("x-routed-mode"), answer.header("x-routed-peer")), (None, None));
    // Refused for another header, with the session known by its own.
    let headers = [("X-Session-Id", "s"), ("X-Model-Context-Window", "x")];
    let answer = call(replica.addr, &post("/v1/x", &headers, "")).await;
    assert_eq!((answer.status(), answer.header("x-routed-source")), (400, Some("header.x-session-id")));
    let refused = answer.header("x-routed-session").unwrap().to_owned();
    // The control: the same session is the same one when it is served.
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &headers[..1], "")).await;
    backend.request().await.0.answer("{}").await;
    let answer = client.message().await;
    assert_eq!(answer.header("x-routed-session"), Some(refused.as_str()));
    assert_eq!((answer.header("x-routed-mode"), answer.header("x-routed-retries")), (Some("new"), Some("0")));
    // Where no route is known, nothing is said.
    let unknown = call(replica.addr, &post("/nope/v1/x", &[], "")).await;
    assert!(unknown.status() == 404 && !unknown.head.contains("x-routed"), "{}", unknown.head);
}

#[tokio::test]
async fn rulings_2_a_session_id_that_is_too_long_is_passed_over_and_counted() {
    let (mut control, _backend, replica) = one_backend(&[], &[]).await;
    let long = "x".repeat(257);
    let body = format!(r#"{{"prompt_cache_key": "{long}", "user": "u"}}"#);
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[("X-Session-Affinity", &long), ("X-Session-Id", " ")], &body)).await;
    assert_eq!(control.acquire().await.1.fingerprint.len(), 16, "the next source names it");
    counted(&replica, r#"router_session_ids_too_long_total{route="chat"} 2"#).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[("X-Session-Id", &long[1..])], "")).await;
    control.acquire().await;
    assert!(replica.metrics().await.contains(r#"router_session_ids_too_long_total{route="chat"} 2"#), "256 will do");
}
