//! Flow control as requests meet it: gates, adaptive limit, turns, models, tiers, toggles (routing.md §6, limits.md §6 to §10).

use router_policy::toggle::{Toggle, ToggleKey};
use serde_json::Value as Json;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

async fn bench(options: Json) -> Bench {
    Bench::forgetful(&json!({"name": "chat", "options": options,
        "backends": [{"address": backend(0).to_string()}, {"address": backend(1).to_string()}]}))
    .await
}

fn of_turn(turn: u32) -> Asked {
    Asked { turn: Some(turn), ..Asked::default() }
}

fn of_model(model: &str) -> Asked {
    Asked { model: model.to_owned(), ..Asked::default() }
}

fn details(refused: &v1::Refused) -> Json {
    serde_json::from_str(&refused.details_json).unwrap()
}

fn set(bench: &Bench, name: &str, value: &str, until: Option<Duration>) {
    let key = ToggleKey::parse(name, "").unwrap();
    let value = key.parse_value(value).unwrap();
    let now = bench.pool.context.unix(bench.pool.context.clock.now());
    let mut toggles = bench.pool.toggles();
    toggles.set(Toggle { key, value, until: until.map(|span| now + span) });
    bench.pool.set_toggles(toggles);
}

/// One streamed answer: its first byte after `ttft`, then `tokens` tokens in a second more.
async fn answer(bench: &mut Bench, ttft: Duration, tokens: u32) {
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
async fn a_window_of(bench: &mut Bench, ttft: Duration, tokens: u32) {
    for _ in 0..3 {
        answer(bench, ttft, tokens).await;
        tokio::time::advance(21 * SECOND).await;
        bench.pool.tick();
    }
}

fn limit(bench: &Bench) -> f64 {
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
async fn limits_9_first_turns_are_refused_first() {
    let options =
        |on: bool| json!({"session_prio": on, "session_prio_r_new": 0.5, "max_concurrency": 5, "max_waiting": 0});
    let mut with = bench(options(true)).await;
    for _ in 0..5 {
        with.ask(of_turn(1));
        with.granted().await;
    }
    with.ask(of_turn(1));
    assert_eq!(with.refused().await.gate(), v1::Gate::QueueFull);
    for _ in 0..5 {
        with.ask(of_turn(40));
        with.granted().await;
    }
    with.ask(of_turn(40));
    with.refused().await;
    let mut without = bench(options(false)).await;
    for _ in 0..10 {
        without.ask(of_turn(1));
        without.granted().await;
    }
}

#[tokio::test(start_paused = true)]
async fn rulings_3_the_warmest_waiter_is_served_first_then_the_first() {
    let mut bench = bench(json!({"session_prio": true, "max_concurrency": 1, "queue_timeout": "60s"})).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        bench.ask(of_turn(40));
        held.push(bench.granted().await);
    }
    let cold = bench.ask(of_turn(1));
    let warm = bench.ask(of_turn(9));
    let warmest = bench.ask(of_turn(40));
    let late = bench.ask(of_turn(41));
    let mut order = Vec::new();
    for _ in 0..4 {
        bench.release(&held.remove(0));
        let (op, kind) = bench.answer().await;
        let Kind::Granted(granted) = kind else { panic!("{kind:?}") };
        order.push(op);
        held.push(granted);
    }
    assert_eq!(order, [warmest, late, warm, cold], "the first turn comes when nobody warmer waits");
    let starved = bench.ask(of_turn(1));
    tokio::time::advance(61 * SECOND).await;
    bench.pool.tick();
    let (op, kind) = bench.answer().await;
    assert!(
        op == starved && matches!(&kind, Kind::Refused(refused) if refused.gate() == v1::Gate::QueueTimeout),
        "{kind:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn switching_turns_on_reorders_who_waits_already() {
    let mut bench = bench(json!({"max_concurrency": 1})).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        bench.ask(Asked::default());
        held.push(bench.granted().await);
    }
    let (cold, warm) = (bench.ask(of_turn(1)), bench.ask(of_turn(40)));
    set(&bench, "session_prio", "on", None);
    bench.release(&held[0]);
    assert_eq!(bench.answer().await.0, warm);
    set(&bench, "session_prio", "off", None);
    bench.release(&held[1]);
    assert_eq!(bench.answer().await.0, cold);
}

#[tokio::test]
async fn routing_7_an_unknown_model_is_400_with_the_models_that_there_are() {
    let document = json!({"name": "chat", "options": {"max_concurrency": 1, "max_waiting": 0}, "backends_by_model": {
        "b": [backend(0).to_string()], "a": [backend(1).to_string()]}});
    let mut bench = Bench::forgetful(&document).await;
    for (model, shown) in [("c\"", "c\""), ("", "nil")] {
        bench.ask(of_model(model));
        let refused = bench.refused().await;
        assert_eq!((refused.gate(), refused.http_status, refused.retry_after_s), (v1::Gate::UnknownModel, 400, 0));
        assert_eq!(refused.detail, format!("model '{shown}' not configured on this route"));
        assert_eq!(details(&refused), json!({"supported_models": ["a", "b"]}));
    }
    bench.ask(of_model("a"));
    assert_eq!(bench.granted().await.backend, backend(1).to_string());
    bench.ask(of_model("a"));
    assert_eq!(bench.refused().await.gate(), v1::Gate::QueueFull, "its pool is full");
    bench.ask(of_model("b"));
    assert_eq!(bench.granted().await.backend, backend(0).to_string(), "the other is not");
}

#[tokio::test]
async fn a_model_that_goes_takes_its_waiters_with_it_and_leaves_the_others() {
    let pools = |models: Json| json!({"name": "chat", "options": {"max_concurrency": 1}, "backends_by_model": models});
    let (first, second) = (backend(0).to_string(), backend(1).to_string());
    let mut bench = Bench::forgetful(&pools(json!({"a": [first], "b": [second]}))).await;
    for model in ["a", "b"] {
        bench.ask(of_model(model));
        bench.granted().await;
    }
    let (of_a, of_b) = (bench.ask(of_model("a")), bench.ask(of_model("b")));
    bench.pool.install(Arc::new(parse_route(&pools(json!({"b": [second]}))).unwrap()));
    let (op, kind) = bench.answer().await;
    assert!(
        op == of_a && matches!(&kind, Kind::Refused(refused) if refused.gate() == v1::Gate::UnknownModel),
        "{kind:?}"
    );
    assert_eq!(bench.pool.route_state().waiting, 1, "{of_b} waits on");
}

#[tokio::test]
async fn routing_3_a_lower_tier_takes_over_and_gives_back() {
    let document = json!({"name": "chat", "backends": [
        {"address": backend(0).to_string(), "priority": 10}, {"address": backend(1).to_string()}]});
    let mut bench = Bench::forgetful(&document).await;
    let placed = async |bench: &mut Bench| {
        bench.ask_for(1);
        let granted = bench.granted().await;
        bench.release(&granted);
        (granted.backend.clone(), granted.mode())
    };
    let (high, low) = (backend(0).to_string(), backend(1).to_string());
    assert_eq!(placed(&mut bench).await, (high.clone(), v1::Mode::New));
    bench.pool.set_drain(&backend(0), true);
    assert_eq!(placed(&mut bench).await, (low, v1::Mode::Moved));
    bench.pool.set_drain(&backend(0), false);
    assert_eq!(placed(&mut bench).await, (high.clone(), v1::Mode::Moved));
    assert_eq!(placed(&mut bench).await, (high, v1::Mode::Bound));
}

#[tokio::test]
async fn rulings_1_hash_and_rendezvous_make_no_bindings() {
    for (affinity, mode) in
        [("hash", v1::Mode::Hash), ("rendezvous", v1::Mode::Rendezvous), ("off", v1::Mode::LeastConn)]
    {
        let mut bench = bench(json!({"affinity": affinity, "max_concurrency": 1, "max_waiting": 0})).await;
        let asked = || Asked {
            fingerprint: Some(session(1)),
            crc32: Some(7),
            ranked: vec![backend(1), backend(0)],
            ..Asked::default()
        };
        bench.ask(asked());
        let granted = bench.granted().await;
        assert_eq!(granted.mode(), mode, "{affinity}");
        assert_eq!(bench.pool.sessions(&SessionFilter::default(), 10).1, 0);
        if affinity != "off" {
            assert_eq!(granted.backend, backend(1).to_string(), "{affinity}");
            bench.ask(asked());
            assert_eq!(bench.granted().await.mode(), v1::Mode::HashFallback, "{affinity}: its backend is full");
        }
    }
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
async fn limits_9_6_tokens_and_admits_are_counted_by_turn() {
    let mut bench = bench(json!({"session_prio": true})).await;
    for asked in [of_turn(1), of_turn(3), Asked::default()] {
        bench.ask(asked);
        let granted = bench.granted().await;
        let answered = Answered { status: 200, ttft: Some(SECOND), prompt: Some((100, 60)), ..Answered::default() };
        bench.pool.release(LeaseId(granted.lease), &bench.caller, &answered);
    }
    let state = bench.pool.state.lock();
    let counts = state.pools.list[0].flow.turn_counts();
    let seen: Vec<(u64, u64, u64)> = counts
        .buckets()
        .iter()
        .take(2)
        .chain([counts.no_header()])
        .map(|one| (one.admitted, one.prompt_tokens, one.cached_tokens))
        .collect();
    assert_eq!(seen, [(1, 100, 60); 3]);
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
