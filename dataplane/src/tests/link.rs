//! The control plane comes and goes.

use router_proto::v1;
use router_proto::v1::client_op::Kind;

use super::backend::Backend;
use super::client::{call, connect, get, post};
use super::control::{Control, granted, route};
use super::replica::Replica;
use super::soon;

#[tokio::test]
async fn not_ready_before_welcome_and_nothing_is_sent() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.welcomes(false);
    let (replica, mut ready) = Replica::launch(&control, &[]).await;
    let hello = control.hello().await;
    assert_eq!((hello.listen, hello.held.len()), (replica.addr.to_string(), 0));
    let answer = replica.readyz().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.text().contains("reason"));
    assert_eq!(call(replica.admin, &get("/healthz")).await.status(), 200);
    let mut client = connect(replica.addr).await;
    client.write(get("/v1/x")).await;
    assert!(control.unread().is_empty());
    assert!(ready.try_recv().is_err());
    // Welcome after all: the request that waited goes out.
    control.send(1, v1::server_op::Kind::Welcome(v1::Welcome { epoch: 1, lease_ttl_ms: 9000, heartbeat_ms: 50 }));
    control.acquire().await;
    soon("ready", ready).await.unwrap();
    assert_eq!(replica.readyz().await.status(), 200);
}

#[tokio::test]
async fn a_request_that_comes_before_the_first_snapshot_waits_for_it() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    control.open(false);
    let (replica, _ready) = Replica::launch(&control, &[]).await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let waits = async { while !replica.metrics().await.contains("\nrouter_requests_in_flight 1\n") {} };
    soon("the request", waits).await;
    assert_eq!(replica.readyz().await.status(), 503);
    control.open(true);
    let (mut upstream, _) = backend.request().await;
    upstream.answer("ok").await;
    assert_eq!(client.message().await.text(), "ok");
    control.hello().await;
}

#[tokio::test]
async fn a_waiting_request_is_asked_again_on_the_next_link() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    let first = control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let (_, acquire) = control.acquire().await;
    control.cut();
    let again = control.hello().await;
    assert_eq!(again.replica_id, first.replica_id);
    let (op, repeated) = control.acquire().await;
    assert!(repeated.waited_ms >= acquire.waited_ms);
    control.send(op, granted(9, &backend.addr));
    let (mut upstream, _) = backend.request().await;
    upstream.answer("ok").await;
    assert_eq!(client.message().await.text(), "ok");
    assert_eq!(control.release().await.lease, 9);
}

#[tokio::test]
async fn without_a_link_the_queue_timeout_ends_the_wait() {
    let mut control = Control::start(vec![route("chat", &[("queue_timeout", "300ms")])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    control.open(false);
    control.cut();
    let answer = call(replica.addr, &get("/v1/x")).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")));
    assert_eq!(answer.header("x-router-refused"), Some("control_plane_unavailable"));
    // A short loss is no reason to be taken out; a long one is.
    assert_eq!(replica.readyz().await.status(), 200);
    while replica.readyz().await.status() == 200 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // It returns: so does the replica.
    control.open(true);
    control.hello().await;
}

#[tokio::test]
async fn streams_outlive_the_link_and_the_next_hello_tells_of_them() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    assert!(control.hello().await.held.is_empty());
    // Two answers begin; one of them ends while there is no link.
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[("x-session-id", "s")], "")).await;
        let (mut upstream, _) = backend.request().await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234").await;
        client.head().await;
        client.bytes(5).await;
        control.acquire().await;
        clients.push((client, upstream));
    }
    control.open(false);
    control.cut();
    let (mut short, mut upstream) = clients.pop().unwrap();
    // The link is seen to be down before the answer ends.
    replica.unlinked().await;
    upstream.write("56789").await;
    assert_eq!(short.bytes(5).await, b"56789");
    control.open(true);
    let hello = control.hello().await;
    assert_eq!(hello.held.len(), 1, "{hello:?}");
    let held = &hello.held[0];
    assert_eq!((held.lease, held.route.as_str(), held.backend.as_str()), (100, "chat", backend.addr.as_str()));
    assert_eq!(held.fingerprint.len(), 16);
    let (mut long, mut upstream) = clients.pop().unwrap();
    upstream.write("56789").await;
    assert_eq!(long.bytes(5).await, b"56789");
    let release = control.release().await;
    assert_eq!((release.lease, release.outcome()), (100, v1::Outcome::Complete));
    let more = control.heartbeat().await;
    assert!(!more.iter().any(|kind| matches!(kind, Kind::Release(_))), "{more:?}");
}

#[tokio::test]
async fn the_token_goes_with_every_call() {
    let control = Control::start(vec![route("chat", &[])]).await;
    let (_replica, ready) = Replica::launch_with(&control, &[], Some("t0p")).await;
    super::soon("ready", ready).await.unwrap();
    assert_eq!(control.token_seen().as_deref(), Some("Bearer t0p"));
}

#[tokio::test]
async fn a_backend_that_fails_while_there_is_no_link_is_left_all_the_same() {
    let (failing, alive) = (Backend::start().await, Backend::start().await);
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&failing.addr, &alive.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], "body")).await;
    let (upstream, _) = failing.request().await;
    control.acquire().await;
    control.open(false);
    control.cut();
    replica.unlinked().await;
    drop(upstream);
    // The lease ended with the failure, though nobody could be told.
    control.refused_hello(|hello| hello.held.is_empty()).await;
    control.open(true);
    assert!(control.hello().await.held.is_empty());
    assert_eq!(control.acquire().await.1.tried, [failing.addr]);
    let (mut upstream, request) = alive.request().await;
    assert_eq!(request.text(), "body");
    upstream.answer("ok").await;
    let response = client.message().await;
    assert_eq!((response.text(), response.header("x-routed-retries")), ("ok", Some("1")));
}
