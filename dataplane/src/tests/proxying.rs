//! What crosses the router, and how.

use router_policy::ids::Fingerprint;
use router_proto::v1;

use super::backend::Backend;
use super::client::{call, connect, get, post};
use super::control::{Control, route};
use super::replica::Replica;

async fn one_backend() -> (Control, Backend, Replica) {
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[])]).await;
    control.publish(|snapshot| {
        snapshot.routes[0].backends =
            vec![v1::Backend { address: backend.addr.clone(), name: "gpu-1".into(), ..Default::default() }];
    });
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    (control, backend, replica)
}

#[tokio::test]
async fn bodies_are_exact_both_ways_and_headers_say_how() {
    let (mut control, backend, replica) = one_backend().await;
    // Odd spacing, a number that a float would change, escapes, non-ASCII: nothing may be re-encoded.
    let body = "{ \"user\" : \"u-1\",\t\"n\": 1.10000000000000000001, \"x\": \"\\u00e9é\" }\n";
    let mut wire = connect(replica.addr).await;
    let secret =
        [("Authorization", "Bearer s"), ("x-session-id", "sess"), ("X-Request-Id", "req-7"), ("Accept", "a/b")];
    wire.write(post("/v1/chat/completions?a=%2Fb", &secret, body)).await;
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.first_line, "POST /v1/chat/completions?a=%2Fb HTTP/1.1");
    assert_eq!(request.text(), body);
    assert_eq!(request.header("host"), Some(backend.addr.as_str()));
    assert_eq!(request.header("x-request-id"), Some("req-7"));
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.header("accept"), Some("a/b"));
    for gone in ["authorization", "x-session-id", "connection", "transfer-encoding"] {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    let answer = "{ \"ok\" : 1.10000000000000000001 }";
    upstream.answer(answer).await;
    let response = wire.message().await;
    assert_eq!((response.status(), response.text()), (200, answer));
    assert_eq!(response.header("x-routed-source"), Some("header.x-session-id"));
    assert_eq!(response.header("x-routed-mode"), Some("new"));
    assert_eq!(response.header("x-routed-peer"), Some("gpu-1"));
    assert_eq!(response.header("x-routed-retries"), Some("0"));
    assert_eq!(response.header("x-routed-session").unwrap().len(), 16);
    assert_eq!(response.header("x-request-id"), Some("req-7"));

    let (_, acquire) = control.acquire().await;
    assert_eq!((acquire.route.as_str(), acquire.fingerprint.len()), ("chat", 16));
    let release = control.release().await;
    assert_eq!((release.lease, release.outcome()), (100, v1::Outcome::Complete));
    assert!(release.ttft_ms.is_some() && release.decode_ms.is_some());
}

#[tokio::test]
async fn one_session_one_fingerprint_two_sessions_two() {
    let (mut control, backend, replica) = one_backend().await;
    let mut shown = Vec::new();
    for session in ["a", "a", "b", ""] {
        let named = [("x-session-id", session)];
        let headers = if session.is_empty() { &named[..0] } else { &named[..] };
        let mut client = connect(replica.addr).await;
        client.write(post("/chat/v1/completions", headers, "{}")).await;
        let (mut upstream, request) = backend.request().await;
        assert_eq!(request.first_line, "POST /v1/completions HTTP/1.1");
        upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").await;
        let response = client.message().await;
        let (_, acquire) = control.acquire().await;
        control.release().await;
        let short = Fingerprint::from_slice(&acquire.fingerprint).map(Fingerprint::short).unwrap_or_default();
        assert_eq!(response.header("x-routed-session").unwrap_or_default(), short);
        shown.push(short);
    }
    assert!(shown[0] == shown[1] && shown[1] != shown[2]);
    assert_eq!(shown[3], "");
    assert!(replica.metrics().await.contains(r#"router_keyless_requests_total{route="chat"} 1"#));
}

#[tokio::test]
async fn malformed_json_goes_on_unchanged_without_a_session() {
    let (mut control, backend, replica) = one_backend().await;
    let body = "{\"user\": \"u\", \u{1}";
    let mut wire = connect(replica.addr).await;
    wire.write(post("/v1/chat/completions", &[("content-type", "application/json")], body)).await;
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.text(), body);
    upstream.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nnope").await;
    let response = wire.message().await;
    assert_eq!((response.status(), response.text()), (400, "nope"));
    assert_eq!(response.header("x-routed-source"), Some("none"));
    assert!(control.acquire().await.1.fingerprint.is_empty());
    assert_eq!(control.release().await.outcome(), v1::Outcome::Complete, "a client's mistake is no backend's failure");
}

#[tokio::test]
async fn any_method_head_and_no_content() {
    let (mut control, backend, replica) = one_backend().await;
    let mut wire = connect(replica.addr).await;
    wire.write("HEAD /v1/x HTTP/1.1\r\nHost: r\r\n\r\n").await;
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.first_line, "HEAD /v1/x HTTP/1.1");
    assert_eq!(request.header("content-length"), None);
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n").await;
    assert_eq!(wire.head().await.header("content-length"), Some("77"));
    // The same connections, in and out.
    wire.write("DELETE /v1/files/x HTTP/1.1\r\nHost: r\r\n\r\n").await;
    assert_eq!(upstream.message().await.first_line, "DELETE /v1/files/x HTTP/1.1");
    upstream.write("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(wire.message().await.status(), 204);
    for _ in 0..2 {
        control.acquire().await;
        assert_eq!(control.release().await.outcome(), v1::Outcome::Complete);
    }
}

#[tokio::test]
async fn an_idle_connection_is_used_again_and_a_dead_one_replaced() {
    let (mut control, backend, replica) = one_backend().await;
    let mut wire = connect(replica.addr).await;
    wire.write(get("/v1/x")).await;
    let (mut upstream, _) = backend.request().await;
    upstream.answer("1").await;
    assert_eq!(wire.message().await.text(), "1");
    wire.write(get("/v1/x")).await;
    upstream.message().await;
    upstream.answer("2").await;
    assert_eq!(wire.message().await.text(), "2");
    // The backend closes; the replica has not looked yet.
    drop(upstream);
    wire.write(post("/v1/x", &[], "body")).await;
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.text(), "body");
    upstream.answer("3").await;
    assert_eq!(wire.message().await.text(), "3");
    // Alive when the request goes out, gone before it answers: replayed too, once.
    wire.write(post("/v1/x", &[], "again")).await;
    assert_eq!(upstream.message().await.text(), "again");
    drop(upstream);
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.text(), "again");
    upstream.answer("4").await;
    let response = wire.message().await;
    assert_eq!((response.text(), response.header("x-routed-retries")), ("4", Some("0")));
    let kinds: Vec<_> = control.heartbeat().await;
    assert!(!kinds.iter().any(|kind| matches!(kind, v1::client_op::Kind::Transfer(_))), "no failure was reported");
    let metrics = replica.metrics().await;
    assert!(metrics.contains("router_upstream_connections_opened_total 3"), "{metrics}");
}

#[tokio::test]
async fn http2_with_prior_knowledge() {
    let (_control, backend, replica) = one_backend().await;
    let socket = tokio::net::TcpStream::connect(replica.addr).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(socket);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(connection);
    let request = http::Request::post("http://router/v1/chat/completions")
        .header("x-session-id", "s")
        .body(http_body_util::Full::new(bytes::Bytes::from_static(b"hello")))
        .unwrap();
    let answer = sender.send_request(request);
    let upstream = async {
        let (mut upstream, request) = backend.request().await;
        assert_eq!((request.text(), request.header("host")), ("hello", Some(backend.addr.as_str())));
        upstream.answer("world").await;
        upstream
    };
    let (answer, _upstream) = tokio::join!(answer, upstream);
    let answer = answer.unwrap();
    assert_eq!(answer.headers()["x-routed-peer"], "gpu-1");
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!(body, "world");
}

#[tokio::test]
async fn nothing_of_the_routing_shows_when_the_route_says_so() {
    let (control, backend, replica) = one_backend().await;
    control.publish(|snapshot| {
        snapshot.routes[0].options.insert("expose_routed".into(), "false".into());
    });
    replica.sees_snapshot(3).await;
    let mut wire = connect(replica.addr).await;
    wire.write(get("/v1/x")).await;
    let (mut upstream, _) = backend.request().await;
    upstream.write("HTTP/1.1 200 OK\r\nX-Routed-Peer: inner\r\nContent-Length: 0\r\n\r\n").await;
    assert!(!wire.message().await.head.contains("x-routed"));
}

#[tokio::test]
async fn health_paths_and_unknown_paths() {
    let (_control, _backend, replica) = one_backend().await;
    for path in ["/health", "/healthz", "/liveness", "/readiness", "/health/liveliness", "/health/readiness"] {
        assert_eq!(call(replica.addr, &get(path)).await.status(), 200, "{path}");
    }
    for path in ["/", "/v1", "/nope/v1/models", "/nope"] {
        let answer = call(replica.addr, &get(path)).await;
        assert_eq!((answer.status(), answer.header("content-type")), (404, Some("application/json")), "{path}");
        assert!(!answer.text().contains("chat"), "lists nothing: {}", answer.text());
    }
    assert_eq!(call(replica.addr, &get("/v1/../x")).await.status(), 400);
}
