//! Pages of payload handling, field by field, on both databases.

use std::collections::HashMap;

use super::super::followed::on_both_databases;
use super::*;
use crate::fleet::BODY_LOG_BY;

async fn still_with_rules(place: &Place) -> Still {
    let rules = json!([
        {"name": "big", "status": 413, "field": "input_bytes", "op": "gt", "value": 500},
        {"all": [{"field": "model", "op": "eq", "value": "m"}, {"field": "tier", "op": "nin", "value": ["a", "b"]}]}]);
    still(place, json!({"reject_rules": rules, "reject_rules_status": 422, "bodylog_default_pct": 20}), gpus()).await
}

/// From a replica.
fn counts(counts: &[(&str, u64)], hits: &[(&str, u64)], last: u64) -> v1::Counted {
    let map = |pairs: &[(&str, u64)]| pairs.iter().map(|&(name, more)| (name.to_owned(), more)).collect();
    v1::Counted { route: "chat".to_owned(), counts: map(counts), rule_hits: map(hits), body_log_last_unix_ms: last }
}

/// Each count is another number.
fn all_counts() -> v1::Counted {
    let names = [
        "parsed",
        "cch_stripped",
        "kimi_changes",
        "kimi_requests",
        "usage_injected",
        "system_hoisted",
        "rule_rejected",
        "bodylog_written",
        "bodylog_dropped",
        "bodylog_errors",
    ];
    let all: Vec<(&str, u64)> = names.into_iter().zip([40, 10, 31, 32, 33, 34, 35, 36, 37, 38]).collect();
    counts(&all, &[("big", 3), ("rule2", 4), ("unknown", 5)], 1_700_000_000_123)
}

fn count(still: &Still, counted: &v1::Counted) {
    still.fleet.pool("chat").unwrap().counted(counted);
}

/// The answer without its prose, which is there.
async fn bare(still: &Still, text: &str) -> Json {
    let mut json = get(still, text).await;
    if let Some(note) = json.as_object_mut().unwrap().remove("note") {
        assert!(note.as_str().unwrap().len() > 10);
    }
    json
}

async fn each_page_has_its_fields(place: Place) {
    let still = still_with_rules(&place).await;
    let none = bare(&still, "_bodylog_status").await;
    assert_eq!((none.get("last_log_ts"), &none["logger_initted"]), (None, &json!(false)));
    assert_eq!(bare(&still, "_cch_strip_status").await["strip_ratio"], 0.0);
    count(&still, &all_counts());

    let status = bare(&still, "_bodylog_status").await;
    let now = status["now"].as_f64().unwrap();
    assert!(now > 1_700_000_001.0, "{now}");
    assert_eq!(
        status,
        json!({"route": "chat", "enabled": true, "source": "default", "sample_pct": 20, "logger_initted": true,
            "write_count": 36, "drop_count": 37, "encode_errs": 38, "last_log_ts": 1_700_000_000.123, "now": now,
            "scope": "fleet"})
    );
    assert_eq!(
        bare(&still, "_cch_strip_status").await,
        json!({"route": "chat", "enabled": false, "source": "default", "default": false, "parsed_total": 40,
            "stripped_total": 10, "strip_ratio": 0.25, "scope": "fleet"})
    );
    assert_eq!(
        bare(&still, "_reject_rules_status").await,
        json!({"route": "chat", "ok": true, "enabled": false, "source": "default", "default_status": 422,
            "rule_count": 2, "rules": [
                {"name": "big", "status": 413, "cond": "input_bytes gt 500", "hits": 3},
                {"name": "rule2", "cond": "ALL(model eq m & tier nin [a,b])", "hits": 4}], "scope": "fleet"})
    );
    let toggle = |is_on: bool, more: Json| {
        let mut toggle = json!({"route": "chat", "ok": true, "changes": {}, "enabled": is_on, "source": "default",
            "scope": "fleet"});
        toggle.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        toggle
    };
    for (page, expected) in [
        ("_bodylog_toggle", toggle(true, json!({"sample_pct": 20}))),
        ("_cch_strip_toggle", toggle(false, json!({}))),
        ("_kimi_normalize_toggle", toggle(false, json!({"changes_total": 31, "req_count": 32}))),
        ("_include_usage_toggle", toggle(false, json!({"injected_total": 33}))),
        ("_system_hoist_toggle", toggle(false, json!({"hoisted_total": 34}))),
        ("_reject_rules_toggle", toggle(false, json!({}))),
    ] {
        assert_eq!(bare(&still, page).await, expected, "{page}");
        // What is no value for it is passed over.
        for query in ["on=2", "on=", "on=yes", "reset=0", "reset=true", "pct=101", "pct=x", "on=2&ttl=x"] {
            assert_eq!(bare(&still, &format!("{page}?{query}")).await, expected, "{page}?{query}");
        }
    }
    assert_eq!(told_switches(&still), HashMap::new(), "nothing was set");
    let options = get(&still, "_route_opts").await;
    let find = |key: &str| {
        let all = ["directives", "advanced"].into_iter().flat_map(|list| options[list].as_array().unwrap());
        all.into_iter().find(|option| option["key"] == key).unwrap().clone()
    };
    let pct = find("bodylog_default_pct");
    assert_eq!((&pct["value"], &pct["default"], &pct["is_set"]), (&json!("20"), &json!("100"), &json!(true)));
    assert_eq!(find("kimi_normalize_strategy")["value"], "rerank");
    assert!(find("reject_rules")["value"].as_str().unwrap().contains("input_bytes"));
    still.kill().await;
}

fn told_switches(still: &Still) -> HashMap<String, String> {
    still.fleet.pool("chat").unwrap().message().switches
}

async fn a_toggle_sets_what_replicas_are_told_and_says_what_it_changed(place: Place) {
    let first = still_with_rules(&place).await;
    let set = get(&first, "_cch_strip_toggle?on=true").await;
    assert_eq!(
        (&set["changes"], &set["enabled"], &set["source"]),
        (&json!({"enabled": true}), &json!(true), &json!("runtime"))
    );
    assert_eq!((set.get("until_ms"), set.get("note")), (None, None));
    let set = get(&first, "_bodylog_toggle?on=0&pct=12&ttl=60").await;
    assert_eq!(set["changes"], json!({"enabled": false, "sample_pct": 12}));
    assert_eq!((&set["enabled"], &set["sample_pct"]), (&json!(false), &json!(12)));
    assert!(set["until_ms"].as_u64().is_some(), "{set}");
    assert_eq!((&set["then"], &set["note"]), (&json!(true), &json!(BODY_LOG_BY)), "the option says on");
    for (query, note) in [
        ("on=1", format!("bodylog is already on by the route's option; {BODY_LOG_BY}")),
        ("on=1&pct=5", format!("bodylog is already on by the route's option; {BODY_LOG_BY}")),
        ("pct=0", format!("of 100 requests 0 are captured; {BODY_LOG_BY}")),
    ] {
        get(&first, "_bodylog_toggle?on=1").await;
        assert_eq!(get(&first, &format!("_bodylog_toggle?{query}")).await["note"], note, "{query}");
    }
    get(&first, "_bodylog_toggle?on=0&pct=12&ttl=60").await;
    for page in ["_kimi_normalize", "_include_usage", "_system_hoist", "_reject_rules"] {
        let set = get(&first, &format!("{page}_toggle?on=1")).await;
        assert_eq!((&set["enabled"], &set["changes"]), (&json!(true), &json!({"enabled": true})), "{page}");
    }
    let expected = [
        ("cch_strip", "on"),
        ("bodylog", "off"),
        ("bodylog_pct", "12"),
        ("kimi_normalize", "on"),
        ("include_usage", "on"),
        ("system_hoist", "on"),
        ("reject_rules", "on"),
    ];
    let expected: HashMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(told_switches(&first), expected);
    // A time that is none: nothing is set.
    let (status, refused) = told(&first, request("_bodylog_toggle?on=1&pct=1&ttl=soon")).await;
    assert_eq!((status, &refused["ok"], &refused["changes"]), (400, &json!(false), &json!({})));
    assert_eq!(told_switches(&first), expected);
    first.kill().await;

    let second = place.start_following(None).await;
    assert_eq!(told_switches(&second), expected, "durable");
    assert_eq!(get(&second, "_reject_rules_status").await["enabled"], true);
    second.kill().await;
}

async fn each_reset_clears_its_own_counters(place: Place) {
    let still = still_with_rules(&place).await;
    count(&still, &all_counts());
    let reset = get(&still, "_kimi_normalize_toggle?reset=1").await;
    assert_eq!(
        (&reset["changes"], &reset["changes_total"], &reset["req_count"], &reset["enabled"]),
        (&json!({"counters_reset": true}), &json!(0), &json!(0), &json!(false))
    );
    assert_eq!(get(&still, "_include_usage_toggle").await["injected_total"], 33, "the control");
    get(&still, "_tps_limit?tps=20").await;
    let follows = get(&still, "_include_usage_toggle").await;
    assert_eq!((&follows["enabled"], &follows["source"]), (&json!(true), &json!("runtime")));
    assert!(follows["note"].as_str().unwrap().starts_with("not as the document alone would have it"), "{follows}");
    get(&still, "_tps_limit?tps=0").await;
    assert_eq!(get(&still, "_include_usage_toggle").await["enabled"], false);
    let both = get(&still, "_include_usage_toggle?on=1&reset=1").await;
    assert_eq!(both["changes"], json!({"enabled": true, "counters_reset": true}));
    assert_eq!((&both["injected_total"], &both["enabled"]), (&json!(0), &json!(true)));
    get(&still, "_cch_strip_toggle?reset=1").await;
    let cch = get(&still, "_cch_strip_status").await;
    assert_eq!((&cch["parsed_total"], &cch["stripped_total"]), (&json!(0), &json!(0)));
    assert_eq!(get(&still, "_system_hoist_toggle?reset=1").await["hoisted_total"], 0);
    get(&still, "_bodylog_toggle?reset=1").await;
    let log = get(&still, "_bodylog_status").await;
    assert_eq!([&log["write_count"], &log["drop_count"], &log["encode_errs"]], [0, 0, 0]);
    let hits = async || {
        let status = get(&still, "_reject_rules_status").await;
        [0, 1].map(|at| status["rules"][at]["hits"].as_u64().unwrap())
    };
    let refused = async || get(&still, "_429_status").await["by_reason"]["rule"].as_u64();
    assert_eq!((hits().await, refused().await), ([3, 4], Some(35)));
    get(&still, "_reject_rules_toggle?reset=1").await;
    assert_eq!((hits().await, refused().await), ([0, 0], Some(35)), "the sum is another page's");
    count(&still, &counts(&[("rule_rejected", 1)], &[("big", 1)], 0));
    get(&still, "_429_status?reset=1").await;
    assert_eq!((hits().await, refused().await), ([1, 0], None));
    still.kill().await;
}

async fn refusals_by_rules_are_in_429_status_once_there_are_some(place: Place) {
    let still = still_with_rules(&place).await;
    let before = get(&still, "_429_status?all=1").await;
    assert_eq!(before["by_reason"], json!({"concurrency": 0, "ttft": 0, "tps": 0}));
    count(&still, &counts(&[("rule_rejected", 2)], &[("big", 2)], 0));
    let with_rule = json!({"concurrency": 0, "ttft": 0, "tps": 0, "rule": 2});
    for (query, routes) in [("_429_status", 1), ("_429_status?all=1", 2)] {
        let status = get(&still, query).await;
        assert_eq!((&status["total"], &status["by_reason"]), (&json!(2), &with_rule), "{query}");
        assert_eq!((&status["by_route"]["chat"], status["by_route"].as_object().unwrap().len()), (&with_rule, routes));
    }
    let of_all = get(&still, "_429_status?all=1").await;
    assert_eq!(of_all["by_route"]["empty"], json!({"concurrency": 0, "ttft": 0, "tps": 0}));
    still.kill().await;
}

async fn counts_outlive_the_process_and_changes_of_the_route_but_not_the_route(place: Place) {
    let first = still_with_rules(&place).await;
    count(&first, &all_counts());
    count(&first, &counts(&[("parsed", u64::MAX), ("of_a_newer_one", 1)], &[("big", u64::MAX)], 0));
    first.fleet.store_flows().await;
    let shown = async |still: &Still| {
        let mut status = get(still, "_bodylog_status").await;
        status.as_object_mut().unwrap().remove("now");
        let pages = ["_cch_strip_status", "_reject_rules_status", "_kimi_normalize_toggle", "_429_status"];
        let mut shown = vec![status];
        for page in pages {
            shown.push(get(still, page).await);
        }
        shown
    };
    let before = shown(&first).await;
    assert_eq!(before[1]["parsed_total"], u64::MAX, "it does not overflow");
    // Not stored yet when the process dies: a second's counts.
    count(&first, &counts(&[("cch_stripped", 1000)], &[], 0));
    first.kill().await;

    let second = place.start_following(None).await;
    assert_eq!(shown(&second).await, before);
    get(&second, "_reject_rules_toggle?reset=1").await;
    second.kill().await;

    let third = place.start_following(None).await;
    assert_eq!(get(&third, "_reject_rules_status").await["rules"][0]["hits"], 0, "a reset is durable when it is told");
    count(&third, &counts(&[], &[("big", 1), ("rule2", 1)], 0));
    let edit = |rules: Json| {
        json!({"name": "chat", "options": {"reject_rules": rules, "health_failures": 1000},
        "backends": ["10.0.0.1:8000"]})
    };
    let big = json!({"name": "big", "field": "x", "op": "exists"});
    let stays = edit(json!([{"name": "other", "field": "y", "op": "exists"}, big]));
    third.fleet.apply(&stays, ApplyMode::default()).await.unwrap();
    count(&third, &counts(&[], &[("rule2", 9)], 0));
    let rules = get(&third, "_reject_rules_status").await["rules"].clone();
    assert_eq!((&rules[0]["hits"], &rules[1]["hits"], rules.as_array().unwrap().len()), (&json!(0), &json!(1), 2));

    third.fleet.store_flows().await;
    let stored = |stored: crate::store::Stored| {
        let mut rows: Vec<_> =
            stored.payload_counts.into_iter().map(|row| (row.route.to_string(), row.state)).collect();
        rows.retain(|(route, _)| route == "chat");
        rows
    };
    let rows = stored(third.fleet.store.load().await.unwrap());
    assert!(rows.len() == 1 && !rows[0].1.contains("rule2"), "{rows:?}");
    third.fleet.remove_route("chat").await.unwrap();
    third.fleet.store_flows().await;
    assert_eq!(stored(third.fleet.store.load().await.unwrap()), [], "they go with their route");
    third.fleet.apply(&stays, ApplyMode::default()).await.unwrap();
    assert_eq!(get(&third, "_cch_strip_status").await["parsed_total"], 0);
    third.kill().await;
}

on_both_databases![
    each_page_has_its_fields,
    a_toggle_sets_what_replicas_are_told_and_says_what_it_changed,
    each_reset_clears_its_own_counters,
    refusals_by_rules_are_in_429_status_once_there_are_some,
    counts_outlive_the_process_and_changes_of_the_route_but_not_the_route,
];

#[tokio::test]
async fn payloads_9_whoever_is_elsewhere_is_told_nothing() {
    let place = Place::sqlite();
    let still = still_with_rules(&place).await;
    for page in [
        "_bodylog_status",
        "_bodylog_toggle",
        "_cch_strip_status",
        "_cch_strip_toggle",
        "_kimi_normalize_toggle",
        "_include_usage_toggle",
        "_system_hoist_toggle",
        "_reject_rules_status",
        "_reject_rules_toggle",
    ] {
        let far = |page: &str| v1::PageRequest { is_loopback: false, ..request(page) };
        let (status, json) = told(&still, far(page)).await;
        let error = json["error"].as_str().unwrap();
        assert!(
            status == 403 && error.starts_with("told to this machine only") && json.as_object().unwrap().len() == 3
        );
        assert_eq!(told(&still, request(page)).await.0, 200, "the control");
        if page.ends_with("_toggle") {
            let (status, json) = told(&still, far(&format!("{page}?on=0"))).await;
            assert!(status == 403 && json["error"].as_str().unwrap().starts_with("changes are taken"), "{json}");
        }
    }
    assert_eq!(told_switches(&still), HashMap::new());
    // What is about a body alone, a replica answers.
    assert_eq!(told(&still, request("_cch_test")).await.0, 400);
    still.kill().await;
}

#[tokio::test]
async fn a_clock_that_is_ahead_is_not_believed() {
    let place = Place::sqlite();
    let still = still_with_rules(&place).await;
    count(&still, &counts(&[("bodylog_written", 1)], &[], u64::MAX));
    let status = get(&still, "_bodylog_status").await;
    assert!(status["last_log_ts"].as_f64().unwrap() <= status["now"].as_f64().unwrap(), "{status}");
    still.kill().await;
}
