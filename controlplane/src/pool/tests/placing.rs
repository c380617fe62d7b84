//! Pools per model, tiers, affinity modes, and what conventions §2 asks of placing.

use super::flow::{SECOND, bench, details, of_model};
use serde_json::Value as Json;

use super::*;

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

#[tokio::test]
async fn conventions_2_the_last_backend_of_a_model_is_not_banned_by_errors_alone() {
    let document = json!({"name": "chat", "backends_by_model": {
        "a": [backend(0).to_string()], "b": [backend(1).to_string(), backend(2).to_string()]}});
    let mut bench = Bench::forgetful(&document).await;
    for (model, is_banned) in [("a", false), ("b", true)] {
        bench.ask(of_model(model));
        let granted = bench.granted().await;
        let backend = BackendId::new(&granted.backend).unwrap();
        let failed = Failed { lease: LeaseId(granted.lease), backend: backend.clone(), is_connect: true };
        let again = Asked { tried: vec![backend], ..of_model(model) };
        bench.pool.transfer(99, &failed, again, &bench.caller);
        bench.answer().await;
        let states = bench.pool.backend_states();
        let state = states.iter().find(|state| state.address == granted.backend).unwrap();
        assert_eq!(state.condition.unwrap().unhealthy, is_banned, "{model}");
    }
}

#[tokio::test(start_paused = true)]
async fn conventions_2_a_refusal_evicts_nobody() {
    let options = |limit: u32| {
        json!({"max_sessions": 1, "on_full": "evict_idle", "session_idle_ttl": "10s",
        "max_concurrency": limit, "max_waiting": 0})
    };
    for (limit, is_evicted) in [(1, false), (2, true)] {
        let mut bench = Bench::forgetful(&json!({"name": "chat", "options": options(limit),
            "backends": [backend(0).to_string()]}))
        .await;
        bench.ask_for(1);
        let first = bench.granted().await;
        bench.release(&first);
        tokio::time::advance(11 * SECOND).await;
        bench.ask(Asked::default());
        bench.granted().await;
        bench.ask_for(2);
        bench.answer().await;
        let (bound, _) = bench.pool.sessions(&SessionFilter::default(), 10);
        let expected = session(if is_evicted { 2 } else { 1 }).to_string();
        assert_eq!(bound.iter().map(|row| row.fingerprint.clone()).collect::<Vec<_>>(), [expected]);
    }
}
