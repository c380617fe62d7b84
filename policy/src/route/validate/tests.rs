use serde_json::json;

use super::*;
use crate::route::raw::{document_json, route_json};

fn complaints(document: &Json) -> Vec<String> {
    match parse_document(document) {
        Ok(_) => Vec::new(),
        Err(complaints) => complaints.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn a_full_document_is_read_and_prints_back_the_same() {
    let document = json!({"routes": [
        {"name": "chat", "default": true, "preset": "gateway", "options": {
            "max_waiting": 64, "queue_timeout": "3s", "retry_on": ["connect", "502"], "health_probe_path": "/health",
            "extra_session_headers": ["x-smg-routing-key"], "session_idle_ttl": "none"},
         "backends": [
            {"address": "127.0.0.1:19001", "name": "a", "max_concurrency": 8, "health_path": "/ping",
             "context_limit": 32768, "dp_size": 2},
            "127.0.0.1:19002"]},
        {"name": "empty"}]});
    let routes = parse_document(&document).unwrap();
    assert_eq!(routes[0].options().max_waiting, 64);
    assert_eq!(routes[0].options().max_sessions, 16_384, "the preset's");
    assert_eq!(parse_document(&document_json(&routes)).unwrap(), routes);
    assert_eq!(parse_document(&route_json(&routes[0])).unwrap()[..], routes[..1]);
}

#[test]
fn every_complaint_is_reported_at_once_with_its_field() {
    let document = json!({"routes": [
        {"name": "chat", "default": true, "options": {"max_waiting": "many", "max_wait": 1},
         "backends": [{"address": "nowhere"}, {"address": "h:1", "port": 3}, "h:2", "h:2", {"address": "h:3", "name": "ü"}]},
        {"name": "chat", "default": "yes"},
        {"name": "V1"},
        7]});
    let text = complaints(&document).join("\n");
    for expected in [
        "routes.chat.options.max_waiting: integer expected, got string 'many'; allowed: 0..=100000",
        "routes.chat.options.max_wait: unknown option; near it: max_waiting",
        "routes.chat.backends[0].address: allowed: host:port",
        "routes.chat.backends[1].port: unknown field",
        "routes.chat.backends[h:2].address: duplicate: stands twice",
        "routes.chat.backends[4].name: label expected",
        "routes.chat.name: duplicate",
        "routes.chat.default: overlaps route chat",
        "routes.V1.name: allowed: 1 to 64 of a-z",
        "routes[3]: object expected, got number",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
}

#[test]
fn wrong_shapes() {
    assert_eq!(complaints(&json!([])), ["document: object expected, got list"]);
    assert_eq!(complaints(&json!({"routes": {}})), ["routes: list expected, got object"]);
    assert_eq!(complaints(&json!({})), ["route.name: missing; every route needs a name"]);
    let reserved = complaints(&json!({"name": "v1"}));
    assert!(reserved[0].contains("overlaps a path that the router answers itself"), "{reserved:?}");
    assert!(complaints(&json!({"name": "a", "preset": "nginx"}))[0].contains("allowed: none, gateway"));
}

#[test]
fn rulings_6_a_stored_document_keeps_its_good_options() {
    let stored = json!({"name": "a", "options": {"max_waiting": -1, "queue_timeout": "1s"}});
    let (route, complaints) = parse_stored(&stored);
    let options = route.unwrap().options();
    assert_eq!(options.max_waiting, 32);
    assert_eq!(options.queue_timeout.as_secs(), 1);
    assert_eq!(complaints.0.len(), 1);
    assert!(parse_route(&stored).is_err(), "but it can't be applied anew");
}
