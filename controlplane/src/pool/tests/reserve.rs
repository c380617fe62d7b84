//! Slots for requests whose body is still coming in (gateway.md §1).

use super::*;

fn reserve() -> Asked {
    Asked { is_reserve: true, ..Asked::default() }
}

fn with(reservation: &v1::Granted, number: u8) -> Asked {
    Asked { fingerprint: Some(session(number)), reservation: Some(LeaseId(reservation.lease)), ..Asked::default() }
}

fn reserved(bench: &Bench) -> u32 {
    bench.pool.route_state().reserved
}

#[tokio::test]
async fn gateway_1_a_body_on_its_way_occupies_a_slot() {
    let mut bench = Bench::new(2, json!({"max_concurrency": 1, "max_waiting": 0})).await;
    bench.ask(reserve());
    let slot = bench.granted().await;
    assert_eq!((slot.backend.as_str(), reserved(&bench), bench.pool.in_flight()), ("", 1, 1));
    bench.ask_for(1);
    bench.granted().await;
    bench.ask_for(2);
    let refused = bench.refused().await;
    assert_eq!((refused.gate, refused.in_flight, refused.limit), (i32::from(v1::Gate::QueueFull), 2, 2));
    bench.ask(reserve());
    assert_eq!(bench.refused().await.http_status, 429);

    bench.ask(with(&slot, 3));
    let granted = bench.granted().await;
    assert_eq!((granted.mode, reserved(&bench)), (i32::from(v1::Mode::New), 0));
    assert_eq!(bench.loads(), [1, 1]);
}

#[tokio::test]
async fn gateway_1_a_client_that_leaves_during_its_upload_gives_the_slot_to_the_next() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1})).await;
    bench.ask(reserve());
    let slot = bench.granted().await;
    bench.ask_for(1);
    assert!(bench.answers.try_recv().is_err(), "it waits");
    bench.release(&slot);
    assert_eq!(bench.granted().await.backend, backend(0).to_string());
    assert_eq!((reserved(&bench), bench.pool.in_flight()), (0, 1));
}

#[tokio::test]
async fn a_reservation_whose_backend_is_gone_waits_as_everybody_does() {
    for max_waiting in [1, 2] {
        let mut bench = Bench::new(2, json!({"max_concurrency": 1, "max_waiting": max_waiting})).await;
        bench.ask(reserve());
        let slot = bench.granted().await;
        bench.ask_for(1);
        let other = bench.granted().await;
        let idle = if other.backend == backend(0).to_string() { backend(1) } else { backend(0) };
        bench.pool.set_drain(&idle, true);
        bench.ask_for(2);
        assert!(bench.answers.try_recv().is_err(), "one waits");
        bench.ask(with(&slot, 3));
        assert_eq!((reserved(&bench), bench.pool.route_state().waiting), (0, max_waiting));
        if max_waiting == 1 {
            assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::QueueFull), "the queue has no place for more");
        }
        bench.release(&other);
        assert_eq!(bench.granted().await.mode, i32::from(v1::Mode::New));
    }
}

#[tokio::test]
async fn a_reservation_claims_only_what_it_could_use() {
    let mut bench = Bench::new(2, json!({})).await;
    let (large, small) = (backend(0).to_string(), backend(1).to_string());
    let backends = json!([{"address": large, "context_limit": 100}, {"address": small, "context_limit": 10}]);
    let options = json!({"max_concurrency": 1, "max_waiting": 0});
    let document = json!({"name": "chat", "options": options, "backends": backends});
    bench.pool.install(Arc::new(parse_route(&document).unwrap()));
    let wide = |asked: Asked| Asked { context_tokens: 100, ..asked };
    bench.ask(wide(reserve()));
    let slot = bench.granted().await;
    bench.ask(wide(reserve()));
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::QueueFull), "the small one is no room for it");
    bench.ask_for(1);
    assert_eq!(bench.granted().await.backend, small, "and is free for others");
    bench.ask_for(2);
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::QueueFull), "the large one is not");
    bench.ask(wide(with(&slot, 3)));
    assert_eq!(bench.granted().await.backend, large);
}

#[tokio::test]
async fn windows_of_all_sizes_are_few_kinds_of_claims() {
    let mut bench = Bench::new(2, json!({})).await;
    let backends = json!([
        {"address": backend(0).to_string(), "context_limit": 100},
        {"address": backend(1).to_string(), "context_limit": 1000},
    ]);
    let options = json!({"max_concurrency": 400, "max_waiting": 0});
    let document = json!({"name": "chat", "options": options, "backends": backends});
    bench.pool.install(Arc::new(parse_route(&document).unwrap()));
    let mut slots = Vec::new();
    for tokens in 1..=500 {
        bench.ask(Asked { context_tokens: tokens, ..reserve() });
        slots.push(bench.granted().await);
    }
    assert_eq!(bench.pool.state.lock().view(Place::Pool(0), UnixMs(0)).claims.len(), 2);
    for (tokens, slot) in (1..).zip(&slots) {
        bench.ask(Asked { context_tokens: tokens, ..with(slot, 1) });
        bench.granted().await;
    }
    assert_eq!((reserved(&bench), bench.pool.in_flight()), (0, 500));
}

#[tokio::test]
async fn a_refusal_after_the_upload_frees_the_slot_for_whoever_waits() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1, "max_sessions": 1, "on_full": "refuse"})).await;
    bench.ask_for(1);
    let first = bench.granted().await;
    bench.release(&first);
    bench.ask(reserve());
    let slot = bench.granted().await;
    bench.ask_for(1);
    assert!(bench.answers.try_recv().is_err());
    bench.ask(with(&slot, 2));
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::SessionTableFull));
    assert_eq!(bench.granted().await.mode, i32::from(v1::Mode::Bound));
}

#[tokio::test]
async fn a_replica_s_reservations_are_reported_and_end_with_it() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 4})).await;
    bench.ask(reserve());
    let kept = bench.granted().await;
    bench.ask(reserve());
    bench.granted().await;
    let held = held(kept.lease, None);
    let unknown = Held { lease: LeaseId::new(0, 9), ..held.clone() };
    bench.pool.reconcile(&"r1".into(), &[held, unknown]);
    assert_eq!(reserved(&bench), 2, "one was dropped, one was taken up");
    bench.ask(with(&kept, 1));
    bench.granted().await;
    assert_eq!(reserved(&bench), 1);
    bench.context_flush().await;
    let stored = bench.store.load().await.unwrap().leases;
    assert_eq!(stored.len(), 1, "what is on no backend is not stored: {stored:?}");
    bench.pool.drop_replica("r1");
    assert_eq!((reserved(&bench), bench.pool.in_flight()), (0, 0));
}

#[tokio::test]
async fn gateway_7_a_window_is_asked_for_before_the_body_too() {
    let bench_of = |tokens: u64| Asked { context_tokens: tokens, ..reserve() };
    let mut bench = Bench::new(1, json!({"model_context_limit": 100})).await;
    bench.ask(bench_of(100));
    bench.granted().await;
    bench.ask(bench_of(101));
    let refused = bench.refused().await;
    assert_eq!((refused.gate, refused.http_status), (i32::from(v1::Gate::ContextWindow), 503));
}
