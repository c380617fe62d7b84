//! `/<route>/_…`: the control plane's answer, and what a replica adds to it (rulings §5, payloads.md §9).

use std::collections::HashMap;

use router_proto::v1;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::backend::{Message, nobody};
use super::client::{call, get, post};
use super::control::{Control, route};
use super::replica::Replica;
use super::soon;

const PEERS: [&str; 3] = ["10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.13:8000"];

async fn with(options: &[(&str, &str)], flags: &[&str]) -> (Control, Replica) {
    let mut chat = route("chat", options);
    let backend = |address: &str| v1::Backend { address: address.to_owned(), ..Default::default() };
    chat.backends = PEERS.map(backend).into();
    chat.backends[1].name = "two".to_owned();
    chat.backends[2].condition = Some(v1::Condition { banned: true, ..Default::default() });
    let control = Control::start(vec![chat]).await;
    let (replica, ready) = Replica::launch_with(&control, flags, Some("token")).await;
    soon("ready", ready).await.unwrap();
    (control, replica)
}

fn json_of(answer: &Message) -> Json {
    serde_json::from_slice(&answer.body).unwrap()
}

fn query(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[tokio::test]
async fn rulings_5_the_admin_port_passes_pages_on() {
    let (mut control, replica) = with(&[], &[]).await;
    control.page(200, r#"{"route":"chat","active_level":1}"#, "1");
    for request in [get("/chat/_route_state?a=1&a=2&b=x%20y"), post("/chat/_route_state?a=2&b=x+y", &[], "body")] {
        let answer = call(replica.admin, &request).await;
        assert_eq!((answer.status(), answer.text()), (200, r#"{"route":"chat","active_level":1}"#));
        assert_eq!(answer.header("x-routed-active-level"), Some("1"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let (asked, token) = control.page_asked().await;
        assert_eq!((asked.route.as_str(), asked.page.as_str(), asked.is_loopback), ("chat", "_route_state", true));
        assert_eq!(asked.query, query(&[("a", "2"), ("b", "x y")]));
        assert_eq!((asked.request, token.as_deref()), (None, Some("Bearer token")));
    }
    // Statuses are the control plane's: also of a route that this replica does not know.
    control.page(404, r#"{"error":"no such route"}"#, "");
    let answer = call(replica.admin, &get("/other/_route_debug?sid=s")).await;
    assert_eq!((answer.status(), answer.header("x-routed-active-level")), (404, None));
    let asked = control.page_asked().await.0;
    assert_eq!((asked.route.as_str(), asked.query.len()), ("other", 0), "ids stay here");
    // Through a proxy, nobody is on this machine.
    let proxied = "GET /chat/_x HTTP/1.1\r\nHost: r\r\nX-Forwarded-For: 10.0.0.9\r\n\r\n";
    call(replica.admin, proxied).await;
    assert!(!control.page_asked().await.0.is_loopback);
    for (path, status) in [("/chat/route_state", 404), ("/_route_state", 404), ("/v1/_x", 404), ("/chat/_x?a=%ff", 400)]
    {
        let answer = call(replica.admin, &get(path)).await;
        assert_eq!((answer.status(), json_of(&answer)["error"].is_string()), (status, true), "{path}");
    }
    assert!(control.no_page_asked());
}

#[tokio::test]
async fn a_control_plane_that_can_t_be_reached_is_a_503() {
    let (mut control, replica) = with(&[], &[]).await;
    control.no_pages();
    let answer = call(replica.admin, &get("/chat/_route_state")).await;
    assert_eq!((answer.status(), json_of(&answer)["route"].as_str()), (503, Some("chat")));
    control.page_asked().await;
    drop(control);
    let answer = call(replica.admin, &get("/chat/_route_state")).await;
    assert_eq!((answer.status(), json_of(&answer)["error"].is_string()), (503, true));
}

#[tokio::test]
async fn a_change_that_nobody_answered_may_have_been_made() {
    let (mut control, replica) = with(&[], &[]).await;
    control.no_pages();
    let ask = async |path: &str| {
        let request = format!("POST {path} HTTP/1.1\r\nHost: localhost:8090\r\nContent-Length: 0\r\n\r\n");
        let answer = call(replica.admin, &request).await;
        assert_eq!(answer.status(), 503);
        let json = json_of(&answer);
        (json["error"].as_str().unwrap().to_owned(), json["see"].as_str().map(str::to_owned))
    };
    let late = "the control plane did not answer in time";
    let [toggled, read] = ["/chat/_ttft_429_toggle?on=0", "/chat/_ttft_limit"].map(&ask);
    // Two seconds each, so both at once.
    let ((error, see), (plain, nowhere)) = tokio::join!(toggled, read);
    assert_eq!(error, format!("{late}; whether the change was made is not known, /chat/_ttft_status shows it"));
    assert_eq!(see.as_deref(), Some("/chat/_ttft_status"));
    assert_eq!((plain.as_str(), nowhere), (late, None), "the control: nothing was to change");
    control.page_asked().await;
}

#[tokio::test]
async fn a_change_that_found_no_control_plane_was_not_made() {
    let mut control = Control::start(vec![]).await;
    control.addr = nobody().await.parse().unwrap();
    let (replica, _) = Replica::launch(&control, &[]).await;
    let answer = call(replica.admin, &get("/chat/_tps_toggle?on=0")).await;
    let expected = json!({"error": "the control plane can't be reached", "route": "chat"});
    assert_eq!((answer.status(), json_of(&answer)), (503, expected));
}

#[tokio::test]
async fn rulings_5_the_traffic_port_has_pages_only_with_its_flag_and_for_this_machine() {
    let proxied = "GET /chat/_route_state HTTP/1.1\r\nHost: r\r\nX-Forwarded-For: 10.0.0.9\r\n\r\n";
    let (mut control, without) = with(&[], &[]).await;
    control.page(200, "{}", "");
    assert_eq!(call(without.addr, &get("/chat/_route_state")).await.status(), 404);
    assert!(control.no_page_asked());
    let (mut control, with_flag) = with(&[], &["--debug-endpoints"]).await;
    control.page(200, "{}", "");
    assert_eq!(call(with_flag.addr, &get("/chat/_route_state")).await.status(), 200);
    assert!(control.page_asked().await.0.is_loopback);
    assert_eq!(call(with_flag.addr, proxied).await.status(), 404);
    // Below `/v1/` everything is a backend's.
    assert_eq!(
        json_of(&call(with_flag.addr, &post("/v1/_x", &[("X-Model-Context-Window", "x")], "")).await)["error"]["code"],
        "invalid_context_window"
    );
    assert!(control.no_page_asked());
}

#[tokio::test]
async fn payloads_9_route_debug_weighs_a_session_and_does_not_send_its_id() {
    let page = r#"{"route":"chat","natural_target":"10.0.0.13:8000","actual_pick":"two","actual_mode":"rendezvous"}"#;
    let (mut control, replica) = with(&[("affinity", "rendezvous")], &[]).await;
    control.page(200, page, "0");
    let answer = call(replica.admin, &get("/chat/_route_debug?sid=s1&model=m")).await;
    let (asked, _) = control.page_asked().await;
    assert_eq!(asked.query, query(&[("model", "m")]), "without the id");
    let request = asked.request.unwrap();
    assert_eq!((request.model.as_str(), request.crc32), ("m", None));
    assert_eq!(request.ranked, [PEERS[2], PEERS[1], PEERS[0]]);
    assert_eq!(
        json_of(&answer),
        json!({
            "route": "chat", "session_id": "s1", "algorithm": "rendezvous", "session_affinity_enabled": true,
            "natural_target": "10.0.0.13:8000", "natural_hash": 3_210_207_237_u32,
            "actual_pick": "two", "actual_hash": 3_107_275_424_u32, "actual_mode": "rendezvous",
            "scores": [
                {"idx": 1, "name": "10.0.0.11:8000", "hash": 696_383_518, "banned": false},
                {"idx": 2, "name": "two", "hash": 3_107_275_424_u32, "banned": false},
                {"idx": 3, "name": "10.0.0.13:8000", "hash": 3_210_207_237_u32, "banned": true},
            ],
        })
    );
    // What says that something is wrong stays as it is.
    let wrong = r#"{"error":"model_not_supported","supported_models":["a"]}"#;
    control.page(200, wrong, "");
    assert_eq!(call(replica.admin, &get("/chat/_route_debug?model=x")).await.text(), wrong);

    let (mut control, replica) = with(&[("affinity", "hash")], &[]).await;
    control.page(200, page, "0");
    let answer = json_of(&call(replica.admin, &get("/chat/_route_debug")).await);
    let crc32 = control.page_asked().await.0.request.unwrap().crc32.unwrap();
    assert_eq!(crc32, 0xe35e_00df, "of `default`");
    assert_eq!((&answer["session_id"], &answer["algorithm"]), (&json!("default"), &json!("crc32")));
    assert_eq!((&answer["natural_hash"], &answer["actual_hash"]), (&json!(crc32), &json!(crc32)));
    assert!(answer.get("scores").is_none());
}

#[tokio::test]
async fn payloads_9_route_inspect_reads_a_request_as_if_it_were_served() {
    let options = [("affinity", "rendezvous"), ("session_prio", "true"), ("max_body_size", "1KiB")];
    let (mut control, replica) = with(&options, &[]).await;
    control.publish(|snapshot| {
        let sha256 = Sha256::digest("sk-1").to_vec().into();
        snapshot.keys = vec![v1::Key { id: "k1".into(), name: "one".into(), sha256 }];
    });
    replica.sees_snapshot(2).await;
    control.page(200, r#"{"route":"chat","pick":"10.0.0.12:8000","mode":"rendezvous","active_level":0}"#, "0");
    let inspected = post(
        "/chat/_route_inspect?x=1",
        &[("Authorization", "Bearer sk-1")],
        r#"{"model":"m","user":"abc","stream":true}"#,
    );
    let answer = call(replica.admin, &inspected).await;
    assert_eq!(answer.header("x-routed-active-level"), Some("0"));
    assert_eq!(
        json_of(&answer),
        json!({"route": "chat", "session_id": "abc", "source": "body.user", "mode": "rendezvous",
            "hash": 3_479_913_572_u32, "pick": "10.0.0.12:8000", "active_level": 0, "cch_stripped": false})
    );
    let (asked, _) = control.page_asked().await;
    assert!(!format!("{asked:?}").contains("abc"), "{asked:?}");
    assert_eq!((asked.session_source.as_str(), &asked.query), ("body.user", &query(&[("x", "1")])));
    let request = asked.request.unwrap();
    assert_eq!((request.model.as_str(), request.key_id.as_str(), request.turn), ("m", "k1", 0));
    assert_eq!((request.fingerprint.len(), &request.ranked[0]), (16, &PEERS[1].to_owned()));
    assert!(request.hints.unwrap().stream);
    // The turn and its id, without a key; and no id at all.
    let turn = post("/chat/_route_inspect", &[("X-Phanrouter-Session", r#"{"session_id":"s1","turn":4}"#)], "");
    let answer = json_of(&call(replica.admin, &turn).await);
    assert_eq!((&answer["session_id"], &answer["source"]), (&json!("s1"), &json!("header.x-phanrouter-session")));
    assert_eq!(control.page_asked().await.0.request.unwrap().turn, 4);
    let answer = json_of(&call(replica.admin, &get("/chat/_route_inspect")).await);
    assert_eq!((answer.get("session_id"), &answer["source"]), (None, &json!("none")));
    control.page_asked().await;
    // Too much to read.
    let refused =
        call(replica.admin, "POST /chat/_route_inspect HTTP/1.1\r\nHost: r\r\nContent-Length: 1025\r\n\r\n").await;
    assert_eq!(refused.status(), 413);
    assert!(control.no_page_asked());
    assert!(control.heartbeat().await.iter().all(|kind| matches!(kind, v1::client_op::Kind::Hello(_))), "no lease");
}

#[tokio::test]
async fn payloads_9_cch_test_is_answered_here_and_counts_nothing() {
    let (mut control, replica) = with(&[], &["--debug-endpoints"]).await;
    let body = r#"{"model":"m","user":"abc"}"#;
    let expected = json!({"route": "chat", "cch_stripped": false, "session_id": "abc", "source": "body.user",
        "body_len": 26, "body_md5": "efab59ae29028de3e5f4740213e79c68", "bodylog_len": 26,
        "bodylog_md5": "efab59ae29028de3e5f4740213e79c68", "bodylog_differs": false});
    for (port, path) in [(replica.admin, "/chat/_cch_test"), (replica.addr, "/chat/_cch_test?full=0")] {
        let answer = call(port, &post(path, &[], body)).await;
        assert_eq!((answer.status(), json_of(&answer)), (200, expected.clone()), "{path}");
    }
    let full = json_of(&call(replica.admin, &post("/chat/_cch_test?full=1", &[], body)).await);
    assert_eq!(full["body_after"], body);
    let none = json_of(&call(replica.admin, &get("/chat/_cch_test")).await);
    assert_eq!((none.get("session_id"), &none["source"], &none["body_len"]), (None, &json!("none"), &json!(0)));
    // Whoever is not on this machine may not look.
    let far = call(replica.admin, &post("/chat/_cch_test", &[("X-Forwarded-For", "10.0.0.9")], body)).await;
    assert_eq!((far.status(), json_of(&far)["error"].is_string()), (403, true));
    assert!(control.no_page_asked());
    assert!(replica.metrics().await.contains("router_bodies_parsed_total{route=\"chat\"} 0\n"));
    // The control: what is inspected counts like any request. And a route that only the control plane knows.
    control.page(200, "{}", "");
    call(replica.admin, &post("/chat/_route_inspect", &[], body)).await;
    assert!(replica.metrics().await.contains("router_bodies_parsed_total{route=\"chat\"} 1\n"));
    control.page_asked().await;
    control.page(404, "{}", "");
    assert_eq!(call(replica.admin, &post("/other/_cch_test", &[], body)).await.status(), 404);
    assert_eq!(control.page_asked().await.0.request, None);
}

#[tokio::test]
async fn payloads_9_a_look_at_a_switch_needs_no_post_and_a_change_does() {
    let (mut control, replica) = with(&[], &["--debug-endpoints"]).await;
    control.page(200, "{}", "");
    let post_here = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost:8090\r\nContent-Length: 0\r\n\r\n");
    for page in ["bodylog", "cch_strip", "kimi_normalize", "include_usage", "system_hoist", "reject_rules"] {
        let page = format!("/chat/_{page}_toggle");
        for look in ["", "?on=2", "?reset=0", "?ttl=5"] {
            for port in [replica.admin, replica.addr] {
                call(port, &get(&format!("{page}{look}"))).await;
                assert!(control.page_asked().await.0.is_loopback, "{page}{look}");
            }
        }
        for change in ["?on=0", "?on=true", "?reset=1"] {
            let path = format!("{page}{change}");
            call(replica.admin, &get(&path)).await;
            assert!(!control.page_asked().await.0.is_loopback, "a link: {path}");
            call(replica.addr, &post_here(&path)).await;
            assert!(!control.page_asked().await.0.is_loopback, "a proxy may be in front: {path}");
            call(replica.admin, &post_here(&path)).await;
            assert!(control.page_asked().await.0.is_loopback, "{path}");
        }
    }
    call(replica.admin, &get("/chat/_bodylog_toggle?pct=5")).await;
    assert!(!control.page_asked().await.0.is_loopback);
    // Where to see what became of it.
    control.no_pages();
    let [log, usage] = ["/chat/_bodylog_toggle?pct=5", "/chat/_include_usage_toggle?on=1"].map(post_here);
    let (log, usage) = tokio::join!(call(replica.admin, &log), call(replica.admin, &usage));
    assert_eq!(json_of(&log)["see"], "/chat/_bodylog_status");
    assert_eq!(json_of(&usage)["see"], "/chat/_include_usage_toggle");
}

#[tokio::test]
async fn route_debug_means_the_sessions_of_the_client_s_key() {
    let (mut control, replica) = with(&[], &[]).await;
    control.publish(|snapshot| {
        let sha256 = Sha256::digest("sk-1").to_vec().into();
        snapshot.keys = vec![v1::Key { id: "k1".into(), name: "one".into(), sha256 }];
    });
    replica.sees_snapshot(2).await;
    control.page(200, "{}", "");
    let debug = |header: &str| format!("GET /chat/_route_debug?sid=abc HTTP/1.1\r\nHost: r\r\n{header}\r\n");
    let mut asked = async |page: &str| {
        call(replica.admin, page).await;
        let request = control.page_asked().await.0.request.unwrap();
        (request.key_id, request.fingerprint)
    };
    let (key_id, of_key) = asked(&debug("Authorization: Bearer sk-1\r\n")).await;
    assert_eq!(key_id, "k1");
    assert_eq!(asked(&debug("X-Api-Key: sk-1\r\n")).await, (key_id.clone(), of_key.clone()));
    // As the one that is inspected, which is read as if it were served.
    let inspected = post("/chat/_route_inspect", &[("Authorization", "Bearer sk-1")], r#"{"user":"abc"}"#);
    assert_eq!(asked(&inspected).await, (key_id, of_key.clone()));
    // The control: without a key that is known, it is nobody's.
    let nobody = asked(&debug("")).await;
    assert_eq!((nobody.0.as_str(), nobody.1 == of_key), ("", false));
    assert_eq!(asked(&debug("Authorization: Bearer sk-2\r\n")).await, nobody);
}
