//! Data-parallel ranks (gateway.md §8): chosen with the binding, kept with it, chosen anew where the session moves.

use std::collections::BTreeMap;

use super::*;

/// A pool whose two backends have `dp_size` ranks.
async fn ranked(dp_size: u32, options: serde_json::Value) -> Bench {
    let bench = Bench::new(2, json!({})).await;
    install(&bench, dp_size, &options);
    bench
}

fn install(bench: &Bench, dp_size: u32, options: &serde_json::Value) {
    let backends: Vec<_> =
        (0..2).map(|number| json!({"address": backend(number).to_string(), "dp_size": dp_size})).collect();
    let spec = parse_route(&json!({"name": "chat", "options": options, "backends": backends})).unwrap();
    bench.pool.install(Arc::new(spec));
}

async fn turn(bench: &mut Bench, number: u8) -> v1::Granted {
    bench.ask_for(number);
    let granted = bench.granted().await;
    bench.release(&granted);
    granted
}

#[tokio::test]
async fn gateway_8_sessions_spread_over_ranks_and_stay_on_theirs() {
    let mut bench = ranked(4, json!({})).await;
    let mut used: BTreeMap<(String, u32), u32> = BTreeMap::new();
    let mut first = Vec::new();
    for number in 0..16 {
        let granted = turn(&mut bench, number).await;
        *used.entry((granted.backend.clone(), granted.dp_rank.unwrap())).or_default() += 1;
        first.push((granted.backend, granted.dp_rank));
    }
    assert_eq!(used.len(), 8, "every rank of both backends");
    assert!(used.values().all(|count| *count == 2), "{used:?}");
    for (number, place) in (0..).zip(&first) {
        let again = turn(&mut bench, number).await;
        assert_eq!((&again.backend, again.dp_rank), (&place.0, place.1));
    }
    let stored = bench.store.load().await.unwrap().bindings;
    assert!(stored.iter().all(|row| row.dp_rank == first[usize::from(row.fingerprint.0[0])].1), "{stored:?}");
}

#[tokio::test]
async fn gateway_8_a_session_that_moves_gets_a_rank_there_and_its_old_one_is_free() {
    let mut bench = ranked(2, json!({})).await;
    let (one, two) = (turn(&mut bench, 1).await, turn(&mut bench, 2).await);
    assert_ne!(one.backend, two.backend);
    bench.pool.set_drain(&BackendId::new(&one.backend).unwrap(), true);
    let moved = turn(&mut bench, 1).await;
    assert_eq!((&moved.backend, moved.dp_rank), (&two.backend, Some(1)), "rank 0 is session 2's");
    bench.pool.forget(|fingerprint, _| fingerprint == session(2));
    assert_eq!(turn(&mut bench, 3).await.dp_rank, Some(0), "a forgotten session's rank is free");
}

#[tokio::test]
async fn gateway_8_ranks_follow_the_route_document() {
    let mut bench = ranked(4, json!({})).await;
    let mut places = BTreeMap::new();
    for number in 0..8 {
        places.insert(number, turn(&mut bench, number).await.dp_rank);
    }
    // Fewer ranks: only sessions on one that is gone get another, and it is kept.
    install(&bench, 2, &json!({}));
    for (number, before) in places {
        let after = turn(&mut bench, number).await.dp_rank;
        assert!(after.unwrap() < 2);
        assert!(before.unwrap() >= 2 || after == before, "{before:?} {after:?}");
        assert_eq!(turn(&mut bench, number).await.dp_rank, after);
        let stored = bench.store.load().await.unwrap().bindings;
        let row = stored.iter().find(|row| row.fingerprint == session(number)).unwrap();
        assert_eq!(row.dp_rank, after);
    }
    install(&bench, 2, &json!({"backend_managed_affinity": true}));
    assert_eq!(turn(&mut bench, 1).await.dp_rank, None, "the engine chooses");
    install(&bench, 1, &json!({}));
    assert_eq!(turn(&mut bench, 1).await.dp_rank, None, "one rank is none");
}

#[tokio::test]
async fn gateway_8_a_request_without_a_session_has_no_rank() {
    let mut bench = ranked(4, json!({})).await;
    bench.ask(Asked::default());
    assert_eq!(bench.granted().await.dp_rank, None);
}
