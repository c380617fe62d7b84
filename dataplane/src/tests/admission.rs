//! Waiting for a slot.

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::Backend;
use super::client::{call, connect, get, post};
use super::control::{Answers, Control, granted, route};
use super::replica::Replica;

#[tokio::test]
async fn a_refusal_is_what_the_control_plane_says() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.answers(Answers::Refuse(v1::Refused {
        gate: v1::Gate::NoBackend.into(),
        http_status: 503,
        retry_after_s: 5,
        detail: "none".into(),
        ..Default::default()
    }));
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let answer = call(replica.addr, &post("/v1/x", &[("x-session-id", "s")], "")).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("5")));
    assert_eq!(answer.header("x-router-refused"), Some("no_backend"));
    assert_eq!(answer.header("x-routed-source"), Some("header.x-session-id"));
    assert_eq!(answer.header("x-routed-session").map(str::len), Some(16));
    assert!(replica.metrics().await.contains(r#"router_refused_total{route="chat",gate="no_backend"} 1"#));
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_taken_out_of_it() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(get("/v1/x")).await;
    let (op, _) = control.acquire().await;
    drop(client);
    match control.next().await.1 {
        Kind::Cancel(cancel) => assert_eq!(cancel.target, op),
        other => panic!("Cancel expected, got {other:?}"),
    }
    // A grant that crossed the Cancel goes straight back.
    control.send(op, granted(55, "127.0.0.1:1"));
    let release = control.release().await;
    assert_eq!((release.lease, release.route.as_str()), (55, "chat"));
    assert_eq!(release.outcome(), v1::Outcome::ClientGone);
}

#[tokio::test]
async fn many_requests_share_messages_and_each_gets_its_own_lease() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut clients = Vec::new();
    for number in 0..50 {
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[], &number.to_string())).await;
        clients.push(client);
    }
    let mut ops = Vec::new();
    while ops.len() < 50 {
        ops.push(control.acquire().await.0);
    }
    for (lease, op) in (1..).zip(&ops) {
        control.send(*op, granted(lease, &backend.addr));
    }
    for _ in 0..50 {
        let (mut upstream, request) = backend.request().await;
        upstream.answer(request.text()).await;
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.message().await.text(), number.to_string());
    }
    let mut leases = Vec::new();
    while leases.len() < 50 {
        leases.push(control.release().await.lease);
    }
    leases.sort_unstable();
    assert_eq!(leases, (1..=50).collect::<Vec<_>>());
    let metrics = replica.metrics().await;
    assert!(metrics.contains("router_requests_in_flight 0"), "{metrics}");
}

#[tokio::test]
async fn an_operation_that_the_control_plane_does_not_know_is_a_503() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(get("/v1/x")).await;
    let (op, _) = control.acquire().await;
    control.send(op, v1::server_op::Kind::Unsupported(v1::Unsupported {}));
    assert_eq!(client.message().await.header("x-router-refused"), Some("control_plane_unavailable"));
}
