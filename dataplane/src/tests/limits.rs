//! Who and what is kept out.

use router_proto::v1;
use router_proto::v1::client_op::Kind;
use sha2::{Digest, Sha256};

use super::backend::Backend;
use super::client::{call, connect, get, post};
use super::control::{Control, route};
use super::replica::Replica;

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[("max_body_size", "1KiB")])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    // Only the head is sent: an answer means that nothing of the body was waited for.
    let mut client = connect(replica.addr).await;
    client.write("POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 1025\r\n\r\n").await;
    let answer = client.message().await;
    assert_eq!(answer.status(), 413);
    assert!(answer.text().contains("1024"));
    // Chunked: refused once it is over.
    let mut client = connect(replica.addr).await;
    client.write("POST /v1/x HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.write(format!("401\r\n{}\r\n", "x".repeat(0x401))).await;
    assert_eq!(client.message().await.status(), 413);
    let asked = control.heartbeat().await;
    let for_a_backend = asked.iter().filter(|kind| matches!(kind, Kind::Acquire(acquire) if !acquire.reserve));
    assert_eq!(for_a_backend.count(), 0, "no backend was asked for");
    // The control: at the limit it goes through.
    let mut client = connect(replica.addr).await;
    client.write(post("/v1/x", &[], &"x".repeat(1024))).await;
    assert_eq!(backend.request().await.1.body.len(), 1024);
}

#[tokio::test]
async fn the_replica_s_ceiling_holds_over_the_route_s_limit() {
    let control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &["--max-body-size", "10B"]).await;
    assert_eq!(call(replica.addr, &post("/v1/x", &[], "01234567890")).await.status(), 413);
}

#[tokio::test]
async fn a_body_that_stops_coming_is_a_408() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&["127.0.0.1:1"]);
    let replica = Replica::start(&control, &["--body-timeout", "50ms"]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    client.write("POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 10\r\n\r\n12345").await;
    control.reserve().await;
    assert_eq!(client.message().await.status(), 408);
    assert_eq!(control.release().await.lease, 100, "the slot that it held is free");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go() {
    let control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &["--header-timeout", "100ms"]).await;
    for said in ["", "P", "PRI * HTTP/2.0\r\n", "GET /v1/x HTT"] {
        let mut client = connect(replica.addr).await;
        client.write(said).await;
        client.closed().await;
    }
}

#[tokio::test]
async fn keys_are_needed_once_one_exists_and_revoking_takes_effect() {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    // The control: without keys, loopback is open.
    client.write(get("/v1/x")).await;
    let (mut upstream, _) = backend.request().await;
    upstream.answer("{}").await;
    assert_eq!(client.message().await.status(), 200);
    assert_eq!(control.acquire().await.1.key_id, "");
    control.release().await;

    control.publish(|snapshot| {
        let sha256 = Sha256::digest("sk-1").to_vec().into();
        snapshot.keys = vec![v1::Key { id: "k1".into(), name: "one".into(), sha256 }];
    });
    replica.sees_snapshot(2).await;
    assert_eq!(call(replica.addr, &get("/v1/x")).await.status(), 401);
    for (header, value) in [("Authorization", "Bearer sk-2"), ("x-api-key", "sk-2"), ("Authorization", "Basic sk-1")] {
        let answer = call(replica.addr, &post("/v1/x", &[(header, value)], "")).await;
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status(), json["error"]["code"].as_str()), (401, Some("invalid_api_key")));
    }
    assert!(control.heartbeat().await.is_empty());
    for (header, value) in [("Authorization", "Bearer sk-1"), ("x-api-key", "sk-1")] {
        client.write(post("/v1/x", &[(header, value)], "")).await;
        let request = upstream.message().await;
        assert_eq!((request.header("authorization"), request.header("x-api-key")), (None, None));
        upstream.answer("{}").await;
        assert_eq!(client.message().await.status(), 200);
        assert_eq!(control.acquire().await.1.key_id, "k1");
        control.release().await;
    }

    control.publish(|snapshot| {
        let sha256 = Sha256::digest("sk-3").to_vec().into();
        snapshot.keys = vec![v1::Key { id: "k3".into(), name: "three".into(), sha256 }];
    });
    replica.sees_snapshot(3).await;
    client.write(post("/v1/x", &[("Authorization", "Bearer sk-1")], "")).await;
    assert_eq!(client.message().await.status(), 401, "revoked, also on a connection that was let in before");
}
