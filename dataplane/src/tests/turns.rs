//! Session turn priority: the header `x-phanrouter-session` (limits.md §9.1, rulings §2).

use super::backend::Backend;
use super::client::{connect, post};
use super::control::{Control, granted, route};
use super::replica::Replica;

const HEADER: &str = r#"{"session_id":"s-9","turn":3}"#;
const LABEL: Option<&str> = Some("header.x-phanrouter-session");

#[tokio::test]
async fn limits_9_1_the_header_counts_while_turns_are_ranked_and_is_any_header_else() {
    for (options, switch, is_ranked, is_passed) in [
        (&[][..], None, false, true),
        (&[("session_prio", "true")], None, true, false),
        (&[("session_prio", "true")], Some("off"), false, true),
        (&[], Some("on"), true, false),
        (&[("session_prio", "true"), ("backend_managed_affinity", "true")], None, true, true),
        (&[("session_prio", "true"), ("affinity", "off")], None, true, false),
    ] {
        let backend = Backend::start().await;
        let mut chat = route("chat", options);
        chat.switches.extend(switch.map(|word: &str| ("session_prio".to_owned(), word.to_owned())));
        let mut control = Control::start(vec![chat]).await;
        let replica = Replica::start(&control, &[]).await;
        control.hello().await;
        let mut client = connect(replica.addr).await;
        client.write(post("/v1/x", &[("X-Phanrouter-Session", HEADER)], "{}")).await;
        let (op, acquire) = control.acquire().await;
        assert_eq!(acquire.turn, if is_ranked { 3 } else { 0 }, "{options:?} {switch:?}");
        assert!(!format!("{acquire:?}").contains("s-9"));
        control.send(op, granted(op, &backend.addr));
        let (mut upstream, request) = backend.request().await;
        let seen = request.header("x-phanrouter-session");
        assert_eq!(seen, is_passed.then_some(HEADER), "{options:?} {switch:?}");
        upstream.answer("{}").await;
        let answer = client.message().await;
        let source = match (is_ranked, acquire.fingerprint.is_empty()) {
            (false, _) => Some("none"),
            (true, true) => Some("affinity_off"),
            (true, false) => LABEL,
        };
        assert_eq!(answer.header("x-routed-source"), source, "{options:?} {switch:?}");
    }
}

#[tokio::test]
async fn limits_14_row_40_an_unusable_header_is_none_and_a_header_source_comes_before_its_id() {
    let long = format!(r#"{{"session_id":"{}","turn":1}}"#, "x".repeat(257));
    let backend = Backend::start().await;
    let mut control = Control::start(vec![route("chat", &[("session_prio", "true")])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    let mut upstream = None;
    for (headers, turn, source) in [
        (&[("X-Phanrouter-Session", HEADER)][..], 3, "header.x-phanrouter-session"),
        (&[("X-Phanrouter-Session", HEADER), ("X-Session-Id", "s")], 3, "header.x-session-id"),
        (&[("X-Phanrouter-Session", HEADER), ("X-Phanrouter-Session", HEADER)], 0, "body.user"),
        (&[("X-Phanrouter-Session", r#"{"session_id":"s","turn":0}"#)], 0, "body.user"),
        (&[("X-Phanrouter-Session", r#"{"session_id":"s","turn":-1}"#)], 0, "body.user"),
        (&[("X-Phanrouter-Session", r#"{"session_id":"s","turn":1.5}"#)], 0, "body.user"),
        (&[("X-Phanrouter-Session", r#"{"session_id":"s","turn":1000000001}"#)], 0, "body.user"),
        (&[("X-Phanrouter-Session", r#"{"session_id":"  ","turn":1}"#)], 0, "body.user"),
        (&[("X-Phanrouter-Session", &long)], 0, "body.user"),
        (&[("X-Phanrouter-Session", "\u{ff}")], 0, "body.user"),
        (&[("X-Phanrouter-Session", r#"{"session_id":"ü","turn":1000000000}"#)], 1_000_000_000, LABEL.unwrap()),
        (&[], 0, "body.user"),
    ] {
        client.write(post("/v1/x", headers, r#"{"user":"u"}"#)).await;
        let (op, acquire) = control.acquire().await;
        assert_eq!(acquire.turn, turn, "{headers:?}");
        control.send(op, granted(op, &backend.addr));
        let wire = match &mut upstream {
            Some(wire) => wire,
            none => none.insert(backend.accept().await),
        };
        wire.message().await;
        wire.answer("{}").await;
        assert_eq!(client.message().await.header("x-routed-source"), Some(source), "{headers:?}");
        control.release().await;
    }
}

#[tokio::test]
async fn the_turn_is_known_before_the_body_is_in() {
    let mut control = Control::start(vec![route("chat", &[("session_prio", "true")])]).await;
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    let mut client = connect(replica.addr).await;
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 4\r\nX-Phanrouter-Session: {HEADER}\r\n\r\n");
    client.write(head).await;
    let (op, reserve) = control.reserve().await;
    assert_eq!(reserve.turn, 3);
    control.send(op, granted(7, ""));
    client.write("body").await;
    let (_, acquire) = control.acquire().await;
    assert_eq!((acquire.reservation, acquire.turn), (7, 3));
}
