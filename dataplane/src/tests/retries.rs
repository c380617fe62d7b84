//! Failures before the first byte.

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::{Backend, nobody};
use super::client::{connect, post};
use super::control::{Answers, Control, route};
use super::replica::Replica;

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nX-Mine: 1\r\n\r\nbusy";

async fn with(options: &[(&str, &str)], backends: &[&str]) -> (Control, Replica) {
    let mut control = Control::start(vec![route("chat", options)]).await;
    control.grant(backends);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    (control, replica)
}

#[tokio::test]
async fn a_backend_that_refuses_connections_is_left_for_the_next() {
    let (dead, alive) = (nobody().await, Backend::start().await);
    let (mut control, replica) = with(&[], &[&dead, &alive.addr]).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[("x-session-id", "s")], "body")).await;
    let (mut upstream, request) = alive.request().await;
    assert_eq!(request.text(), "body");
    upstream.answer("ok").await;
    let response = client.message().await;
    assert_eq!((response.status(), response.header("x-routed-retries")), (200, Some("1")));
    assert_eq!(response.header("x-routed-peer"), Some(alive.addr.as_str()));
    control.acquire().await;
    let transfer = control.transfer().await;
    assert_eq!((transfer.lease, transfer.reason()), (100, v1::FailureReason::Connect));
    assert_eq!(transfer.failed_backend, dead);
    let again = transfer.again.unwrap();
    assert_eq!((again.tried, again.fingerprint.len()), (vec![dead], 16));
    let release = control.release().await;
    assert_eq!(
        (release.lease, release.outcome()),
        (101, v1::Outcome::Complete),
        "the first lease went with the transfer"
    );
}

#[tokio::test]
async fn a_503_is_tried_elsewhere_and_the_last_one_is_passed_on_as_it_is() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let (mut control, replica) = with(&[], &[&first.addr, &second.addr]).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let (mut upstream, _) = first.request().await;
    upstream.write(BUSY).await;
    let (mut other, request) = second.request().await;
    assert_eq!(request.text(), "body");
    other.write(BUSY).await;
    let response = client.message().await;
    assert_eq!((response.status(), response.text(), response.header("x-mine")), (503, "busy", Some("1")));
    control.acquire().await;
    for (lease, tried) in [(100, 1), (101, 2)] {
        let transfer = control.transfer().await;
        assert_eq!((transfer.lease, transfer.reason(), transfer.status), (lease, v1::FailureReason::Status, 503));
        assert_eq!(transfer.again.unwrap().tried.len(), tried);
    }
    let more = control.heartbeat().await;
    assert!(more.is_empty(), "both leases went with their transfers: {more:?}");
}

#[tokio::test]
async fn what_the_route_does_not_retry_is_passed_on_with_its_lease() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let (mut control, replica) = with(&[], &[&first.addr, &second.addr]).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let (mut upstream, _) = first.request().await;
    upstream.write("HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops").await;
    assert_eq!(client.message().await.text(), "oops");
    control.acquire().await;
    assert_eq!(control.release().await.outcome(), v1::Outcome::BackendError);
}

#[tokio::test]
async fn no_more_tries_than_the_route_allows() {
    let dead = [nobody().await, nobody().await, nobody().await];
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    let (mut control, replica) = with(&[("max_more_tries", "1")], &dead).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let response = client.message().await;
    assert_eq!((response.status(), response.header("x-routed-retries")), (502, Some("1")));
    assert!(response.text().contains("backend_unreachable"));
    control.acquire().await;
    control.transfer().await;
    assert_eq!(control.release().await.outcome(), v1::Outcome::ConnectFailed);
}

#[tokio::test]
async fn routing_8_2_a_failure_that_comes_late_is_not_tried_elsewhere() {
    for (within, retries) in [("50ms", "0"), ("none", "1")] {
        let (silent, dead) = (Backend::start().await, nobody().await);
        let options = [("retry_on", "connect,header_timeout"), ("upstream_timeout", "200ms"), ("retry_within", within)];
        let (mut control, replica) = with(&options, &[&silent.addr, &dead]).await;
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[], "body")).await;
        let _upstream = silent.request().await;
        let response = client.message().await;
        let status = if retries == "0" { 504 } else { 502 };
        assert_eq!((response.status(), response.header("x-routed-retries")), (status, Some(retries)), "{within}");
        control.acquire().await;
        if retries == "1" {
            control.transfer().await;
        } else {
            assert_eq!(control.release().await.outcome(), v1::Outcome::Timeout, "with its own lease");
        }
    }
}

#[tokio::test]
async fn routing_8_2_nor_is_one_whose_next_slot_comes_late() {
    for (within, is_late) in [("200ms", true), ("none", false)] {
        let (busy, other) = (Backend::start().await, Backend::start().await);
        let (mut control, replica) = with(&[("retry_within", within)], &[&busy.addr]).await;
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[], "body")).await;
        let (mut upstream, _) = busy.request().await;
        control.acquire().await;
        control.answers(Answers::Hold);
        upstream.write(BUSY).await;
        let (op, kind) = control.next().await;
        assert!(matches!(kind, Kind::Transfer(_)), "{kind:?}");
        if is_late {
            let response = client.message().await;
            assert_eq!((response.status(), response.text()), (503, "busy"), "what is at hand");
            let cancel = control.next().await.1;
            assert!(matches!(cancel, Kind::Cancel(v1::Cancel { target }) if target == op), "{cancel:?}");
        } else {
            control.send(op, super::control::granted(7, &other.addr));
            other.request().await.0.answer("ok").await;
            assert_eq!(client.message().await.text(), "ok");
        }
    }
}

#[tokio::test]
async fn a_silent_backend_is_a_504() {
    let backend = Backend::start().await;
    let (mut control, replica) = with(&[("upstream_timeout", "100ms")], &[&backend.addr]).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/messages", &[], "{}")).await;
    let (mut upstream, _) = backend.request().await;
    let response = client.message().await;
    assert_eq!(response.status(), 504);
    let anthropic: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!((anthropic["type"].as_str(), anthropic["error"]["type"].as_str()), (Some("error"), Some("api_error")));
    upstream.closed().await;
    control.acquire().await;
    assert_eq!(control.release().await.outcome(), v1::Outcome::Timeout);
}

#[tokio::test]
async fn a_transfer_that_meets_a_full_pool_is_that_refusal() {
    let dead = nobody().await;
    let (mut control, replica) = with(&[], &[&dead]).await;
    control.answers(Answers::Hold);
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let (op, _) = control.acquire().await;
    control.answers(Answers::Refuse(v1::Refused {
        gate: v1::Gate::QueueFull.into(),
        http_status: 429,
        retry_after_s: 1,
        detail: "full".into(),
        in_flight: 8,
        limit: 8,
        ..Default::default()
    }));
    control.send(op, super::control::granted(7, &dead));
    let response = client.message().await;
    assert_eq!((response.status(), response.header("retry-after")), (429, Some("1")));
    assert_eq!(response.header("x-router-refused"), Some("queue_full"));
    let json: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(
        (json["error"]["message"].as_str(), json["error"]["details"]["limit"].as_u64()),
        (Some("full"), Some(8))
    );
}
