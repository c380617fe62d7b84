//! Flow control as requests meet it: gates, adaptive limit, toggles (routing.md §6, limits.md §6 to §10).

use router_policy::flow::UnixMs;
use router_policy::toggle::{Toggle, ToggleKey};
use serde_json::Value as Json;

use super::*;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn bench(options: Json) -> Bench {
    Bench::forgetful(&json!({"name": "chat", "options": options,
        "backends": [{"address": backend(0).to_string()}, {"address": backend(1).to_string()}]}))
    .await
}

pub(super) fn of_turn(turn: u32) -> Asked {
    Asked { turn: Some(turn), ..Asked::default() }
}

pub(super) fn of_model(model: &str) -> Asked {
    Asked { model: model.to_owned(), ..Asked::default() }
}

pub(super) fn details(refused: &v1::Refused) -> Json {
    serde_json::from_str(&refused.details_json).unwrap()
}

pub(super) fn set(bench: &Bench, name: &str, value: &str, until: Option<Duration>) {
    let key = ToggleKey::parse(name, "").unwrap();
    let value = key.parse_value(value).unwrap();
    let now = bench.pool.context.unix(bench.pool.context.clock.now());
    let mut toggles = bench.pool.toggles();
    toggles.set(Toggle { key, value, until: until.map(|span| now + span) });
    bench.pool.set_toggles(toggles);
}

/// One streamed answer: its first byte after `ttft`, then `tokens` tokens in a second more.
pub(super) async fn answer(bench: &mut Bench, ttft: Duration, tokens: u32) {
    bench.ask(Asked::default());
    let granted = bench.granted().await;
    let lease = LeaseId(granted.lease);
    bench.pool.first_chunk(lease, &bench.caller, ttft);
    let answered = Answered {
        status: 200,
        ttft: Some(ttft),
        decode: SECOND,
        tokens: Some(tokens),
        prompt: Some((100, 60)),
        ..Answered::default()
    };
    bench.pool.release(lease, &bench.caller, &answered);
}

/// Answers until a window of them is smoothed: the window's end is seen by the sample after it.
pub(super) async fn a_window_of(bench: &mut Bench, ttft: Duration, tokens: u32) {
    for _ in 0..3 {
        answer(bench, ttft, tokens).await;
        tokio::time::advance(21 * SECOND).await;
        bench.pool.tick();
    }
}

pub(super) fn limit(bench: &Bench) -> f64 {
    bench.pool.route_state().pools[0].limit
}

#[tokio::test(start_paused = true)]
async fn limits_6_2_a_slow_pool_refuses_all_but_a_few_probes() {
    let mut bench = bench(json!({"ttft_limit_ms": 1000, "ttft_probe_per_window": 2, "max_concurrency": 100})).await;
    a_window_of(&mut bench, 30 * SECOND, 100).await;
    let mut granted = 0;
    for _ in 0..10 {
        bench.ask(Asked::default());
        if let (_, Kind::Granted(_)) = bench.answer().await {
            granted += 1;
        }
    }
    assert_eq!(granted, 2, "the probe slots of the window");
    bench.ask(Asked::default());
    let refused = bench.refused().await;
    assert_eq!((refused.gate(), refused.http_status, refused.retry_after_s), (v1::Gate::Ttft, 429, 1));
    let told = details(&refused);
    assert_eq!(told["error"], "ttft limit exceeded");
    assert_eq!((&told["trigger"], &told["metric"], &told["model"]), (&json!("ttft_ewma"), &json!("p80"), &json!("-")));
    assert_eq!(
        (&told["ttft_limit"], &told["healthy_peers"], &told["active_level"]),
        (&json!(1000), &json!(2), &json!(0))
    );
    assert!(told["ttft_ewma"].as_f64().unwrap() >= 30_000.0, "{told}");

    // The controls: the refusal alone is switched off, then the whole.
    for name in ["ttft_429", "ttft"] {
        set(&bench, name, "off", None);
        bench.ask(Asked::default());
        bench.granted().await;
        set(&bench, name, "on", None);
        bench.ask(Asked::default());
        bench.refused().await;
    }
}

#[tokio::test(start_paused = true)]
async fn limits_6_3_tps_refuses_where_the_limit_is_not_adaptive() {
    for is_adaptive in [false, true] {
        let options = json!({"tps_limit_tps": 40, "tps_probe_per_window": 0, "adaptive_cc": is_adaptive});
        let mut bench = bench(options).await;
        for _ in 0..2 {
            answer(&mut bench, SECOND, 20).await;
            tokio::time::advance(21 * SECOND).await;
        }
        bench.ask(Asked::default());
        if is_adaptive {
            bench.granted().await;
            continue;
        }
        let refused = bench.refused().await;
        let told = details(&refused);
        assert_eq!(
            (refused.gate(), &told["tps_limit"], &told["tps_ewma"]),
            (v1::Gate::Tps, &json!(40.0), &json!(10.0))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn limits_8_slow_answers_lower_the_limit_and_demand_raises_it_again() {
    let mut bench =
        bench(json!({"tps_limit_tps": 40, "adaptive_cc": true, "adaptive_cc_min": 4, "adaptive_cc_init": 40,
        "adaptive_cc_dec": 0.5, "adaptive_cc_inc": 2, "tps_ttl": "300s", "max_concurrency": 32, "max_waiting": 0}))
        .await;
    assert!((limit(&bench) - 40.0).abs() < 1e-9, "its start");
    a_window_of(&mut bench, SECOND, 20).await;
    let low = limit(&bench);
    assert!(low < 40.0, "{low}");
    for _ in 0..5 {
        a_window_of(&mut bench, SECOND, 20).await;
    }
    assert!((limit(&bench) - 4.0).abs() < 1e-9, "never below its floor: {}", limit(&bench));
    let mut held = Vec::new();
    for _ in 0..4 {
        bench.ask(Asked::default());
        held.push(bench.granted().await);
    }
    bench.ask(Asked::default());
    let refused = bench.refused().await;
    let told = details(&refused);
    assert_eq!(refused.gate(), v1::Gate::QueueFull);
    assert_eq!((&told["limit"], &told["pool_limit"], &told["adaptive_cc"]), (&json!(4.0), &json!(64), &json!(4.0)));
    assert_eq!(
        (&told["trigger"], &told["realtime"], &told["rt_factor"]),
        (&json!("realtime_1x"), &json!(4), &json!(1.0))
    );
    for granted in &held {
        bench.release(granted);
    }
    for _ in 0..40 {
        a_window_of(&mut bench, SECOND, 400).await;
    }
    assert!(limit(&bench) >= 39.0, "fast again, it climbs back to its start: {}", limit(&bench));
}

#[tokio::test(start_paused = true)]
async fn limits_10_a_master_switch_that_is_off_for_a_time_comes_back_by_itself() {
    let mut bench = bench(json!({"max_concurrency": 1, "max_waiting": 0})).await;
    set(&bench, "load_rate_limit", "off", Some(30 * SECOND));
    for _ in 0..5 {
        bench.ask(Asked::default());
        bench.granted().await;
    }
    let trips = bench.pool.state.lock().pools.list[0].flow.trips();
    assert_eq!((trips.concurrency, bench.pool.state.lock().pools.list[0].refusals.concurrency), (3, 0));
    assert_eq!(bench.pool.message().switches.get("load_rate_limit").map(String::as_str), Some("off"));
    tokio::time::advance(30 * SECOND).await;
    bench.pool.tick();
    assert!(bench.pool.take_dirty() && bench.pool.message().switches.is_empty(), "replicas hear of it");
    bench.ask(Asked::default());
    bench.refused().await;
    assert_eq!(bench.pool.state.lock().pools.list[0].refusals.concurrency, 1);
}

#[tokio::test(start_paused = true)]
async fn rulings_7_replicas_hear_that_a_limit_which_is_set_has_token_counts_asked_for() {
    let told = |bench: &Bench| bench.pool.message().switches.get("include_usage").cloned();
    let limited = bench(json!({})).await;
    assert_eq!(told(&limited), None, "the document says it");
    set(&limited, "ttft_limit_ms", "500", None);
    assert_eq!(told(&limited), None, "the control");
    set(&limited, "tps_limit_tps", "20", Some(30 * SECOND));
    assert_eq!(told(&limited).as_deref(), Some("on"));
    tokio::time::advance(30 * SECOND).await;
    limited.pool.tick();
    assert!(limited.pool.take_dirty());
    assert_eq!(told(&limited), None, "its time is over");
    let measuring = bench(json!({"tps_limit_tps": 20})).await;
    assert_eq!(told(&measuring), None, "the document says it");
    set(&measuring, "tps", "off", None);
    assert_eq!(told(&measuring).as_deref(), Some("off"), "nothing measures");
    set(&measuring, "include_usage", "on", None);
    assert_eq!(told(&measuring).as_deref(), Some("on"), "the switch comes first");
}

#[tokio::test]
async fn another_replica_s_word_on_an_answer_is_passed_over() {
    let mut bench = bench(json!({})).await;
    bench.ask(Asked::default());
    let granted = bench.granted().await;
    let (other, _heard) = stream("r2", 2);
    let samples = |bench: &Bench| bench.pool.take_flow_rows().len();
    samples(&bench);
    bench.pool.first_chunk(LeaseId(granted.lease), &other, SECOND);
    assert_eq!(samples(&bench), 0);
    bench.pool.first_chunk(LeaseId(granted.lease), &bench.caller, SECOND);
    assert_eq!(samples(&bench), 1, "the control: its own");
    bench.pool.first_chunk(LeaseId(granted.lease), &bench.caller, SECOND);
    assert_eq!(samples(&bench), 0, "an answer begins once");
}

#[tokio::test]
async fn what_is_stored_of_a_pool_is_taken_up_again() {
    let options = json!({"session_prio": true});
    let mut before = bench(options.clone()).await;
    before.ask(of_turn(1));
    before.granted().await;
    let rows = before.pool.take_flow_rows();
    assert_eq!(rows.len(), 1);
    assert!(before.pool.take_flow_rows().is_empty(), "nothing has changed since");
    before.pool.flow_not_stored();
    assert_eq!(before.pool.take_flow_rows().len(), 1, "but it was not stored");
    let after = bench(options).await;
    after.pool.restore_flow(&rows[0]);
    let admits = |bench: &Bench| bench.pool.state.lock().pools.list[0].flow.turn_counts().buckets()[0].admitted;
    assert_eq!(admits(&after), admits(&before));
    after.pool.restore_flow(&crate::store::FlowRow { state: "{".to_owned(), ..rows[0].clone() });
    assert_eq!(admits(&after), 1, "what can't be read changes nothing");
}

#[tokio::test(start_paused = true)]
async fn rulings_1_a_pool_that_is_full_and_slow_refuses_at_once() {
    let options = |limit: u64| json!({"ttft_limit_ms": limit, "ttft_probe_per_window": 0, "max_concurrency": 1});
    for (limit, waits) in [(1000, false), (90_000, true)] {
        let mut bench = bench(options(limit)).await;
        for _ in 0..2 {
            answer(&mut bench, 30 * SECOND, 100).await;
            tokio::time::advance(21 * SECOND).await;
        }
        // Full, by those that the master switch let in.
        set(&bench, "load_rate_limit", "off", None);
        for _ in 0..2 {
            bench.ask(Asked::default());
            bench.granted().await;
        }
        set(&bench, "load_rate_limit", "on", None);
        bench.ask(Asked::default());
        if waits {
            assert_eq!(bench.pool.route_state().waiting, 1, "the control: a pool that is only full");
        } else {
            assert_eq!(bench.refused().await.gate(), v1::Gate::Ttft);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rulings_3_the_adaptive_limit_sees_what_competes_and_each_request_once() {
    let options = json!({"tps_limit_tps": 5, "adaptive_cc": true, "adaptive_cc_min": 2, "max_concurrency": 8});
    let mut bench = bench(options).await;
    let controller = |bench: &Bench| {
        let state = bench.pool.state.lock();
        let pool = &state.pools.list[0];
        let view = pool.flow.adaptive(UnixMs(0), &pool.options, pool.static_max).unwrap();
        (view.conc, view.rej)
    };
    let mut held = Vec::new();
    for _ in 0..2 {
        bench.ask(Asked::default());
        held.push(bench.granted().await);
    }
    bench.ask(Asked::default());
    assert_eq!(controller(&bench), (Some(2), 1), "a new request that has to wait is demand");
    // A retry that has to wait is none: it was admitted before.
    let failed = BackendId::new(&held[0].backend).unwrap();
    let transfer = Failed { lease: LeaseId(held[0].lease), backend: failed.clone(), is_connect: false };
    bench.pool.transfer(99, &transfer, Asked { tried: vec![failed], ..Asked::default() }, &bench.caller);
    assert_eq!(controller(&bench), (Some(2), 1));
    // What runs on a drained backend competes with nobody.
    for number in 0..2 {
        bench.pool.set_drain(&backend(number), true);
    }
    bench.pool.set_drain(&backend(0), false);
    bench.ask(Asked::default());
    let (conc, _) = controller(&bench);
    assert!(conc.is_some_and(|conc| conc < 3), "{conc:?}");
}
