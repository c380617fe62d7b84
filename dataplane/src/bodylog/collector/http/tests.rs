//! Answers of the HTTP port, without a socket.

use axum::body::to_bytes;
use jiff::tz::TimeZone;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::bodylog::collector::record::Record;
use crate::bodylog::collector::write::Writer;
use crate::bodylog::frame::Contents;

const NOW: &str = "2026-06-18T04:48:02Z";

fn asked(folder: &TempDir, token: Option<&str>, with_details: bool) -> Arc<Asked> {
    let places = Places::new(folder.path(), TimeZone::UTC);
    let (minutes, metrics) = (Arc::default(), Arc::new(CollectorMetrics::new()));
    let mut writer = Writer::new(places.clone(), true, Arc::clone(&minutes), Arc::clone(&metrics));
    let meta = br#"{"request_id":"r1","status":200,"ts":"2026-06-18T04:48:00Z","rt":1,"peer":"10.0.0.9:80"}"#;
    let frame = Contents { meta, request: b"a secret body", response: b"" };
    let now = NOW.parse().unwrap();
    writer.keep(&Record::new(&frame, [127, 0, 0, 1].into(), now, &TimeZone::UTC).unwrap(), now).unwrap();
    let token = token.map(|token| Sha256::digest(token).into());
    Arc::new(Asked::new(places, with_details, token, minutes, metrics))
}

async fn ask(asked: &Arc<Asked>, request: &str, authorization: Option<&str>) -> (StatusCode, String, Head) {
    let (method, uri) = request.split_once(' ').unwrap();
    let mut builder = Request::builder().method(method).uri(uri);
    if let Some(value) = authorization {
        builder = builder.header(AUTHORIZATION, value);
    }
    let parts = builder.body(axum::body::Body::empty()).unwrap().into_parts().0;
    let (head, body) = answer(asked, &parts, NOW.parse().unwrap()).await.into_parts();
    let body = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
    (head.status, body, head)
}

type Head = axum::http::response::Parts;

#[tokio::test]
async fn payloads_7_6_the_token_opens_all_but_healthz() {
    let folder = tempfile::tempdir().unwrap();
    let closed = asked(&folder, Some("s3cret"), true);
    for path in ["/summary", "/details?start=0&end=1", "/metrics", "/metrics?start=0&end=1", "/nothing"] {
        let get = format!("GET {path}");
        for wrong in [None, Some("Bearer s3cre"), Some("Bearer "), Some("s3cret"), Some("Basic s3cret")] {
            let (status, body, head) = ask(&closed, &get, wrong).await;
            assert_eq!(
                (status, &head.headers[WWW_AUTHENTICATE]),
                (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap())
            );
            assert!(serde_json::from_str::<Value>(&body).unwrap()["error"]["message"].is_string());
        }
        assert_ne!(ask(&closed, &get, Some("Bearer s3cret")).await.0, StatusCode::UNAUTHORIZED);
        let with_token = format!("{get}{}token=s3cret", if path.contains('?') { '&' } else { '?' });
        assert_ne!(ask(&closed, &with_token, None).await.0, StatusCode::UNAUTHORIZED, "{with_token}");
    }
    let (status, body, _) = ask(&closed, "GET /healthz", None).await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "OK"));
    assert_eq!(ask(&asked(&folder, None, true), "GET /summary", None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn metrics_is_prometheus_and_with_an_end_it_is_the_query() {
    let folder = tempfile::tempdir().unwrap();
    let open = asked(&folder, None, true);
    let (_, text, head) = ask(&open, "GET /metrics", None).await;
    assert!(text.contains("bodylog_requests_total{") && text.ends_with("# EOF\n"), "{text}");
    assert!(head.headers[CONTENT_TYPE].to_str().unwrap().starts_with("application/openmetrics-text"));
    for path in ["/details", "/metrics"] {
        let (status, body, _) = ask(&open, &format!("GET {path}?start=1781758080&end=1781758082"), None).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &answer["count"], &answer["truncated"]), (StatusCode::OK, &1.into(), &false.into()));
        assert_eq!(answer["rows"][0]["request_id"], "r1");
        assert!(answer.get("next_cursor").is_none());
    }
}

#[tokio::test]
async fn a_bad_parameter_is_400_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let open = asked(&folder, None, true);
    for (path, name) in [
        ("/details", "end"),
        ("/details?end=1", "start"),
        ("/details?start=1&end=2&limit=x", "limit"),
        ("/metrics?start=1&end=x", "end"),
        ("/metrics?start=1", "end"),
        ("/metrics?model=m", "end"),
        ("/metrics?cursor=", "end"),
        ("/summary?minutes=x", "minutes"),
        ("/summary?minute=5", "minute"),
    ] {
        let (status, body, _) = ask(&open, &format!("GET {path}"), None).await;
        let error = &serde_json::from_str::<Value>(&body).unwrap()["error"];
        assert_eq!((status, error["param"].as_str()), (StatusCode::BAD_REQUEST, Some(name)), "{path}");
        assert!(error["message"].as_str().unwrap().starts_with(&format!("{name}: ")), "{error}");
    }
    assert_eq!(ask(&open, "POST /summary", None).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(ask(&open, "GET /nothing", None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn without_details_there_is_no_query_and_files_that_fail_are_500() {
    let folder = tempfile::tempdir().unwrap();
    let off = asked(&folder, None, false);
    assert_eq!(ask(&off, "GET /details?start=0&end=1", None).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask(&off, "GET /summary", None).await.0, StatusCode::OK);
    let on = asked(&folder, None, true);
    std::fs::write(folder.path().join("metrics/details/2026-06-18.jsonl.zst"), "not packed").unwrap();
    let (status, body, _) = ask(&on, "GET /details?start=1781758080&end=1781758082", None).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!body.contains(folder.path().to_str().unwrap()), "paths are for the log: {body}");
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_for_its_turn_for_a_bounded_time() {
    let folder = tempfile::tempdir().unwrap();
    let open = asked(&folder, None, true);
    let path = "GET /details?start=1781758080&end=1781758082";
    let turns = open.queries.acquire_many(u32::try_from(QUERIES_AT_ONCE).unwrap()).await.unwrap();
    let (status, _, head) = ask(&open, path, None).await;
    assert_eq!((status, &head.headers[RETRY_AFTER]), (StatusCode::SERVICE_UNAVAILABLE, &"10".parse().unwrap()));
    drop(turns);
    assert_eq!(ask(&open, path, None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_summary_tells_sums_and_no_bodies() {
    let folder = tempfile::tempdir().unwrap();
    let open = asked(&folder, None, true);
    let (_, body, _) = ask(&open, "GET /summary?minutes=2&breakdown=true&stream=0", None).await;
    let unknown: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(unknown["peers"].as_array().unwrap().len(), 0, "a stream that is unknown is not false");
    let (_, body, _) = ask(&open, "GET /summary?breakdown=true", None).await;
    let all: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&all["peers"][0]["requests"], &all["buckets"][0]["peer"]), (&1.into(), &"10.0.0.9:80".into()));
    assert!(!body.contains("secret"));
}
