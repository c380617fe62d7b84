//! Status pages and their switches, as a replica asks for them.

use router_policy::ids::LeaseId;
use serde_json::{Value as Json, json};

use super::followed::{Place, Still};
use super::*;
use crate::page::page;
use crate::pool::{Asked, Caller};

mod limits;
mod payload;

async fn still(place: &Place, mut options: Json, backends: Json) -> Still {
    // Nobody answers at these addresses.
    options["health_failures"] = json!(1000);
    let still = place.start_following(None).await;
    let document = json!({"routes": [{"name": "chat", "options": options, "backends": backends},
        {"name": "empty", "backends": []}]});
    still.fleet.apply(&document, ApplyMode::default()).await.unwrap();
    still
}

fn gpus() -> Json {
    json!([{"address": "10.0.0.1:8000", "name": "gpu-1", "priority": 10, "max_concurrency": 4},
        {"address": "10.0.0.2:8000", "max_concurrency": 64}])
}

fn models() -> Json {
    json!([{"address": "10.0.0.1:8000", "models": ["a"], "max_concurrency": 10},
        {"address": "10.0.0.2:8000", "models": ["a", "b"], "max_concurrency": 20}])
}

/// `page?query`, from loopback.
fn request(text: &str) -> v1::PageRequest {
    let (page, query) = text.split_once('?').unwrap_or((text, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    v1::PageRequest {
        route: "chat".to_owned(),
        page: page.to_owned(),
        query: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        is_loopback: true,
        ..v1::PageRequest::default()
    }
}

async fn told(still: &Still, request: v1::PageRequest) -> (u32, Json) {
    let reply = page(&still.fleet, &request).await;
    assert!(!reply.json.contains("null"), "{}", reply.json);
    let json: Json = serde_json::from_str(&reply.json).unwrap();
    let is_fleet =
        if request.page == "_429_status" && reply.http_status != 404 { &json["fleet"] } else { &json["scope"] };
    assert!(*is_fleet == json!("fleet") || *is_fleet == json!(true), "{json}");
    (reply.http_status, json)
}

async fn get(still: &Still, text: &str) -> Json {
    let (status, json) = told(still, request(text)).await;
    assert_eq!(status, 200, "{json}");
    json
}

async fn status(still: &Still, text: &str) -> u32 {
    told(still, request(text)).await.0
}

/// Those of these keys that the object has not.
fn missing<'a>(json: &Json, keys: &'a str) -> Vec<&'a str> {
    keys.split_whitespace().filter(|key| json.get(key).is_none()).collect()
}

struct Client {
    caller: Arc<Caller>,
    answers: mpsc::UnboundedReceiver<v1::ServerOp>,
}

impl Client {
    fn new() -> Self {
        let (replies, answers) = mpsc::unbounded_channel();
        Self { caller: Arc::new(Caller { replica: "r1".into(), stream: 1, replies }), answers }
    }

    async fn ask(&mut self, still: &Still, asked: Asked) -> Answer {
        still.fleet.pool("chat").unwrap().acquire(1, asked, &self.caller);
        self.answers.recv().await.unwrap().kind.unwrap()
    }

    async fn granted(&mut self, still: &Still, asked: Asked) -> LeaseId {
        match self.ask(still, asked).await {
            Answer::Granted(granted) => LeaseId(granted.lease),
            other => panic!("granted expected, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn unknown_routes_and_pages_and_routes_without_backends() {
    let place = Place::sqlite();
    let still = still(&place, json!({}), gpus()).await;
    let of = |route: &str, page: &str| v1::PageRequest { route: route.to_owned(), ..request(page) };
    assert_eq!(
        told(&still, of("nowhere", "_route_state")).await,
        (404, json!({"error": "unknown route", "route": "nowhere", "scope": "fleet"}))
    );
    let (status, unknown) = told(&still, request("_metrics")).await;
    assert_eq!((status, unknown["pages"].as_array().unwrap().len()), (404, 30));
    for known in unknown["pages"].as_array().unwrap() {
        assert_ne!(told(&still, request(known.as_str().unwrap())).await.0, 404, "{known}");
    }
    for without in ["_health_status", "_active_conns", "_cluster_avg", "_route_state"] {
        let (status, json) = told(&still, of("empty", without)).await;
        assert_eq!((status, &json["error"], &json["route"]), (503, &json!("no peers configured"), &json!("empty")));
        assert_eq!(json.get("_meta").is_some(), without == "_health_status");
    }
    for anything in
        ["_ttft_status", "_tps_status", "_429_status", "_route_opts", "_rate_limit_status", "_session_status"]
    {
        assert_eq!(told(&still, of("empty", anything)).await.0, 200, "{anything}");
    }
    still.kill().await;
}

#[tokio::test]
async fn what_changes_something_is_for_loopback_only() {
    let place = Place::sqlite();
    let still = still(&place, json!({}), gpus()).await;
    for page in [
        "_active_conns_set?flush=1",
        "_ttft_toggle?on=0",
        "_tps_toggle?on=0",
        "_ttft_429_toggle?on=0",
        "_rate_limit_toggle?on=0",
        "_session_prio_toggle?on=1",
        "_ttft_limit?ms=1",
        "_tps_limit?tps=1",
        "_429_status?reset=1",
    ] {
        let far = v1::PageRequest { is_loopback: false, ..request(page) };
        let (status, json) = told(&still, far).await;
        assert_eq!(status, 403, "{page}");
        assert!(json["error"].as_str().unwrap().contains("loopback"));
        let near = told(&still, request(page)).await.0;
        assert_eq!(near, if page.starts_with("_active") { 410 } else { 200 }, "the control");
    }
    still.kill().await;
}

#[tokio::test]
async fn who_is_up_and_what_runs() {
    let place = Place::sqlite();
    let still = still(&place, json!({}), gpus()).await;
    let mut client = Client::new();
    client.granted(&still, Asked::default()).await;
    let health = get(&still, "_health_status").await;
    assert_eq!(health["10.0.0.1:8000"], json!({"active": 1, "banned": false}));
    assert_eq!(
        health["_meta"],
        json!({"api_keys_configured": false, "route_auth_enabled": false, "key_file_status": "missing"})
    );
    assert_eq!(get(&still, "_active_conns").await, json!({"10.0.0.1:8000": 1, "10.0.0.2:8000": 0, "scope": "fleet"}));
    let tier = |state: &Json, tier: &str| state["by_priority"][tier].clone();
    let state = get(&still, "_route_state").await;
    assert_eq!(
        (&state["active_level"], &state["limit"], &state["healthy_peers_in_level"]),
        (&json!(10), &json!(4), &json!(1))
    );
    assert_eq!(
        tier(&state, "10"),
        json!({"priority": 10, "healthy": 1, "banned": 0, "active": 1, "max": 4, "peers": [
            {"name": "gpu-1", "peer": "10.0.0.1:8000", "banned": false, "active": 1, "max": 4}]})
    );
    still.drain("gpu-1", true).await.unwrap();
    let state = get(&still, "_route_state").await;
    assert_eq!((&state["active_level"], &state["limit"]), (&json!(0), &json!(64)));
    assert_eq!((&tier(&state, "10")["active"], &tier(&state, "10")["banned"]), (&json!(0), &json!(1)));
    still.drain("10.0.0.2:8000", true).await.unwrap();
    assert!(get(&still, "_route_state").await.get("active_level").is_none());
    let avg = get(&still, "_cluster_avg").await;
    assert_eq!(
        (&avg["realtime_sum"], &avg["samples"], &avg["avg_5min"], &avg["buckets"]),
        (&json!(1), &json!(0), &json!(0.0), &json!({}))
    );
    still.kill().await;
}

#[tokio::test]
async fn where_a_request_would_go() {
    let place = Place::sqlite();
    let still = still(&place, json!({"affinity": "hash"}), json!(["10.0.0.1:8000", "10.0.0.2:8000"])).await;
    let with = |page: &str, acquire: v1::Acquire| v1::PageRequest {
        request: Some(acquire),
        session_source: "header.x-session-id".to_owned(),
        ..request(page)
    };
    let odd = || v1::Acquire { crc32: Some(3), ..v1::Acquire::default() };
    let (_, debug) = told(&still, with("_route_debug", odd())).await;
    let expected = json!({"route": "chat", "algorithm": "crc32", "natural_target": "10.0.0.2:8000", "natural_hash": 3,
        "natural_banned": false, "actual_pick": "10.0.0.2:8000", "actual_mode": "hash",
        "session_affinity_enabled": true, "active_level": 0, "scores": [
            {"idx": 1, "name": "10.0.0.1:8000", "banned": false}, {"idx": 2, "name": "10.0.0.2:8000", "banned": false}],
        "scope": "fleet"});
    assert_eq!(debug, expected);
    still.drain("10.0.0.2:8000", true).await.unwrap();
    let (_, debug) = told(&still, with("_route_debug", odd())).await;
    assert_eq!((&debug["natural_target"], &debug["natural_banned"]), (&json!("10.0.0.2:8000"), &json!(true)));
    assert_eq!((&debug["actual_pick"], &debug["actual_mode"]), (&json!("10.0.0.1:8000"), &json!("hash_fallback")));
    let reply = page(&still.fleet, &with("_route_inspect", odd())).await;
    assert_eq!(reply.active_level, "0");
    let inspect: Json = serde_json::from_str(&reply.json).unwrap();
    assert_eq!(
        (&inspect["pick"], &inspect["mode"], &inspect["source"]),
        (&json!("10.0.0.1:8000"), &json!("hash_fallback"), &json!("header.x-session-id"))
    );
    still.drain("10.0.0.1:8000", true).await.unwrap();
    assert_eq!(told(&still, with("_route_inspect", odd())).await.0, 503);
    let (status, debug) = told(&still, with("_route_debug", odd())).await;
    assert_eq!((status, &debug["actual_mode"], &debug["refused_by"]), (200, &json!("refused"), &json!("no_backend")));
    assert_eq!(get(&still, "_active_conns").await["10.0.0.1:8000"], 0, "nothing was counted");
    still.kill().await;
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_told_with_those_that_are() {
    let place = Place::sqlite();
    let still = still(&place, json!({}), models()).await;
    let with = |page: &str, model: &str| v1::PageRequest {
        request: Some(v1::Acquire { model: model.to_owned(), ..v1::Acquire::default() }),
        ..request(page)
    };
    let (status, debug) = told(&still, with("_route_debug", "c")).await;
    assert_eq!((status, missing(&debug, "error hint model supported_models")), (200, vec![]));
    assert_eq!((&debug["error"], &debug["supported_models"]), (&json!("model_not_supported"), &json!(["a", "b"])));
    assert_eq!(told(&still, with("_route_inspect", "c")).await.0, 400);
    let (_, known) = told(&still, with("_route_debug", "b")).await;
    assert_eq!(
        (&known["actual_pick"], &known["scores"]),
        (&json!("10.0.0.2:8000"), &json!([{"idx": 1, "name": "10.0.0.2:8000", "banned": false}]))
    );
    still.kill().await;
}

#[tokio::test]
async fn limits_12_7_every_option_with_its_value() {
    let place = Place::sqlite();
    let still = still(&place, json!({"max_waiting": 7, "adaptive_cc_init": 12}), gpus()).await;
    let page = get(&still, "_route_opts").await;
    let all = |list: &str| page[list].as_array().unwrap().clone();
    let one = |name: &str| all("directives").into_iter().chain(all("advanced")).find(|one| one["key"] == name).unwrap();
    let waiting = one("max_waiting");
    assert_eq!((&waiting["value"], &waiting["is_set"], &waiting["default"]), (&json!("7"), &json!(true), &json!("32")));
    assert_eq!(missing(&waiting, "key label group kind default description value is_set"), [] as [&str; 0]);
    assert_eq!(one("ttft_limit_ms")["unit"], "ms");
    assert!(all("directives").iter().all(|one| one["key"] != "ttft_window"), "it is for fine tuning");
    assert_eq!(all("directives").len() + all("advanced").len(), router_policy::option::catalogue::CATALOGUE.len());
    assert_eq!(page["pools"], json!({"_": {"static_max": 64, "floor": 25.0, "start": 25.0}}));
    still.kill().await;
}

#[tokio::test]
async fn pages_of_a_thousand_models_stay_cheap() {
    let place = Place::sqlite();
    let backends: Vec<Json> = (0..1000)
        .map(|at| json!({"address": format!("10.0.{}.{}:8000", at / 250, at % 250 + 1), "models": [format!("m{at}")]}))
        .collect();
    let still = still(&place, json!({"ttft_limit_ms": 500, "session_prio": true}), json!(backends)).await;
    for page in [
        "_ttft_status",
        "_tps_status",
        "_session_status",
        "_route_state",
        "_429_status?all=1",
        "_cluster_avg",
        "_route_opts",
    ] {
        let before = std::time::Instant::now();
        get(&still, page).await;
        // Generous: this is a build without optimization, and what must not be is a page that takes seconds.
        assert!(before.elapsed() < Duration::from_secs(2), "{page}: {:?}", before.elapsed());
    }
    still.kill().await;
}

#[tokio::test]
async fn replicas_ask_over_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut client = CoordinatorClient::new(running.channel.clone());
    let reply = client.page(request("_rate_limit_toggle?on=0")).await.unwrap().into_inner();
    assert_eq!(reply.http_status, 200, "{}", reply.json);
    let listed = running.admin().list_routes(v1::ListRoutesRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.routes[0].toggles[0].name, "load_rate_limit");
    running.stop().await;
}
