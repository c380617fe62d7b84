//! What operators are told of a request before it comes, and that it then comes so.

use router_policy::toggle::{Toggle, ToggleKey, ToggleValue, Toggles};
use serde_json::json;

use super::*;
use crate::pool::SessionAsked;

async fn bench(options: serde_json::Value, backends: serde_json::Value) -> Bench {
    let bench = Bench::new(1, json!({})).await;
    let document = json!({"name": "chat", "options": options, "backends": backends});
    bench.pool.install(Arc::new(parse_route(&document).unwrap()));
    bench
}

fn gpus() -> serde_json::Value {
    json!([
        {"address": "10.0.0.1:8000", "name": "gpu-1", "priority": 10},
        {"address": "10.0.0.2:8000", "name": "gpu-2"},
    ])
}

impl Bench {
    fn outlook(&self, asked: Asked) -> v1::ExplainReply {
        let session = match asked.fingerprint {
            Some(session) => SessionAsked::Named(vec![(session, String::new())]),
            None => SessionAsked::Nobody,
        };
        self.pool.explain(asked, &session)
    }
}

fn why_not(reply: &v1::ExplainReply) -> Vec<&str> {
    reply.candidates.iter().map(|one| one.why_not.as_str()).collect()
}

/// The names of the gates that trip.
fn tripped(reply: &v1::ExplainReply) -> Vec<&str> {
    let names: Vec<&str> = reply.gates.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(names, ["model", "backends", "session table", "concurrency", "ttft", "tps"]);
    reply.gates.iter().filter(|gate| gate.trips).map(|gate| gate.name.as_str()).collect()
}

fn gate<'a>(reply: &'a v1::ExplainReply, name: &str) -> (bool, &'a str) {
    let gate = reply.gates.iter().find(|gate| gate.name == name).unwrap();
    (gate.trips, &gate.why)
}

#[tokio::test]
async fn a_session_goes_where_it_is_bound_and_says_why_it_moves() {
    let mut bench = bench(json!({"max_concurrency": 8}), gpus()).await;
    let asked = || Asked { fingerprint: Some(session(1)), ..Asked::default() };
    let new = bench.outlook(asked());
    assert_eq!(new.outcome, "goes to gpu-1 (10.0.0.1:8000), the least loaded; its session is bound there then");
    assert_eq!(
        (new.mode.as_str(), new.session.as_str(), new.backend.as_str()),
        ("new", "not bound, under no key", "10.0.0.1:8000")
    );
    assert_eq!(why_not(&new), ["", "of tier 0, which is asked only while no backend of tier 10 is up"]);
    assert_eq!(
        gate(&new, "backends"),
        (false, "2 of 2 backends are healthy and admitted, 1 of them in tier 10, which takes requests now")
    );
    assert_eq!(tripped(&new), [] as [&str; 0]);
    assert_eq!(gate(&new, "model").1, "this route has one pool for all models");
    assert_eq!(bench.pool.sessions(&SessionFilter::default(), 9).1, 0, "nothing was bound by asking");

    bench.ask(asked());
    let granted = bench.granted().await;
    assert_eq!(granted.backend, new.backend, "it comes as it was told");
    let bound = bench.outlook(asked());
    assert_eq!(bound.outcome, "goes to gpu-1 (10.0.0.1:8000), where its session is bound");
    assert_eq!(
        (bound.mode.as_str(), bound.session.as_str()),
        ("bound", "bound to gpu-1 (10.0.0.1:8000) as a session without a key")
    );
    let prefix = SessionAsked::Prefix(session(1).to_string()[..6].to_owned());
    assert_eq!(bench.pool.explain(Asked::default(), &prefix).outcome, bound.outcome);

    bench.pool.set_drain(&BackendId::new("10.0.0.1:8000").unwrap(), true);
    let moved = bench.outlook(asked());
    assert_eq!(
        moved.outcome,
        "goes to gpu-2 (10.0.0.2:8000); its session moves there from gpu-1 (10.0.0.1:8000), which is out of question: draining"
    );
    assert_eq!((moved.mode.as_str(), why_not(&moved)), ("moved", vec!["draining", ""]));
    bench.pool.ban(&BackendId::new("10.0.0.2:8000").unwrap(), None, "banned by an operator");
    let nobody = bench.outlook(asked());
    assert_eq!(nobody.outcome, "refused with 503: 0 of 2 backends are healthy and admitted");
    assert_eq!((nobody.refused_by.as_str(), tripped(&nobody)), ("no_backend", vec!["backends"]));
    assert_eq!(why_not(&nobody), ["draining", "banned: banned by an operator"]);
}

#[tokio::test]
async fn a_full_pool_is_told_with_its_numbers() {
    let mut bench = bench(json!({"max_concurrency": 1, "max_waiting": 1}), gpus()).await;
    bench.ask(Asked::default());
    let _holder = bench.granted().await;
    let waits = bench.outlook(Asked::default());
    assert_eq!(waits.outcome, "waits: 1 of 1 slots of tier 10 are in use; 0 of 1 places in the queue are taken");
    assert!(waits.waits && waits.backend.is_empty());
    assert_eq!(tripped(&waits), ["concurrency"]);
    assert_eq!(why_not(&waits)[0], "full: 1 of 1 slots are in use");
    bench.ask(Asked::default());
    let refused = bench.outlook(Asked::default());
    assert_eq!(
        refused.outcome,
        "refused with 429: 1 of 1 slots of tier 10 are in use; 1 of 1 places in the queue are taken"
    );
    assert_eq!(
        (refused.refused_by.as_str(), refused.waits, tripped(&refused)),
        ("queue_full", false, vec!["concurrency"])
    );
    assert_eq!(bench.pool.route_state().pools[0].in_flight, 1, "asking counts nothing");
}

#[tokio::test(start_paused = true)]
async fn limits_6_2_a_slow_pool_is_told_with_its_numbers_and_no_probe_slot_is_taken() {
    let options = json!({"ttft_limit_ms": 500, "ttft_window": "1s", "ttft_probe_per_window": 1});
    let mut bench = bench(options, gpus()).await;
    for _ in 0..2 {
        bench.ask(Asked::default());
        let granted = bench.granted().await;
        bench.pool.first_chunk(LeaseId(granted.lease), &bench.caller, Duration::from_millis(900));
        bench.release(&granted);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    for _ in 0..3 {
        let probe = bench.outlook(Asked::default());
        assert_eq!(
            gate(&probe, "ttft"),
            (
                false,
                "smoothed TTFT p80 is 1000 ms, the limit 500 ms; lets this request pass all the same: as a probe (0 of 1 taken)"
            )
        );
    }
    bench.ask(Asked::default());
    bench.granted().await;
    let slow = bench.outlook(Asked::default());
    assert_eq!(slow.outcome, "refused with 429: smoothed TTFT p80 is 1000 ms, the limit 500 ms");
    assert_eq!((slow.refused_by.as_str(), tripped(&slow)), ("ttft", vec!["ttft"]));
    assert_eq!(gate(&slow, "tps").1, "smoothed TPS p80 is not known now, and there is no limit");
    bench.ask(Asked::default());
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::Ttft), "it comes as it was told");
}

#[tokio::test]
async fn models_and_windows_that_nobody_has_are_told() {
    let backends = json!([
        {"address": "10.0.0.1:8000", "models": ["a"], "context_limit": 1000},
        {"address": "10.0.0.2:8000", "models": ["b"]},
    ]);
    let bench = bench(json!({}), backends).await;
    let of = |model: &str, context_tokens| {
        bench.outlook(Asked { model: model.to_owned(), context_tokens, ..Asked::default() })
    };
    let unknown = of("c", 0);
    assert_eq!((unknown.refused_by.as_str(), tripped(&unknown)), ("model_not_supported", vec!["model"]));
    assert_eq!(gate(&unknown, "model").1, "no backend serves model 'c'; configured: a, b");
    assert_eq!(gate(&unknown, "concurrency").1, "not reached");
    assert_eq!(gate(&of("a", 0), "model"), (false, "1 of 2 backends serve model 'a'"));
    assert_eq!(unknown.outcome, "refused with 400: no backend serves model 'c'; configured: a, b");
    assert_eq!(why_not(&unknown), ["serves other models: a", "serves other models: b"]);
    assert_eq!(
        of("", 0).outcome,
        "refused with 400: no backend serves a request that names no model; configured: a, b"
    );
    assert_eq!(why_not(&of("a", 0)), ["", "serves other models: b"]);
    let long = of("a", 2000);
    assert_eq!((long.refused_by.as_str(), tripped(&long)), ("context_window", vec!["backends"]));
    assert_eq!(
        long.outcome,
        "refused with 503: 1 of 1 backends are healthy and admitted, and none of them is known to have a context window of 2000 tokens"
    );
    assert_eq!(why_not(&long)[0], "its context window of 1000 tokens is too small for 2000");
    assert_eq!(why_not(&of("b", 1))[1], "its context window is not stated, and 1 tokens must fit");
}

#[tokio::test(start_paused = true)]
async fn a_full_session_table_is_told_as_on_full_takes_it() {
    let of = |number| Asked { fingerprint: Some(session(number)), ..Asked::default() };
    for (on_full, refused_by, why) in [
        ("refuse", "session_table_full", "1 of 1 sessions are bound, and on_full keeps new ones out"),
        ("unbound", "", "1 of 1 sessions are bound, and on_full serves new ones without binding them"),
        (
            "evict_idle",
            "session_table_full",
            "1 of 1 sessions are bound, and on_full finds none that has been idle for long enough",
        ),
    ] {
        let options = json!({"max_sessions": 1, "on_full": on_full, "session_idle_ttl": "10s"});
        let mut bench = bench(options, gpus()).await;
        assert_eq!(gate(&bench.outlook(of(1)), "session table"), (false, "0 of 1 sessions are bound"));
        bench.ask(of(1));
        let granted = bench.granted().await;
        let outlook = bench.outlook(of(2));
        assert_eq!((outlook.refused_by.as_str(), gate(&outlook, "session table").1), (refused_by, why));
        if refused_by.is_empty() {
            assert_eq!(tripped(&outlook), [] as [&str; 0]);
        } else {
            assert_eq!(tripped(&outlook), ["session table"]);
            assert_eq!(outlook.outcome, format!("refused with 429: {why}"));
        }
        let known = bench.outlook(of(1));
        assert_eq!(gate(&known, "session table"), (false, "1 of 1 sessions are bound, this one among them"));
        let nobody = bench.outlook(Asked::default());
        assert_eq!(gate(&nobody, "session table"), (false, "1 of 1 sessions are bound; this request has no session"));
        bench.release(&granted);
        tokio::time::advance(Duration::from_secs(11)).await;
        if on_full == "evict_idle" {
            let evicts = bench.outlook(of(2));
            let why = "1 of 1 sessions are bound, and on_full ends the one that has been idle longest";
            assert_eq!((evicts.mode.as_str(), gate(&evicts, "session table")), ("new", (false, why)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_an_earlier_one_keeps_the_request_from_does_not_trip() {
    let options = json!({"ttft_limit_ms": 500, "ttft_window": "1s", "ttft_probe_per_window": 0, "max_concurrency": 1,
        "max_waiting": 1});
    let mut bench = bench(options, gpus()).await;
    for _ in 0..2 {
        bench.ask(Asked::default());
        let granted = bench.granted().await;
        bench.pool.first_chunk(LeaseId(granted.lease), &bench.caller, Duration::from_millis(900));
        bench.release(&granted);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(tripped(&bench.outlook(Asked::default())), ["ttft"], "the control");
    let mut off = Toggles::default();
    let key = ToggleKey::parse("ttft_429", "").unwrap();
    off.set(Toggle { key, value: ToggleValue::On(false), until: None });
    bench.pool.set_toggles(off.clone());
    bench.ask(Asked::default());
    bench.granted().await;
    bench.pool.set_toggles(Toggles::default());
    let numbers = "smoothed TTFT p80 is 1000 ms, the limit 500 ms";
    let slow = bench.outlook(Asked::default());
    assert_eq!((slow.waits, slow.refused_by.as_str(), tripped(&slow)), (false, "ttft", vec!["ttft"]));
    assert_eq!(
        gate(&slow, "concurrency").1,
        "1 of 1 slots of tier 10 are in use; nobody waits for a pool that is slow as well"
    );
    let routing = bench.pool.inspect_routing(&Asked::default()).unwrap();
    assert_eq!((routing.mode, routing.refused_by), ("refused", Some(router_policy::refusal::Gate::Ttft)));
    bench.ask(Asked::default());
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::Ttft), "it comes as it was told");

    bench.pool.set_toggles(off);
    bench.ask(Asked::default());
    let full = bench.outlook(Asked::default());
    assert_eq!((full.refused_by.as_str(), tripped(&full)), ("queue_full", vec!["concurrency"]));
    bench.pool.set_toggles(Toggles::default());
    let refused = bench.outlook(Asked::default());
    assert_eq!((refused.refused_by.as_str(), tripped(&refused)), ("queue_full", vec!["concurrency"]));
    assert_eq!(gate(&refused, "ttft").1, format!("{numbers}; not reached"));
}

#[tokio::test]
async fn one_of_several_sessions_that_begin_alike_is_told_of() {
    let mut bench = bench(json!({}), gpus()).await;
    for number in [0xa1, 0xa2, 0xb1] {
        bench.ask_for(number);
        bench.granted().await;
    }
    let told = |prefix: &str| bench.pool.explain(Asked::default(), &SessionAsked::Prefix(prefix.to_owned())).session;
    assert_eq!(told("a"), "several sessions begin so; this is told of one of them");
    assert_eq!(told("b1b"), "bound to gpu-1 (10.0.0.1:8000)");
    assert!(told("c").starts_with("no session that begins so"));
}

#[tokio::test]
async fn rules_are_told_only_while_they_are_in_force() {
    let rules = json!([{"field": "x", "op": "exists"}, {"field": "y", "op": "exists"}]);
    let bench = bench(json!({"reject_rules": rules}), gpus()).await;
    assert_eq!(bench.outlook(Asked::default()).rules, 0, "off by the option");
    let mut on = Toggles::default();
    let key = ToggleKey::parse("reject_rules", "").unwrap();
    on.set(Toggle { key, value: ToggleValue::On(true), until: None });
    bench.pool.set_toggles(on);
    let told = bench.outlook(Asked::default());
    assert_eq!((told.rules, told.refused_by.as_str()), (2, ""));
}
