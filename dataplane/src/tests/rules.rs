//! Requests that a route's rules refuse (payloads.md §4.5).

use router_proto::v1::client_op::Kind;
use serde_json::{Value as Json, json};

use super::backend::{Backend, Message};
use super::client::{call, connect, post};
use super::control::{Control, granted, route};
use super::replica::Replica;

const RULES: &str = r#"[
    {"name": "no_danger", "field": "model", "op": "eq", "value": "danger"},
    {"field": "input_bytes", "op": "gt", "value": 100, "status": 413, "message": "too long for this route"}]"#;
const BAD: &str = r#"{"model": "danger", "user": "u"}"#;

async fn start(options: &[(&str, &str)], switch: Option<&str>) -> (Control, Backend, Replica) {
    let backend = Backend::start().await;
    let mut chat = route("chat", &[&[("reject_rules", RULES)], options].concat());
    chat.switches.extend(switch.map(|word| ("reject_rules".to_owned(), word.to_owned())));
    let mut control = Control::start(vec![chat]).await;
    control.grant(&[&backend.addr]);
    let replica = Replica::start(&control, &[]).await;
    control.hello().await;
    (control, backend, replica)
}

const ON: &[(&str, &str)] = &[("reject_rules_default_enabled", "true")];

fn error(answer: &Message) -> Json {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Sends a request that a backend answers.
async fn served(replica: &Replica, backend: &Backend, request: &str) {
    let mut client = connect(replica.addr).await;
    client.write(request).await;
    backend.request().await.0.answer("{}").await;
    assert_eq!(client.message().await.status(), 200, "{request}");
}

#[tokio::test]
async fn payloads_4_5_the_first_rule_that_is_met_answers_in_the_shape_of_its_api() {
    let (mut control, backend, replica) = start(ON, None).await;
    let answer = call(replica.addr, &post("/chat/v1/chat/completions", &[], BAD)).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.header("retry-after"), None, "a second try would end the same way");
    assert_eq!(answer.header("x-router-refused"), Some("rejected_by_rule"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!((answer.header("x-routed-source"), answer.header("x-routed-mode")), (Some("body.user"), None));
    assert_eq!(
        error(&answer),
        json!({"error": {"message": "request rejected by rule 'no_danger'", "type": "rejected_by_rule", "param": null,
            "code": "rejected_by_rule", "details": {"rule": "no_danger", "route": "chat"}}})
    );
    let long = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(100));
    let answer = call(replica.addr, &post("/v1/messages", &[], &long)).await;
    assert_eq!(answer.status(), 413);
    assert_eq!(
        error(&answer),
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "too long for this route"}})
    );
    assert_eq!((answer.header("retry-after"), answer.header("x-router-refused")), (None, Some("rejected_by_rule")));
    // On a slow machine an upload may have taken a slot to come in by; a backend is asked for by none.
    let asked_for_a_backend = |kind: &Kind| matches!(kind, Kind::Acquire(acquire) if !acquire.reserve);
    assert!(!control.heartbeat().await.iter().any(asked_for_a_backend));
    let metrics = replica.metrics().await;
    assert!(metrics.contains(r#"router_requests_total{route="chat",code="429"} 1"#), "{metrics}");
    // The control: another body takes a slot.
    served(&replica, &backend, &post("/v1/chat/completions", &[], r#"{"model": "safe"}"#)).await;
    assert!(control.heartbeat().await.iter().any(asked_for_a_backend));
}

#[tokio::test]
async fn payloads_4_5_the_switch_comes_before_the_option_and_the_master_switch_before_nothing() {
    let off: &[(&str, &str)] = &[];
    let no_load_limit: &[(&str, &str)] = &[("load_rate_limit", "false"), ("reject_rules_status", "403")];
    for (options, switch, status) in
        [(off, None, 200), (off, Some("on"), 429), (ON, Some("off"), 200), (no_load_limit, Some("on"), 403)]
    {
        let (_control, backend, replica) = start(options, switch).await;
        if status == 200 {
            served(&replica, &backend, &post("/v1/x", &[], BAD)).await;
        } else {
            assert_eq!(call(replica.addr, &post("/v1/x", &[], BAD)).await.status(), status, "{options:?} {switch:?}");
        }
    }
}

#[tokio::test]
async fn payloads_2_2_what_is_json_is_judged_under_any_content_type_and_nothing_else_is() {
    let (_control, backend, replica) = start(ON, None).await;
    let (list, text) = (format!("[\"{}\"]", "x".repeat(100)), format!("\"{}\"", "x".repeat(100)));
    for kind in ["application/json", "text/plain", "multipart/form-data; boundary=x"] {
        let answer = call(replica.addr, &post("/v1/x", &[("Content-Type", kind)], BAD)).await;
        assert_eq!(answer.status(), 429, "{kind}");
        let answer = call(replica.addr, &post("/v1/x", &[("Content-Type", kind)], &list)).await;
        assert_eq!(answer.status(), 413, "a list has no fields, but a length");
    }
    for passed in [text.as_str(), "", &list[..102], &format!("{BAD}{BAD}{BAD}{BAD}"), "--x\r\nContent-Type: y\r\n"] {
        served(&replica, &backend, &post("/v1/x", &[], passed)).await;
    }
    // Nor are requests for the list of models, whose body is no prompt.
    served(&replica, &backend, &post("/v1/models", &[], BAD)).await;
    assert_eq!(call(replica.addr, &post("/v1/models/x", &[], BAD)).await.status(), 429);
}

#[tokio::test]
async fn a_slot_that_was_taken_for_the_upload_is_given_back() {
    let (mut control, backend, replica) = start(ON, None).await;
    control.answers(super::control::Answers::Hold);
    let mut client = connect(replica.addr).await;
    let request = post("/v1/x", &[("X-Session-Id", "s")], BAD);
    let (begin, end) = request.split_at(request.len() - 10);
    client.write(begin).await;
    let (op, _) = control.reserve().await;
    control.send(op, granted(7, ""));
    client.write(end).await;
    let answer = client.message().await;
    assert_eq!((answer.status(), answer.header("x-routed-source")), (429, Some("header.x-session-id")));
    assert_eq!(control.release().await.lease, 7);
    // The upload was read to its end, so the connection goes on.
    control.grant(&[&backend.addr]);
    client.write(post("/v1/x", &[], "{}")).await;
    backend.request().await.0.answer("ok").await;
    assert_eq!(client.message().await.status(), 200);
}

#[tokio::test]
async fn twenty_megabytes_are_judged_whole_and_their_client_reads_the_refusal() {
    let (mut control, _backend, replica) = start(&[ON, &[("max_body_size", "64MiB")]].concat(), None).await;
    let mut client = connect(replica.addr).await;
    let body = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(20_000_000));
    client.write(post("/v1/x", &[], &body)).await;
    assert_eq!(client.message().await.status(), 413);
    // The rules see the whole of it, so a slot was taken meanwhile. It is free again.
    let (_, reserve) = control.reserve().await;
    assert_eq!(reserve.route, "chat");
    control.release().await;
    client.write(post("/v1/x", &[], BAD)).await;
    assert_eq!(client.message().await.status(), 429, "the connection goes on");
}

#[tokio::test]
async fn rules_change_with_the_snapshot() {
    let (control, backend, replica) = start(&[], None).await;
    served(&replica, &backend, &post("/v1/x", &[], BAD)).await;
    control.publish(|snapshot| {
        snapshot.routes[0].switches.insert("reject_rules".to_owned(), "on".to_owned());
        // One that a newer control plane knows and this replica does not: the others stay.
        let rules = RULES.replacen('[', r#"[{"field": "model", "op": "sounds_like", "value": "danger"},"#, 1);
        snapshot.routes[0].options.insert("reject_rules".to_owned(), rules);
    });
    replica.sees_snapshot(2).await;
    let answer = call(replica.addr, &post("/v1/x", &[], BAD)).await;
    assert_eq!((answer.status(), &error(&answer)["error"]["details"]["rule"]), (429, &json!("no_danger")));
}

#[tokio::test]
async fn what_rules_cannot_read_is_counted_and_refused_where_the_route_says_so() {
    let nan = r#"{"model": "danger", "temperature": NaN}"#;
    let (_control, backend, replica) = start(ON, None).await;
    served(&replica, &backend, &post("/v1/chat/completions", &[], nan)).await;
    served(&replica, &backend, &post("/v1/chat/completions", &[], "")).await;
    let marked = call(replica.addr, &post("/v1/chat/completions", &[], &format!("\u{feff}{BAD}"))).await;
    assert_eq!(marked.status(), 429, "a byte order mark hides nothing");
    let count = |count: u32| format!("router_bodies_not_judged_total{{route=\"chat\"}} {count}\n");
    assert!(replica.metrics().await.contains(&count(1)));

    let refuse = [ON, &[("reject_rules_unreadable", "refuse")]].concat();
    let (_control, backend, replica) = start(&refuse, None).await;
    let answer = call(replica.addr, &post("/v1/chat/completions", &[], nan)).await;
    assert_eq!((answer.status(), &error(&answer)["error"]["code"]), (400, &json!("body_not_json")));
    served(&replica, &backend, &post("/v1/chat/completions", &[], "")).await;
    served(&replica, &backend, &post("/v1/chat/completions", &[], "{}")).await;
    served(&replica, &backend, &post("/v1/files", &[], nan).replacen("POST", "PUT", 1)).await;
    assert!(replica.metrics().await.contains(&count(2)));

    // Rules that are off judge nothing.
    let (_control, backend, replica) = start(&[("reject_rules_unreadable", "refuse")], None).await;
    served(&replica, &backend, &post("/v1/chat/completions", &[], nan)).await;
    assert!(replica.metrics().await.contains(&count(0)));
}

#[tokio::test]
async fn a_transform_that_has_to_leave_a_body_is_counted() {
    let (_control, backend, replica) = start(&[("include_usage_default_enabled", "true")], None).await;
    served(&replica, &backend, &post("/v1/completions", &[], r#"{"stream":true,"stream_options":{}}"#)).await;
    let series = r#"router_transforms_skipped_total{route="chat",transform="include_usage"}"#;
    assert!(!replica.metrics().await.contains(series), "the control");
    served(&replica, &backend, &post("/v1/completions", &[], r#"{"stream":true,"stream_options":5}"#)).await;
    assert!(replica.metrics().await.contains(&format!("{series} 1\n")));
}
