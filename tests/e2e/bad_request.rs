//! Bad input from clients never harms anybody else: it is passed on where the engine should judge it, refused early where
//! the router must, and it never holds a slot.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;

router_tests::on_both_databases!(
    malformed_json_is_the_engines_to_judge,
    a_body_over_the_limit_is_refused_before_it_is_read,
    smuggling_attempts_are_refused,
    odd_but_valid_json_is_no_crash,
);

async fn malformed_json_is_the_engines_to_judge(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let replica = cluster.replica(0)?;
    for body in ["{\"model\": \"m\", \"user\": \"alice\", ", "", "[]]", "\"", "{\"user\":\"a\"} trailing", "nul\0l"] {
        let headers = [("content-type", "application/json")];
        let send = |address| {
            let path = "/v1/chat/completions";
            cluster.client.send(address, http::Method::POST, path, &headers, body.to_owned())
        };
        let (direct, routed) = (send(cluster.engines[0].address()).await?, send(replica).await?);
        assert_eq!(direct.status, StatusCode::BAD_REQUEST, "the engine itself refuses {body:?}");
        assert_eq!(routed.status, direct.status, "{body:?}: {}", routed.text());
        assert_eq!(routed.body, direct.body, "the engine's own words: {body:?}");
        assert_eq!(routed.header("x-routed-source"), "none", "{body:?} has no session");
    }
    assert_eq!(cluster.admin().await?.bindings().await?.len(), 0);
    cluster.until_in_flight(0).await?;
    Chat::of("s").send(&cluster.client, replica).await?.ok()?;
    cluster.finish()
}

async fn a_body_over_the_limit_is_refused_before_it_is_read(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).option("max_body_size", "64KiB").start().await?;
    let replica = cluster.replica(0)?;

    // Announced: the answer comes though not one byte of the body was sent.
    let mut announced = RawClient::connect(replica).await?;
    let asked = Instant::now();
    announced.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n").await?;
    let answer = announced.read_until("\r\n\r\n").await?;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(asked.elapsed() < Duration::from_secs(5), "at once");

    // Not announced: the answer comes when the limit is passed, long before the body's end.
    let mut chunked = RawClient::connect(replica).await?;
    chunked.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
    for _ in 0..6 {
        // The other side may have closed by now.
        let _ = chunked.write(piece.as_bytes()).await;
    }
    let answer = chunked.read_until("\r\n\r\n").await?;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");

    let content = "x".repeat(70_000);
    let path = "/v1/chat/completions";
    let too_big = cluster.client.post(replica, path, &serde_json::json!({"user": "u", "x": content})).await;
    // A client that is still writing may see the connection closed instead of the answer.
    if let Ok(answer) = too_big {
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(answer.json()?.pointer("/error/message").is_some(), "{}", answer.text());
    }
    assert_eq!(cluster.engines[0].stats().await?.requests_total, 0, "nothing of it reached the engine");
    cluster.until_in_flight(0).await?;

    // The control: a body just under the limit passes.
    let body = serde_json::json!({"x": "y".repeat(60_000)});
    cluster.client.post(replica, "/v1/echo", &body).await?.ok()?;
    cluster.finish()
}

async fn smuggling_attempts_are_refused(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let bad: [&[u8]; 6] = [
        b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent length: 5\r\n\r\nhello",
        b"GET /v1/echo HTTP/9.9\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello",
    ];
    for bytes in bad {
        let mut client = RawClient::connect(cluster.replica(0)?).await?;
        client.write(bytes).await?;
        let answer = client.read_to_end().await?;
        assert!(!answer.contains(" 200 "), "{:?} got {answer}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(cluster.engines[0].stats().await?.requests_total, 0, "none reached the engine");
    let mut good = RawClient::connect(cluster.replica(0)?).await?;
    good.write(b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello").await?;
    assert!(good.read_until("body_sha256").await?.contains("200 OK"), "the control");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn odd_but_valid_json_is_no_crash(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let bodies = [
        "null".to_owned(),
        "[{\"user\": \"a\"}]".to_owned(),
        "{\"user\": 5, \"metadata\": [], \"prompt_cache_key\": {\"a\": 1}}".to_owned(),
        "{\"messages\": {\"a\": 1}, \"model\": 7, \"stream\": \"yes\"}".to_owned(),
        "{\"user\": \"a\", \"user\": \"b\"}".to_owned(),
        "{\"us\\u0065r\": \"\\ud83d\\ude00\"}".to_owned(),
        format!("{{\"deep\": {deep}}}"),
        deep,
    ];
    for body in bodies {
        let shown: String = body.chars().take(60).collect();
        let send = cluster.client.send(cluster.replica(0)?, http::Method::POST, "/v1/echo", &[], body);
        let answer = send.await?;
        assert_eq!(answer.status, StatusCode::OK, "{shown}: {}", answer.text());
    }
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
