//! What a backend is told about a session: its rank, or the client's own headers; and the context window that a client asks
//! for (gateway.md §7, §8).

use router_proto::v1;
use router_proto::v1::server_op::Kind as ServerKind;

use super::backend::Backend;
use super::client::{call, connect, post};
use super::control::{Answers, Control, route};
use super::replica::Replica;

fn on_rank(backend: &Backend, dp_rank: u32) -> ServerKind {
    ServerKind::Granted(v1::Granted {
        lease: 7,
        backend: backend.addr.clone(),
        mode: v1::Mode::Bound.into(),
        dp_rank: Some(dp_rank),
        ..Default::default()
    })
}

#[tokio::test]
async fn gateway_8_the_router_s_rank_or_the_client_s_session_headers_and_never_both() {
    for (managed, rank, session, namespace) in
        [("false", Some("5"), None, None), ("true", None, Some("s-1"), Some("team-a"))]
    {
        let backend = Backend::start().await;
        let mut control = Control::start(vec![route("chat", &[("backend_managed_affinity", managed)])]).await;
        let replica = Replica::start(&control, &[]).await;
        control.hello().await;
        let mut client = connect(replica.addr).await;
        let headers = [
            ("X-Session-Id", "s-1"),
            ("X-Data-Parallel-Rank", "3"),
            ("X-DeepInfer-Cache-Namespace", "team-a"),
            ("X-Model-Context-Window", "4096"),
        ];
        client.write(post("/v1/chat/completions", &headers, "{}")).await;
        let (op, acquire) = control.acquire().await;
        assert_eq!((acquire.fingerprint.len(), acquire.context_tokens), (16, 4096));
        control.send(op, on_rank(&backend, 5));
        let (mut upstream, request) = backend.request().await;
        assert_eq!(request.header("x-data-parallel-rank"), rank, "managed: {managed}");
        assert_eq!(request.header("x-session-id"), session, "managed: {managed}");
        assert_eq!(request.header("x-deepinfer-cache-namespace"), namespace, "managed: {managed}");
        assert_eq!(request.header("x-model-context-window"), None);
        upstream.answer("{}").await;
        assert_eq!(client.message().await.header("x-routed-source"), Some("header.x-session-id"));
    }
}

#[tokio::test]
async fn gateway_7_a_malformed_context_window_is_a_400_before_the_body_and_before_a_slot() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    for bad in ["", "0", "-1", "+1", "1.5", "128k", "18446744073709551616", "1\r\nX-Model-Context-Window: 2"] {
        // The body never comes: an answer means that it was not waited for.
        let mut client = connect(replica.addr).await;
        let head = "POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 10\r\nX-Model-Context-Window: ";
        client.write(format!("{head}{bad}\r\n\r\n")).await;
        let answer = client.message().await;
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status(), json["error"]["code"].as_str()), (400, Some("invalid_context_window")), "{bad}");
        let message = json["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("x-model-context-window: positive integer expected"), "{message}");
    }
    assert!(control.heartbeat().await.is_empty(), "no lease was asked for");
    // The control: whole numbers are asked for as they are, and none as 0.
    for (headers, tokens) in [(&[("X-Model-Context-Window", " 1000000 ")][..], 1_000_000), (&[], 0)] {
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", headers, "")).await;
        let (op, acquire) = control.acquire().await;
        assert_eq!(acquire.context_tokens, tokens);
        control.send(op, ServerKind::Unsupported(v1::Unsupported {}));
        client.message().await;
    }
}

#[tokio::test]
async fn gateway_7_a_refusal_for_want_of_a_window_names_the_header() {
    let mut control = Control::start(vec![route("chat", &[])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    for (gate, names_it) in [(v1::Gate::ContextWindow, true), (v1::Gate::NoBackend, false)] {
        let refused = v1::Refused { gate: gate.into(), retry_after_s: 5, ..Default::default() };
        control.answers(Answers::Refuse(refused));
        let answer = call(replica.addr, &post("/v1/x", &[("X-Model-Context-Window", "9000")], "{}")).await;
        assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("5")));
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(json["error"]["details"]["header"] == "x-model-context-window", names_it, "{json}");
        assert_eq!(answer.text().contains("window that x-model-context-window asks for"), names_it, "{json}");
        control.acquire().await;
    }
}
