//! Lines of the full log.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-06-18T05:00:00Z";

fn record(meta: &str, request: &[u8], response: &[u8]) -> Option<Record> {
    let frame = Contents { meta: meta.as_bytes(), request, response };
    Record::new(&frame, [10, 0, 0, 1].into(), NOW.parse().unwrap(), &TimeZone::UTC)
}

fn line(record: &Record) -> Value {
    let text = std::str::from_utf8(&record.line).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "one line with its end: {text}");
    serde_json::from_str(text).unwrap()
}

#[test]
fn payloads_7_2_meta_is_kept_and_the_rest_is_added() {
    let meta = "{\"ts\": \"2026-06-18T12:48:00.000+08:00\", \"rt\": 1.250,\r\n \"status\": 200, \"new\": 1.00,
        \"source_addr\": \"1.1.1.1\", \"resp_meta\": \"forged\", \"request_id\": \"r1\", \"peer\": \"10.0.0.9:80\",
        \"req_headers\": {\"a\": [\"1\", \"2\"]}, \"resp_bytes\": 77, \"first_chunk_t\": 0.5, \"route\": \"chat\"}";
    let record = record(
        meta,
        br#"{"stream":true}"#,
        b"data: {\"model\":\"m\",\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n",
    )
    .unwrap();
    assert_eq!(
        line(&record),
        json!({"ts": "2026-06-18T12:48:00.000+08:00", "rt": 1.25, "status": 200, "new": 1.0, "request_id": "r1",
            "peer": "10.0.0.9:80", "req_headers": {"a": ["1", "2"]}, "resp_bytes": 77, "first_chunk_t": 0.5,
            "route": "chat", "source_addr": "10.0.0.1", "req_body": "{\"stream\":true}", "resp_body": "Hi",
            "resp_meta": {"finish_reason": "stop", "model": "m"}, "ts_end": "2026-06-18T12:48:01.250+08:00"})
    );
    assert!(String::from_utf8_lossy(&record.line).contains("\"new\":1.00,"), "numbers keep their text");
    let details = &record.details;
    assert_eq!((details.stream, details.frt, details.rt), (Some(true), 0.5, 1.25));
    assert_eq!((details.req_bytes, details.resp_bytes, details.stored_resp_bytes), (15, 77, 2));
    assert_eq!((details.model.as_str(), details.finish_reason.as_str()), ("m", "stop"));
    assert_eq!((details.route.as_str(), details.key_id.as_str(), details.refused.as_str()), ("chat", "", ""));
    assert_eq!(record.end, "2026-06-18T04:48:01.250Z".parse().unwrap());
}

#[test]
fn a_row_tells_who_was_refused_for_what_and_the_model_that_was_asked_for() {
    let meta = r#"{"status":429,"route":"chat","key_id":"k-1","refused":"rule:no tools"}"#;
    let refused = record(meta, br#"{"messages":[],"model":"m-1"}"#, b"{}").unwrap();
    let row: Value = serde_json::from_slice(&refused.details.line()).unwrap();
    let fields = ["route", "key_id", "refused", "model"].map(|name| row[name].as_str().unwrap());
    assert_eq!(fields, ["chat", "k-1", "rule:no tools", "m-1"]);
    let full = line(&refused);
    assert_eq!((&full["key_id"], &full["refused"]), (&json!("k-1"), &json!("rule:no tools")));
    assert!(refused.details.model_is_asked);
    // The answer's own name comes first; what is no text, or cut off, is no model.
    let answer = br#"{"model":"real","choices":[{"text":"x"}]}"#;
    let answered = record(r#"{"status":200}"#, br#"{"model":"alias"}"#, answer).unwrap().details;
    assert_eq!((answered.model.as_str(), answered.model_is_asked), ("real", false));
    for request in [&br#"{"model":7}"#[..], br#"{"model":"m"#, b"", b"\xff", b"[]"] {
        let row = record(r#"{"status":429}"#, request, b"").unwrap().details.line();
        let row: Value = serde_json::from_slice(&row).unwrap();
        for name in ["model", "route", "key_id", "refused"] {
            assert!(row.get(name).is_none(), "{name}: {row}");
        }
    }
}

#[test]
fn payloads_7_2_what_is_no_text_is_base64_and_no_answer_is_kept_raw() {
    let record = record("{\"status\":200}", b"\xff\x00", b"\xfe").unwrap();
    let line = line(&record);
    assert_eq!((&line["req_body"], &line["req_body_b64"]), (&json!("/wA="), &json!(true)));
    assert_eq!((&line["resp_body"], &line["resp_body_b64"]), (&json!("/g=="), &json!(true)));
    assert!(line.get("resp_meta").is_none());
    assert_eq!((record.details.stream, record.details.req_bytes, record.details.resp_bytes), (None, 4, 4));
}

#[test]
fn payloads_7_2_from_400_on_the_answer_is_raw() {
    let body = r#"{"error": {"message": "no"}}"#;
    let refused = line(&record("{\"status\":400}", b"", body.as_bytes()).unwrap());
    assert_eq!((&refused["resp_body"], refused.get("resp_meta")), (&json!(body), None));
    let answered = line(&record("{\"status\":200}", b"", body.as_bytes()).unwrap());
    assert_eq!((&answered["resp_body"], &answered["resp_meta"]["error"]["message"]), (&json!(""), &json!("no")));
    assert_eq!(answered["req_body"], "");
}

#[test]
fn meta_that_is_no_object_is_no_record() {
    for meta in ["", "{", "[]", "7", "null", "{} {}", "{\"a\":\u{1}}"] {
        assert!(record(meta, b"", b"").is_none(), "{meta}");
    }
    assert!(record("{}", b"", b"").is_some());
}

#[test]
fn hostile_meta_gives_believable_numbers() {
    let nested = format!(r#"{{"x": {}{}, "rt": 0}}"#, "[".repeat(30_000), "]".repeat(30_000));
    for meta in [
        r#"{"ts": "2026-06-18T04:00:00Z", "rt": 1e300, "status": 1e9, "resp_bytes": -5, "chunk_count": 1e99}"#,
        r#"{"ts": "9999-12-31T23:59:59Z", "rt": 2592000, "status": "200", "first_chunk_t": -1}"#,
        r#"{"ts": "never", "rt": "1", "status": null, "uri": 7, "peer": ["x"]}"#,
        r#"{"ts": 5, "rt": {}}"#,
        &nested,
    ] {
        let record = record(meta, b"", b"").unwrap();
        line(&record);
        let row: Value = serde_json::from_slice(&record.details.line()).unwrap();
        assert_eq!((&row["chunk_count"], &row["frt"], &row["status"]), (&json!(0), &json!(0.0), &json!(0)), "{meta}");
        assert!(record.details.rt <= LONGEST);
    }
    let untimed = record("{}", b"", b"").unwrap();
    assert_eq!(
        (untimed.end, line(&untimed)["ts_end"].as_str()),
        (NOW.parse().unwrap(), Some("2026-06-18T05:00:00.000+00:00"))
    );
}
