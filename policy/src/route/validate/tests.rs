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
    assert!(complaints(&json!({"name": "a", "preset": "nginx"}))[0].contains("allowed: none, gateway, openresty"));
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

#[test]
fn routing_2_peers_and_pools_per_model_are_read() {
    let route = |document: Json| parse_route(&document).unwrap();
    let written = route(json!({"name": "a", "backends": [
        {"address": "10.0.0.1:80", "name": "x", "priority": 10, "max_concurrency": 4},
        {"address": "10.0.0.2:80", "health_path": "/health"}]}));
    let peers = route(json!({"name": "a", "peers": [
        ["10.0.0.1", 80, "x", 10, 4],
        {"host": "10.0.0.2", "port": 80, "probe": "/health", "gpu": "h100"}]}));
    assert_eq!(peers, written);
    let by_model = route(json!({"name": "a", "peers_by_model": {"m1": ["h:1", "h:2"], "m2": ["h:2"]}}));
    let listed = route(json!({"name": "a", "backends": [
        {"address": "h:1", "models": ["m1"]}, {"address": "h:2", "models": ["m2", "m1"]}]}));
    assert_eq!(by_model, listed);
    assert_eq!(by_model.models(), ["m1", "m2"]);
    assert_eq!(parse_route(&route_json(&by_model)).unwrap(), by_model, "it prints back the same");
}

#[test]
fn routing_2_what_cannot_be_of_models_and_tiers_is_named() {
    let only = |document: Json| {
        let found = complaints(&document);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    };
    let mixed = only(json!({"routes": [{"name": "a", "backends": [{"address": "h:1", "models": ["m"]}, "h:2"]}]}));
    assert!(mixed.starts_with("routes.a.backends[h:2].models: missing"), "{mixed}");
    let twice =
        only(json!({"name": "a", "backends_by_model": {"m": ["h:1"], "n": [{"address": "h:1", "priority": 3}]}}));
    assert!(twice.contains("written differently"), "{twice}");
    let both = only(json!({"name": "a", "backends": [], "peers": ["h:1"]}));
    assert!(both.starts_with("route.peers: stands beside backends"), "{both}");
    let none = only(json!({"name": "a", "backends_by_model": {"m": []}}));
    assert!(none.contains("a model needs at least one"), "{none}");
    let priority = only(json!({"name": "a", "backends": [{"address": "h:1", "priority": "high"}]}));
    assert!(priority.starts_with("route.backends[0].priority: number expected, got string"), "{priority}");
}

#[test]
fn routing_2_a_field_of_peers_is_none_of_backends_and_no_field_stands_twice() {
    let of = |list: &str, backend: Json| complaints(&json!({"name": "a", (list): backend}));
    let gpu = json!({"address": "h:1", "gpu": "h100"});
    for (list, backends) in [("peers", json!([gpu])), ("peers_by_model", json!({"m": [gpu]}))] {
        assert!(of(list, backends).is_empty(), "{list}");
    }
    for (list, backends, path) in [
        ("backends", json!([gpu]), "route.backends[0].gpu"),
        ("backends_by_model", json!({"m": [gpu]}), "route.backends_by_model.m[0].gpu"),
    ] {
        let found = of(list, backends);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}: unknown field")), "{found:?}");
    }
    let both = of("peers", json!([{"address": "h:1", "health_path": "/a", "probe": "/b"}]));
    assert_eq!(both, ["route.peers[0].probe: stands beside health_path; only one of them is allowed"]);
    assert!(of("backends", json!([{"host": "h", "port": 1, "probe": "/b", "health_path": null}])).is_empty());
}

#[test]
fn limits_8_1_options_that_need_each_other() {
    let only = |options: Json| complaints(&json!({"name": "a", "options": options, "backends": ["h:1"]})).join("\n");
    assert!(only(json!({"adaptive_cc": true})).contains("adaptive_cc: needs a TPS limit"));
    assert_eq!(only(json!({"adaptive_cc": true, "tps_limit_tps": 20})), "");
    assert_eq!(only(json!({"adaptive_cc": true, "tps_metrics": [{"metric": "avg", "threshold": 20}]})), "");
    let slack = only(json!({"adaptive_cc_slack_frac": 0.9}));
    assert!(slack.contains("0.9 is not less than adaptive_cc_pressure_frac (0.9)"), "{slack}");
    assert!(only(json!({"ttft_limit_by_model": {"m": 5}})).contains("no backend serves model 'm'; allowed: none"));
    assert!(only(json!({"default_max": 3, "max_concurrency": 4})).contains("duplicate"));
}
