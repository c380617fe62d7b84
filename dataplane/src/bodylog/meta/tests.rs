use super::*;
use crate::bodylog::capture::HEAD_MAX;
use crate::bodylog::record::tests::Fixture;
use crate::coordinate::Refused;
use crate::request::error::Error;
use crate::request::payload::Rejected;
use http::{HeaderValue, StatusCode};
use router_policy::refusal::Gate;
use router_proto::v1::Mode;

fn request(headers: &[(&str, &[u8])]) -> http::request::Builder {
    headers.iter().fold(http::Request::post("/chat/v1/x?q=1"), |request, (name, value)| {
        request.header(*name, HeaderValue::from_bytes(value).unwrap())
    })
}

/// The meta object of a request with these headers.
fn meta_of(headers: &[(&str, &[u8])]) -> Value {
    meta(request(headers), |_| ())
}

fn meta_of_uri(uri: &str) -> Value {
    meta(http::Request::post(uri), |_| ())
}

fn meta(request: http::request::Builder, fill: impl FnOnce(&mut crate::bodylog::record::Record)) -> Value {
    let mut fixture = Fixture::new("100", 64 << 20);
    let mut record = fixture.begin(request).unwrap();
    fill(&mut record);
    drop(record);
    let text = text(&fixture.records.try_recv().unwrap(), &zone::parse("Asia/Shanghai").unwrap());
    assert!(text.len() <= MAX_META, "{}", text.len());
    serde_json::from_slice(&text).unwrap()
}

fn keys(meta: &Value) -> Vec<&str> {
    meta.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn payloads_6_1_the_object_has_these_fields_and_absent_ones_are_left_out() {
    let always = [
        "ts",
        "route",
        "request_id",
        "client_ip",
        "method",
        "uri",
        "req_headers",
        "req_body_truncated",
        "session_src",
        "status",
        "resp_bytes",
        "resp_body_truncated",
        "chunk_count",
        "rt",
    ];
    let left = meta_of(&[]);
    assert_eq!(keys(&left), always);
    assert_eq!(
        (&left["status"], &left["uri"], &left["session_src"]),
        (&json!(499), &json!("/chat/v1/x?q=1"), &json!("none"))
    );
    let whole = meta(request(&[]), |record| {
        record.request(&bytes::Bytes::from_static(b"q"));
        record.session(&HeaderValue::from_static("header.x-session-id"), Some(b"s".to_vec()));
        record.chosen(Mode::LeastConn, &"10.0.0.9:80".into(), 0);
        record.answered(StatusCode::OK, Some(&HeaderValue::from_static("http://10.0.0.5:8000/x")));
        record.saw(&vec![b'r'; HEAD_MAX]);
        record.saw(b"more");
        record.is_whole();
    });
    for more in ["peer", "forwarded_to", "session_id", "mode", "first_chunk_t", "last_chunk_t"] {
        assert!(whole.get(more).is_some() && left.get(more).is_none(), "{more}");
    }
    assert_eq!(keys(&whole).len(), always.len() + 6);
    assert_eq!(
        ["peer", "mode", "session_id", "resp_bytes", "resp_body_truncated", "chunk_count"]
            .map(|name| whole[name].clone()),
        [json!("10.0.0.9:80"), json!("least_conn"), json!("s"), json!(HEAD_MAX + 4), json!(true), json!(2)]
    );
    let ts = whole["ts"].as_str().unwrap();
    assert!(ts.len() == "2026-06-18T12:48:01.250+08:00".len() && ts.ends_with("+08:00"), "{ts}");
    assert!(whole["rt"].is_f64() && whole["first_chunk_t"].as_f64() <= whole["rt"].as_f64());
}

#[test]
fn payloads_6_1_a_peer_says_how_many_failed_before_it() {
    let meta = meta(request(&[]), |record| record.chosen(Mode::Moved, &"h:1".into(), 2));
    assert_eq!(meta["peer"], "h:1 (retry#2)");
}

#[test]
fn a_refusal_says_what_it_was_for_and_other_failures_do_not() {
    let of = |error: &Error| meta(request(&[]), |record| record.failed(error)).get("refused").cloned();
    assert_eq!(of(&Error::Refused(Refused::by(Gate::QueueFull))), Some(json!("queue_full")));
    let rejected = Rejected { rule: "no tools".into(), status: 429, message: "m".into(), route: "r".into() };
    assert_eq!(of(&Error::RejectedByRule(rejected)), Some(json!("rule:no tools")));
    assert_eq!((of(&Error::BackendUnreachable), of(&Error::HiddenStatus { status: 404 })), (None, None));
}

#[test]
fn payloads_6_1_secrets_are_left_out_in_any_case() {
    let names = [
        "Authorization",
        "COOKIE",
        "x-Api-Key",
        "X-LiteLLM-API-Key",
        "x-auth-token",
        "Proxy-Authorization",
        "Api-Key",
        "X-Goog-Api-Key",
    ];
    let mut headers: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, &b"hidden"[..])).collect();
    headers.push(("X-Session-Id", b"shown"));
    let meta = meta_of(&headers);
    assert_eq!(meta["req_headers"], json!({"x-session-id": "shown"}));
    assert!(!meta.to_string().contains("hidden"));
    let query = meta_of_uri("/r/v1/x?%61pi_key=hidden&a=shown&KEY=hidden");
    assert_eq!(query["uri"], "/r/v1/x?%61pi_key=redacted&a=shown&KEY=redacted");
}

#[test]
fn payloads_6_1_repeated_headers_are_a_list_and_what_is_not_utf_8_is_base64() {
    let meta = meta_of(&[("a", b"1"), ("b", b"\xff\xfe"), ("a", b"2"), ("a", "é".as_bytes()), ("c", b"")]);
    assert_eq!(meta["req_headers"], json!({"a": ["1", "2", "é"], "b": "base64://4=", "c": ""}));
}

#[test]
fn payloads_6_2_a_long_meta_loses_its_largest_headers_first() {
    let (large, larger) = (vec![b'l'; 30_000], vec![b'L'; 40_000]);
    let fits = meta_of(&[("small", b"s"), ("large", &large)]);
    assert_eq!((fits["req_headers"]["large"].as_str().unwrap().len(), fits.get("req_headers_trimmed")), (30_000, None));
    let trimmed = meta_of(&[("small", b"s"), ("larger", &larger), ("large", &large)]);
    assert_eq!(trimmed["req_headers_trimmed"], true);
    assert_eq!(keys(&trimmed["req_headers"]), ["small", "large"]);
    // The last byte that fits.
    let room = MAX_META - written(&meta_of(&[("a", b"")])).len();
    let full = vec![b'f'; room - 8];
    assert!(meta_of(&[("a", &full)])["req_headers"]["a"].is_string());
    let over = vec![b'f'; room + 8];
    assert!(meta_of(&[("a", &over)])["req_headers"].get("a").is_none());
}

#[test]
fn payloads_6_2_a_meta_that_is_long_without_headers_too_is_cut() {
    let uri = format!("/{}", "\"".repeat(60_000));
    let session = "é\n".repeat(30_000);
    let meta = meta(http::Request::post(uri.as_str()).header("a", "b"), |record| {
        record.session(&HeaderValue::from_static("body.user"), Some(session.clone().into_bytes()));
        record.answered(StatusCode::OK, None);
    });
    assert_eq!(
        (&meta["status"], &meta["req_headers"], &meta["req_headers_trimmed"]),
        (&json!(200), &json!({}), &json!(true))
    );
    assert_eq!(meta["uri"].as_str().unwrap(), &uri[..URI_CUT]);
    assert!(session.starts_with(meta["session_id"].as_str().unwrap()));
    assert!((CUT - 3..=CUT).contains(&meta["session_id"].as_str().unwrap().len()));
}
