//! Session turn priority as requests meet it (limits.md §9, rulings §3).

use super::flow::{SECOND, bench, of_turn, set};
use super::*;

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
    // Warm traffic that never ends: the first turn is told so when its time is over, not later.
    let starved = bench.ask(of_turn(1));
    for _ in 0..7 {
        let next = bench.ask(of_turn(40));
        bench.release(&held.remove(0));
        let (op, kind) = bench.answer().await;
        let Kind::Granted(granted) = kind else { panic!("{kind:?}") };
        assert_eq!(op, next);
        held.push(granted);
        tokio::time::advance(10 * SECOND).await;
        if bench.pool.route_state().waiting == 1 {
            bench.pool.tick();
        }
        if let Ok(op) = bench.answers.try_recv() {
            assert_eq!(op.op, starved);
            let Some(Kind::Refused(refused)) = op.kind else { panic!("{op:?}") };
            assert_eq!(refused.gate(), v1::Gate::QueueTimeout);
            return;
        }
    }
    panic!("it waited for longer than its time");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_gives_the_coldest_s_place_to_a_warmer_turn() {
    let options = |on: bool| json!({"session_prio": on, "max_concurrency": 1, "max_waiting": 2});
    for is_on in [true, false] {
        let mut bench = bench(options(is_on)).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            bench.ask(of_turn(40));
            held.push(bench.granted().await);
        }
        bench.ask(Asked { is_reserve: true, ..of_turn(1) });
        let last = bench.ask(Asked { model: "m1".to_owned(), ..of_turn(1) });
        // On a route with one pool the model makes no difference.
        let warm = bench.ask(Asked { model: "m2".to_owned(), ..of_turn(9) });
        let (op, kind) = bench.answer().await;
        assert!(matches!(&kind, Kind::Refused(refused) if refused.gate() == v1::Gate::QueueFull), "{kind:?}");
        assert_eq!(op, if is_on { last } else { warm }, "the control: without ranks, who comes last goes");
        assert_eq!(bench.pool.route_state().waiting, 2);
        if is_on {
            let cold = bench.ask(of_turn(1));
            assert_eq!(bench.answer().await.0, cold, "nobody gives way to a turn as cold");
            bench.release(&held[0]);
            assert_eq!(bench.answer().await.0, warm);
        }
    }
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

#[tokio::test(start_paused = true)]
async fn who_is_refused_for_speed_takes_nobody_s_place() {
    let mut bench =
        bench(json!({"session_prio": true, "max_concurrency": 1, "max_waiting": 1, "queue_timeout": "600s",
        "ttft_limit_ms": 1000, "ttft_probe_per_window": 0}))
        .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        bench.ask(of_turn(40));
        held.push(LeaseId(bench.granted().await.lease));
    }
    let cold = bench.ask(of_turn(1));
    // The pool becomes slow while it waits.
    for lease in held {
        bench.pool.first_chunk(lease, &bench.caller, 30 * SECOND);
        tokio::time::advance(21 * SECOND).await;
    }
    let warm = bench.ask(of_turn(40));
    let (op, kind) = bench.answer().await;
    assert!(matches!(&kind, Kind::Refused(refused) if refused.gate() == v1::Gate::Ttft), "{kind:?}");
    assert_eq!((op, bench.pool.route_state().waiting), (warm, 1));
    // The control: without that gate it does.
    set(&bench, "ttft_429", "off", None);
    bench.ask(of_turn(40));
    assert_eq!(bench.answer().await.0, cold);
}
