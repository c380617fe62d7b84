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

fn ruled(rules: &Json, more: &Json) -> Json {
    let mut options = json!({"reject_rules": rules});
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"routes": [{"name": "chat", "options": options}]})
}

#[test]
fn rulings_6_each_bad_rule_is_a_complaint_with_its_node() {
    let rules = json!([{"field": "x", "op": "exists"}, {"field": "x", "op": "match", "value": "a"},
        {"all": [{"field": "x", "op": "exists"}, {"field": "x", "op": "like"}], "status": 200}]);
    for written in [rules.clone(), json!(rules.to_string())] {
        let found = complaints(&ruled(&written, &json!({})));
        let node = "routes.chat.options.reject_rules[2]";
        assert!(
            found[0].starts_with(&format!("{node}.all[1].op: unknown operator 'like'; allowed: gt, ")),
            "{found:?}"
        );
        assert_eq!(found[1], format!("{node}.status: 200 is no status of a refusal; allowed: 400..=599"));
        assert_eq!(found.len(), 2);
    }
    assert_eq!(
        complaints(&ruled(&json!("[{]"), &json!({}))),
        ["routes.chat.options.reject_rules: list of rules expected, got string"]
    );
    for none in [json!("none"), json!([]), Json::Null] {
        assert!(complaints(&ruled(&none, &json!({}))).is_empty(), "{none}");
    }
}

#[test]
fn patterns_are_checked_in_the_route_s_own_syntax() {
    let rule = |pattern: &str| json!([{"any": [{"field": "x", "op": "match", "value": pattern}]}]);
    let field = "routes.chat.options.reject_rules[0].any[0].value";
    for (pattern, more, problem) in [
        ("%d(", json!({}), Some("not a regular expression: unclosed group")),
        ("%b()", json!({"match_syntax": "lua"}), Some("not a Lua pattern that can be used: `%b`")),
        ("%b()", json!({}), None),
        ("[%]]", json!({}), None),
        ("(a|b){2}", json!({"match_syntax": "lua"}), None),
        ("*", json!({}), Some("not a regular expression: repetition operator missing expression")),
        ("*", json!({"match_syntax": "lua"}), None),
    ] {
        let found = complaints(&ruled(&rule(pattern), &more));
        match problem {
            Some(problem) => assert!(found[0].starts_with(&format!("{field}: {problem}")), "{found:?}"),
            None => assert!(found.is_empty(), "{found:?}"),
        }
    }
    let mut preset = ruled(&rule("%b()"), &json!({}));
    preset["routes"][0]["preset"] = json!("openresty");
    assert_eq!(complaints(&preset).len(), 1, "the preset's syntax is Lua");
    // What comes later is checked with what is there: as `route set` does.
    let mut routes = parse_document(&ruled(&rule("*"), &json!({"match_syntax": "lua"}))).unwrap();
    assert!(check_all(&routes).is_ok());
    routes[0].set.remove("match_syntax");
    assert!(check_all(&routes).unwrap_err().to_string().starts_with(field));
}

#[test]
fn rulings_6_a_stored_route_keeps_its_good_rules_and_says_which_are_not() {
    let rules = json!([{"field": "x", "op": "match", "value": "("}, {"field": "x", "op": "like"},
        {"field": "x", "op": "exists", "status": 1, "extra": 2}]);
    let stored = json!({"name": "chat", "options": {"reject_rules": rules, "max_waiting": "many"}});
    let (route, found) = parse_stored(&stored);
    let route = route.unwrap();
    let fields: Vec<&str> = found.0.iter().map(|one| one.field.trim_start_matches("route.options.")).collect();
    assert_eq!(
        fields,
        [
            "reject_rules[1].op",
            "reject_rules[2].extra",
            "reject_rules[2].status",
            "max_waiting",
            "reject_rules[0].value"
        ]
    );
    let names = |route: &RouteSpec| -> Vec<String> {
        route.options().payload.reject_rules.rules().map(|rule| rule.name().to_owned()).collect()
    };
    assert_eq!(names(&route), ["rule3"]);
    // It does not stand in the way of other changes, and is a new document as it is.
    assert!(check_all(std::slice::from_ref(&route)).is_ok());
    assert_eq!(names(&parse_route(&route_json(&route)).unwrap()), ["rule3"]);
}

#[test]
fn one_option_s_complaints_have_their_place() {
    let found = parse_option_each("reject_rules", &json!(r#"[{"field":"x","op":"y"},{"field":1}]"#)).unwrap_err();
    let fields: Vec<&str> = found.0.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(fields, ["reject_rules[0].op", "reject_rules[1].field", "reject_rules[1].op"]);
    assert_eq!(parse_option_each("max_waitin", &json!(1)).unwrap_err().0[0].field, "max_waitin");
    assert_eq!(parse_option_each("max_waiting", &json!("x")).unwrap_err().0[0].field, "max_waiting");
    assert!(parse_option_each("max_waiting", &json!("7")).is_ok());
    let (_, value) =
        parse_stored_option("reject_rules", &json!(r#"[{"field":"x","op":"y"},{"field":"x","op":"exists"}]"#)).unwrap();
    assert!(value.to_string().contains("rule2"), "{value}");
    assert!(parse_stored_option("max_waiting", &json!("x")).is_none());
}

#[test]
fn rules_print_back_as_rules() {
    let rules = json!([{"name": "big", "field": "input_chars", "op": "gt", "value": 5, "status": 413},
        {"any": [{"field": "model", "op": "in", "value": ["a", null]}, {"field": "x", "op": "absent"}]}]);
    // As text is how a command line gives them.
    for written in [rules.clone(), json!(rules.to_string())] {
        let routes = parse_document(&ruled(&written, &json!({}))).unwrap();
        let printed = document_json(&routes);
        assert_eq!(printed["routes"][0]["options"]["reject_rules"], rules);
        assert_eq!(parse_document(&printed).unwrap(), routes);
    }
    let none = parse_document(&ruled(&json!([]), &json!({}))).unwrap();
    assert_eq!(document_json(&none)["routes"][0]["options"]["reject_rules"], "none");
}

#[test]
fn doubts_name_their_place_in_the_document() {
    let routes = parse_document(&ruled(&json!([{"field": "inputchars", "op": "exists"}]), &json!({}))).unwrap();
    let told = doubts(&routes[0]).to_string();
    assert!(told.starts_with("routes.chat.options.reject_rules[0].field: a name of the body"), "{told}");
}
