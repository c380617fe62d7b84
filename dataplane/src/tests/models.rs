//! `/v1/models`: one answer for the whole pool.

use std::time::{Duration, Instant};

use router_proto::v1;
use sha2::{Digest, Sha256};

use super::backend::{Backend, Message, Wire, nobody};
use super::client::{call, connect, get};
use super::control::{Control, route};
use super::replica::Replica;

/// A route over these backends, whose windows are 1000, 2000, and so on.
async fn pool(options: &[(&str, &str)], backends: &[&str]) -> (Control, Replica) {
    let mut chat = route("chat", options);
    chat.backends = (1..)
        .zip(backends)
        .map(|(number, address)| v1::Backend {
            address: (*address).to_owned(),
            context_limit: number * 1000,
            ..Default::default()
        })
        .collect();
    let mut control = Control::start(vec![chat]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    (control, replica)
}

fn asking(path: &str, headers: &[(&str, &str)]) -> String {
    let mut text = get(path);
    text.truncate(text.len() - 2);
    for (name, value) in headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    text + "\r\n"
}

fn code(answer: &Message) -> String {
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    json["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_union_of_all_is_answered_without_a_lease_and_asked_at_once() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let (mut control, replica) = pool(&[("model_context_limit", "900")], &[&first.addr, &second.addr]).await;
    let mut client = connect(replica.addr).await;
    let secret = [
        ("Authorization", "Bearer s"),
        ("X-Session-Id", "s"),
        ("X-Request-Id", "req-1"),
        ("Accept-Encoding", "gzip"),
        ("If-None-Match", "x"),
    ];
    client.write(asking("/chat/v1/models?limit=9", &secret)).await;
    // Both are asked before either has answered.
    let (mut one, asked) = first.request().await;
    let (mut two, _) = second.request().await;
    assert_eq!(asked.first_line, "GET /v1/models?limit=9 HTTP/1.1");
    assert_eq!(asked.header("host"), Some(first.addr.as_str()));
    assert_eq!((asked.header("x-request-id"), asked.header("x-forwarded-for")), (Some("req-1"), Some("127.0.0.1")));
    for gone in ["authorization", "x-session-id", "accept-encoding", "if-none-match", "x-data-parallel-rank"] {
        assert_eq!(asked.header(gone), None, "{gone}");
    }
    // The later backend is the faster one; the order is the route's all the same.
    two.answer(r#"{"data":[{"id":"b"},{"id":"a","max_model_len":700}],"x":2}"#).await;
    one.answer(r#"{ "x":1, "data":[{"id":"a", "n":1.10, "max_model_len":32768}] }"#).await;
    let answer = client.message().await;
    assert_eq!(
        (answer.status(), answer.text()),
        (200, r#"{ "x":1, "data":[{"id":"a", "n":1.10, "max_model_len":700},{"id":"b","max_model_len":900}] }"#)
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-request-id"), Some("req-1"));
    assert_eq!(answer.header("x-routed-source"), Some("header.x-session-id"));
    assert_eq!(answer.header("x-routed-session").map(str::len), Some(16));
    assert_eq!(answer.header("x-routed-retries"), Some("0"));
    assert_eq!((answer.header("x-routed-mode"), answer.header("x-routed-peer")), (None, None));

    // The connections were given back.
    client.write(get("/v1/models")).await;
    for wire in [&mut one, &mut two] {
        wire.message().await;
        wire.answer(r#"{"data":[]}"#).await;
    }
    assert_eq!(client.message().await.text(), r#"{"data":[]}"#);
    assert!(control.heartbeat().await.is_empty(), "no lease was asked for");
    assert!(replica.metrics().await.contains(r#"router_requests_total{route="chat",code="200"} 2"#));
}

#[tokio::test]
async fn one_model_head_and_other_methods() {
    let backend = Backend::start().await;
    let (mut control, replica) = pool(&[], &[&backend.addr]).await;
    control.grant(&[&backend.addr]);
    let mut client = connect(replica.addr).await;
    let list = r#"{"object":"list","data":[{"id":"org/m 1","x":[1]}]}"#;
    let mut upstream: Option<Wire> = None;
    for (request, status, body, length) in [
        (get("/v1/models/org/m%201"), 200, r#"{"id":"org/m 1","x":[1]}"#, 24),
        (get("/chat/v1/models/org%2fm%201"), 200, r#"{"id":"org/m 1","x":[1]}"#, 24),
        ("HEAD /v1/models HTTP/1.1\r\nHost: r\r\n\r\n".to_owned(), 200, "", list.len()),
        ("HEAD /v1/models/org/m%201 HTTP/1.1\r\nHost: r\r\n\r\n".to_owned(), 200, "", 24),
    ] {
        client.write(&request).await;
        let mut wire = match upstream.take() {
            Some(wire) => wire,
            None => backend.accept().await,
        };
        assert_eq!(wire.message().await.first_line, "GET /v1/models HTTP/1.1");
        wire.answer(list).await;
        upstream = Some(wire);
        let mut answer = client.head().await;
        assert_eq!((answer.status(), answer.header("content-length")), (status, Some(length.to_string().as_str())));
        answer.body = client.bytes(body.len()).await;
        assert_eq!(answer.text(), body, "{request}");
    }
    let mut wire = upstream.unwrap();
    for id in ["org", "m", "%FF", "ORG/M%201"] {
        client.write(get(&format!("/v1/models/{id}"))).await;
        wire.message().await;
        wire.answer(list).await;
        let answer = client.message().await;
        assert_eq!((answer.status(), code(&answer).as_str()), (404, "model_not_found"), "{id}");
    }
    assert!(control.heartbeat().await.is_empty(), "no lease was asked for");
    // The control: any other method is proxied.
    client.write("DELETE /v1/models/org/m HTTP/1.1\r\nHost: r\r\n\r\n").await;
    assert_eq!(wire.message().await.first_line, "DELETE /v1/models/org/m HTTP/1.1");
    control.acquire().await;
}

#[tokio::test]
async fn conventions_2_dead_mute_and_broken_backends_cost_only_their_own_models() {
    let (mute, broken, alive) = (Backend::start().await, Backend::start().await, Backend::start().await);
    let dead = nobody().await;
    let backends = [&dead, &mute.addr, &broken.addr, &alive.addr].map(String::as_str);
    let (_control, replica) = pool(&[("health_timeout", "300ms")], &backends).await;
    let mut client = connect(replica.addr).await;
    let asked = Instant::now();
    client.write(get("/v1/models")).await;
    let (mut mute, _) = mute.request().await;
    let (mut broken, _) = broken.request().await;
    broken.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"data\":[{\"id\":\"half\"}").await;
    drop(broken);
    alive.request().await.0.answer(r#"{"data":[{"id":"m"}]}"#).await;
    let answer = client.message().await;
    assert_eq!((answer.status(), answer.text()), (200, r#"{"data":[{"id":"m"}]}"#));
    let took = asked.elapsed();
    assert!((Duration::from_millis(290)..Duration::from_secs(3)).contains(&took), "{took:?}");
    mute.closed().await;
    // One that sends a head and then nothing is mute, too.
    client.write(get("/v1/models")).await;
    let (mut slow, _) = Backend::request(&alive).await;
    slow.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{").await;
    let answer = client.message().await;
    assert_ne!(answer.status(), 200);
    slow.closed().await;
}

#[tokio::test]
async fn what_clients_read_when_no_backend_has_a_list() {
    let status = |status: &str| format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 3\r\n\r\n[1]");
    for (answers, status, code_expected) in [
        ([status("404 Not Found"), status("404 Not Found")], 404, "no_model_list"),
        ([status("404 Not Found"), status("500 Oops")], 502, "backend_bad_answer"),
        ([status("200 OK"), status("200 OK")], 502, "backend_bad_answer"),
        // A backend's 401 is the router's problem, not the client's key's.
        ([status("401 No"), status("401 No")], 502, "backend_bad_answer"),
        ([String::new(), String::new()], 502, "backend_unreachable"),
    ] {
        let (first, second) = (Backend::start().await, Backend::start().await);
        let (_control, replica) = pool(&[], &[&first.addr, &second.addr]).await;
        let mut client = connect(replica.addr).await;
        client.write(get("/v1/models/m")).await;
        for (backend, answer) in [&first, &second].into_iter().zip(answers) {
            backend.request().await.0.write(answer).await;
        }
        let answer = client.message().await;
        assert_eq!((answer.status(), code(&answer).as_str()), (status, code_expected));
    }
    let dead = nobody().await;
    let (_control, replica) = pool(&[], &[&dead]).await;
    assert_eq!(call(replica.addr, &get("/v1/models")).await.status(), 502);
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let (endless, alive) = (Backend::start().await, Backend::start().await);
    let (_control, replica) = pool(&[], &[&endless.addr, &alive.addr]).await;
    let mut client = connect(replica.addr).await;
    client.write(get("/v1/models")).await;
    alive.request().await.0.answer(r#"{"data":[{"id":"m"}]}"#).await;
    let (mut upstream, _) = endless.request().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n").await;
    upstream.write(vec![b' '; 2 << 20]).await;
    // One byte more than the limit ends it; the client would wait for five seconds else.
    let asked = Instant::now();
    upstream.write(" ").await;
    assert_eq!(client.message().await.text(), r#"{"data":[{"id":"m"}]}"#);
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    upstream.closed().await;
}

#[tokio::test]
async fn gateway_7_a_window_is_answered_by_the_backends_that_have_it() {
    let (small, large) = (Backend::start().await, Backend::start().await);
    let (mut control, replica) = pool(&[("model_context_limit", "1000")], &[&small.addr, &large.addr]).await;
    let mut client = connect(replica.addr).await;
    client.write(asking("/v1/models", &[("X-Model-Context-Window", "1500")])).await;
    let (mut upstream, request) = large.request().await;
    assert_eq!(request.header("x-model-context-window"), None);
    upstream.answer(r#"{"data":[{"id":"m","max_model_len":2000},{"id":"n"}]}"#).await;
    // The capacity that was asked for, not the lower limit that all share.
    assert_eq!(
        client.message().await.text(),
        r#"{"data":[{"id":"m","max_model_len":1500},{"id":"n","max_model_len":1500}]}"#
    );
    let refused = call(replica.addr, &asking("/v1/models", &[("X-Model-Context-Window", "2001")])).await;
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("5")));
    assert_eq!(code(&refused), "context_window");
    let malformed = call(replica.addr, &asking("/v1/models", &[("X-Model-Context-Window", "x")])).await;
    assert_eq!((malformed.status(), code(&malformed).as_str()), (400, "invalid_context_window"));
    assert_eq!(malformed.header("x-routed-retries"), Some("0"));

    // Out of admission: only the other one is asked, then none.
    for (down, left) in [(1, 1), (2, 0)] {
        control.publish(|snapshot| {
            for backend in snapshot.routes[0].backends.iter_mut().rev().take(down) {
                backend.condition = Some(v1::Condition { unhealthy: true, ..Default::default() });
            }
        });
        replica.sees_snapshot(1 + u64::try_from(down).unwrap()).await;
        client.write(get("/v1/models")).await;
        if left == 1 {
            small.request().await.0.answer(r#"{"data":[{"id":"s"}]}"#).await;
            assert_eq!(client.message().await.text(), r#"{"data":[{"id":"s","max_model_len":1000}]}"#);
        } else {
            let answer = client.message().await;
            assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("5")));
            assert_eq!((answer.header("x-router-refused"), code(&answer).as_str()), (Some("no_backend"), "no_backend"));
        }
    }
    assert!(control.heartbeat().await.is_empty());
}

#[tokio::test]
async fn a_key_is_needed_as_for_anything_and_a_client_that_leaves_ends_it() {
    let backend = Backend::start().await;
    let (control, replica) = pool(&[], &[&backend.addr]).await;
    control.publish(|snapshot| {
        let sha256 = Sha256::digest("sk-1").to_vec().into();
        snapshot.keys = vec![v1::Key { id: "k1".into(), name: "one".into(), sha256 }];
    });
    replica.sees_snapshot(2).await;
    let refused = call(replica.addr, &get("/v1/models")).await;
    assert_eq!((refused.status(), code(&refused).as_str()), (401, "invalid_api_key"));
    assert_eq!((refused.header("x-routed-source"), refused.header("x-routed-retries")), (Some("none"), Some("0")));
    let mut client = connect(replica.addr).await;
    client.write(asking("/v1/models", &[("Authorization", "Bearer sk-1")])).await;
    let (mut upstream, request) = backend.request().await;
    assert_eq!(request.header("authorization"), None);
    let left = Instant::now();
    drop(client);
    upstream.closed().await;
    assert!(left.elapsed() < Duration::from_secs(2), "{:?}", left.elapsed());
    assert!(replica.metrics().await.contains(r#"router_requests_total{route="chat",code="499"} 1"#));
}
