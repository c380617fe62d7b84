//! What reaches an engine is what the client sent: any method, any path, every byte, and none of its secrets.

use http::{Method, StatusCode};
use router_tests::await_event::{PATIENCE, until};
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use serde_json::Value as Json;

router_tests::on_both_databases!(
    bodies_arrive_byte_for_byte,
    any_method_and_path_pass,
    secrets_and_hop_by_hop_headers_stay_behind,
    chunked_bodies_pass,
    an_idle_upstream_connection_that_died_is_no_error,
);

fn headers_of(echo: &Json) -> Vec<(String, String)> {
    let pairs = echo["headers"].as_array().expect("the echo lists headers");
    pairs.iter().map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned())).collect()
}

async fn echo_of(
    cluster: &Cluster,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<(Answer, Json)> {
    let answer = cluster.client.send(cluster.replica(0)?, method, path, headers, body.to_vec()).await?.ok()?;
    let json = answer.json()?;
    Ok((answer, json))
}

async fn bodies_arrive_byte_for_byte(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let big = format!("{{\"a\": \"{}\"}}", "x".repeat(3 << 20));
    let bodies: [&[u8]; 6] = [
        b"",
        b"{ \"b\" : 1.0e5 , \"a\":\"\\u00e9\", \"b\":2 }\n",
        b"{\"big\":123456789012345678901234567890,\"f\":0.10}",
        b"\x00\xff\xfe not JSON at all",
        b"{\"unclosed\": [1, 2",
        big.as_bytes(),
    ];
    for body in bodies {
        let headers = [("content-type", "application/json"), ("x-session-id", "s")];
        let direct =
            cluster.client.send(cluster.engines[0].address(), Method::POST, "/v1/echo", &headers, body.to_vec());
        let direct = direct.await?.ok()?.json()?;
        let (_, routed) = echo_of(&cluster, Method::POST, "/v1/echo", &headers, body).await?;
        assert_eq!(routed["body_bytes"], body.len());
        assert_eq!(routed["body_sha256"], direct["body_sha256"], "{:?}", &body[..body.len().min(40)]);
    }
    cluster.finish()
}

async fn any_method_and_path_pass(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        for (asked, seen) in [("/v1/echo", "/v1/echo"), ("/chat/v1/echo?a=b%20c&d", "/v1/echo?a=b%20c&d")] {
            let (_, echo) = echo_of(&cluster, method.clone(), asked, &[], b"").await?;
            assert_eq!(echo["method"], method.as_str());
            assert_eq!(echo["path"], seen, "asked {asked}");
        }
    }
    let head = cluster.client.send(cluster.replica(0)?, Method::HEAD, "/v1/echo", &[], "").await?;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    let unknown = cluster.client.get(cluster.replica(0)?, "/v1/no/such/thing").await?;
    assert_ne!(unknown.header("x-routed-peer"), "", "an unknown path under /v1/ is the engine's to answer");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn secrets_and_hop_by_hop_headers_stay_behind(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let headers = [
        ("authorization", "Bearer sk-secret"),
        ("x-api-key", "sk-secret"),
        ("connection", "x-per-hop, keep-alive"),
        ("x-per-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("x-kept", "kept"),
        ("user-agent", "agent/1"),
        ("accept", "text/event-stream"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    let (answer, echo) = echo_of(&cluster, Method::POST, "/v1/echo", &headers, b"{}").await?;
    let seen = headers_of(&echo);
    let value = |name: &str| seen.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    for gone in ["authorization", "x-api-key", "x-per-hop", "keep-alive", "proxy-authorization"] {
        assert_eq!(value(gone), None, "{gone} reached the engine");
    }
    assert!(!echo.to_string().contains("sk-secret"));
    for kept in ["x-kept", "user-agent", "accept", "traceparent"] {
        let sent = headers.iter().find(|(name, _)| *name == kept).map(|(_, value)| *value);
        assert_eq!(value(kept), sent, "{kept}");
    }
    assert_eq!(value("host"), Some(cluster.engines[0].address().to_string().as_str()), "the engine's own host");
    for name in ["x-routed-source", "x-routed-mode", "x-routed-peer", "x-routed-retries"] {
        assert_ne!(answer.header(name), "", "{name}");
    }

    // The control: a route that says so passes the client's key on.
    cluster.ctl()?.ok(&["route", "set", "chat", "forward_authorization=true", "expose_routed=false"]).await?;
    let passed = || async {
        let (answer, echo) = echo_of(&cluster, Method::POST, "/v1/echo", &headers, b"{}").await?;
        Ok(echo.to_string().contains("Bearer sk-secret").then_some(answer))
    };
    let answer = until("the option takes effect", PATIENCE, passed).await?;
    assert_eq!(answer.header("x-routed-peer"), "", "and one that hides its headers hides them");
    cluster.finish()
}

async fn chunked_bodies_pass(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).start().await?;
    let mut client = RawClient::connect(cluster.replica(0)?).await?;
    client
        .write(b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n")
        .await?;
    client.read_until("100 Continue").await?;
    for piece in ["5\r\nhello\r\n", "7\r\n, world\r\n", "0\r\n\r\n"] {
        client.write(piece.as_bytes()).await?;
    }
    let answer = client.read_until("body_sha256").await?;
    assert!(answer.contains("200 OK"), "{answer}");
    assert!(answer.contains("\"body_bytes\":12"), "{answer}");
    cluster.finish()
}

/// Engines close idle connections whenever they like; the client must not notice.
async fn an_idle_upstream_connection_that_died_is_no_error(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).engines(1).start().await?;
    for _ in 0..10 {
        echo_of(&cluster, Method::POST, "/v1/echo", &[], b"{}").await?;
    }
    // The engine dies and comes back between two probes: pooled connections are dead, nobody knows yet.
    cluster.engines[0].process.kill9().await?;
    cluster.engines[0].process.restart().await?;
    cluster.expect_log("unhealthy");
    cluster.expect_log("health");
    cluster.until_healthy().await?;
    for _ in 0..10 {
        let (answer, _) = echo_of(&cluster, Method::POST, "/v1/echo", &[], b"{}").await?;
        assert_eq!(answer.header("x-routed-retries"), "0");
    }
    cluster.finish()
}
