//! Tiers, pools per model, hash and rendezvous, the pool's limit and the master switch (routing.md §3, §5, §8.2; limits.md §6.1,
//! §10; rulings §1, §3).

use super::*;
use crate::flow::TurnTable;

fn tier(priority: i64, in_flight: u32, limit: u32) -> BackendView {
    BackendView { priority: Priority::from_thousandths(priority * 1000), ..backend(in_flight, limit, 0) }
}

fn nobody() -> Ask<'static> {
    Ask { preference: Preference::None, ..ask(None) }
}

fn granted(decision: Decision) -> Option<Slot> {
    match decision {
        Decision::Grant(grant) => Some(grant.slot),
        _ => None,
    }
}

fn picked(decision: Decision) -> (Slot, Pick) {
    match decision {
        Decision::Grant(grant) => (grant.slot, grant.pick),
        other => panic!("{other:?}"),
    }
}

#[test]
fn routing_3_only_the_highest_tier_that_is_up_takes_requests() {
    let mut backends = [tier(0, 0, 8), tier(10, 7, 8), tier(-5, 0, 8)];
    assert_eq!(granted(decide(&pool(&backends), &nobody())), Some(1));
    backends[1].is_admitted = false;
    assert_eq!(granted(decide(&pool(&backends), &nobody())), Some(0), "it dies: the next one takes over");
    backends[1].is_admitted = true;
    assert_eq!(granted(decide(&pool(&backends), &nobody())), Some(1), "and it returns");
    backends[1].in_flight = 8;
    assert_eq!(decide(&pool(&backends), &nobody()), Decision::Wait, "full is not down");
    let crossing = PoolView { crosses_tiers: true, ..pool(&backends) };
    assert_eq!(granted(decide(&crossing, &nobody())), Some(0), "unless tiers may be crossed");
}

#[test]
fn routing_3_a_session_follows_the_tier() {
    let mut backends = [tier(0, 0, 8), tier(10, 0, 8)];
    assert_eq!(decide(&pool(&backends), &ask(Some(0))), grant(1, Binding::Moved), "the higher tier is back");
    backends[1].in_flight = 8;
    let crossing = PoolView { crosses_tiers: true, ..pool(&backends) };
    assert_eq!(
        decide(&crossing, &ask(Some(0))),
        grant(0, Binding::Kept),
        "it is full: where the session is, its cache is"
    );
}

#[test]
fn routing_8_2_retries_go_down_the_tiers_one_backend_each() {
    let backends = [tier(10, 0, 8), tier(10, 5, 8), tier(5, 1, 8), tier(5, 2, 8), tier(0, 0, 8)];
    let stay = pool(&backends);
    let cross = PoolView { crosses_tiers: true, ..stay };
    let after = |pool: &PoolView<'_>, tried: &[Slot]| decide(pool, &Ask { tried, ..nobody() });
    assert_eq!(granted(after(&stay, &[0])), Some(1));
    assert_eq!(gate(after(&stay, &[0, 1])), Some(Gate::NoMoreBackends));
    assert_eq!(granted(after(&cross, &[0])), Some(1));
    assert_eq!(granted(after(&cross, &[0, 1])), Some(2), "the least loaded of the next tier");
    assert_eq!(granted(after(&cross, &[0, 1, 2])), Some(4), "one of each lower tier");
    assert_eq!(gate(after(&cross, &[0, 1, 2, 4])), Some(Gate::NoMoreBackends));
}

#[test]
fn limits_example_30_by_rulings_3_the_pool_s_limit_is_the_sum_over_its_candidates() {
    // Example 30 of limits.md §14, as rulings §3 change it: the active tier's own 10, not the largest tier's 128.
    let backends = [tier(1, 10, 10), tier(0, 0, 64), tier(0, 0, 64)];
    let refused = |pool: PoolView<'_>| match decide(&PoolView { max_waiting: 0, ..pool }, &nobody()) {
        Decision::Refuse(refusal) => (refusal.in_flight, refusal.limit, refusal.healthy),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(pool(&backends)), (10, 10, 1));
    let full = [tier(1, 10, 10), tier(0, 64, 64), tier(0, 64, 64)];
    assert_eq!(refused(PoolView { crosses_tiers: true, ..pool(&full) }), (138, 138, 1));
}

#[test]
fn limits_example_31_a_limit_of_10_2_admits_the_eleventh() {
    let limited = |in_flight| {
        let backends = [tier(0, in_flight, 64)];
        decide(&PoolView { adaptive: Some(10.2), ..pool(&backends) }, &nobody())
    };
    assert_eq!(granted(limited(10)), Some(0));
    assert_eq!(limited(11), Decision::Wait);
}

#[test]
fn limits_example_33_backends_that_are_out_lower_the_limit() {
    let mut backends = [tier(0, 3, 3), tier(0, 0, 3)];
    let adaptive = |backends: &[BackendView]| decide(&PoolView { adaptive: Some(6.0), ..pool(backends) }, &nobody());
    assert_eq!(granted(adaptive(&backends)), Some(1));
    backends[1].is_admitted = false;
    assert_eq!(adaptive(&backends), Decision::Wait, "the limit is 3 now");
    backends[0].in_flight = 2;
    assert_eq!(granted(adaptive(&backends)), Some(0));
}

#[test]
fn rulings_3_leases_on_backends_that_are_out_count_against_them_alone() {
    let mut backends = [tier(0, 8, 8), tier(0, 7, 8)];
    backends[0].is_admitted = false;
    assert_eq!(granted(decide(&pool(&backends), &nobody())), Some(1));
}

#[test]
fn limits_9_3_a_share_holds_a_turn_back_and_a_retry_is_not_asked_again() {
    let backends = [tier(0, 9, 10)];
    let first = Ask { share: 0.85, ..nobody() };
    assert_eq!(decide(&pool(&backends), &first), Decision::Wait);
    assert_eq!(granted(decide(&pool(&backends), &nobody())), Some(0), "a late turn");
    let backends = [tier(0, 9, 10), tier(0, 9, 10)];
    assert_eq!(granted(decide(&pool(&backends), &Ask { tried: &[0], ..first })), Some(1), "admitted before");
}

#[test]
fn a_pool_per_model_has_its_own_backends_only() {
    let backends = [tier(0, 8, 8), tier(5, 0, 8), tier(0, 0, 8)];
    let of_model = PoolView { members: &[0, 2], is_by_model: true, ..pool(&backends) };
    assert_eq!(granted(decide(&of_model, &nobody())), Some(2), "another model's tier says nothing here");
    assert_eq!(decide(&of_model, &ask(Some(1))), grant(2, Binding::Moved), "nor is a session bound there");
    let alone = PoolView { members: &[0], is_by_model: true, ..pool(&backends) };
    assert_eq!(decide(&alone, &nobody()), Decision::Wait);
}

#[test]
fn uploads_of_one_model_keep_no_slot_of_another_back() {
    let backends = [tier(0, 0, 1), tier(0, 0, 1)];
    let claims = [Claims { window: 0, count: 2 }];
    let of_model = PoolView { members: &[1], is_by_model: true, claims: &claims, ..pool(&backends) };
    assert_eq!(granted(decide(&of_model, &nobody())), Some(1));
    let everybody = PoolView { members: &[0, 1], ..of_model };
    assert_eq!(reserve(&everybody, &nobody()), Decision::Wait, "no more bodies than slots");
    let flat = PoolView { is_by_model: false, ..everybody };
    assert_eq!(decide(&flat, &nobody()), Decision::Wait, "the control: with one pool, a claim is kept");
}

#[test]
fn rulings_1_hash_is_modulo_the_configured_backends_of_the_active_tier() {
    let mut backends = [tier(0, 0, 8), tier(10, 0, 8), tier(10, 0, 8), tier(10, 0, 8)];
    let hashed = |backends: &[BackendView], hash| {
        picked(decide(&pool(backends), &Ask { preference: Preference::Crc32(hash), ..nobody() }))
    };
    for hash in 0..9 {
        assert_eq!(hashed(&backends, hash), (1 + hash as usize % 3, Pick::Hash), "{hash}");
    }
    backends[2].is_admitted = false;
    let (slot, pick) = hashed(&backends, 1);
    assert!(slot != 2 && slot != 0 && pick == Pick::Fallback, "its backend is out: the least loaded of the tier");
    assert_eq!(hashed(&backends, 0), (1, Pick::Hash), "everybody else stays");
    assert_eq!(hashed(&backends, 2), (3, Pick::Hash));
    backends[3].in_flight = 8;
    assert_eq!(hashed(&backends, 2), (1, Pick::Fallback), "full");
}

#[test]
fn routing_5_1_rendezvous_takes_the_best_that_is_up_and_falls_back_when_it_is_full() {
    let mut backends = [tier(0, 0, 8), tier(0, 0, 8), tier(0, 3, 8)];
    let ranked = |backends: &[BackendView]| {
        picked(decide(&pool(backends), &Ask { preference: Preference::Ranked(&[2, 1, 0]), ..nobody() }))
    };
    assert_eq!(ranked(&backends), (2, Pick::Rendezvous));
    backends[2].is_admitted = false;
    assert_eq!(ranked(&backends), (1, Pick::Rendezvous), "the second weight, not the least loaded");
    backends[2].is_admitted = true;
    backends[2].in_flight = 8;
    backends[0].in_flight = 1;
    assert_eq!(ranked(&backends), (1, Pick::Fallback));
    backends[1].in_flight = 2;
    assert_eq!(ranked(&backends), (0, Pick::Fallback), "full: the least loaded, not the second weight");
}

#[test]
fn limits_10_with_the_master_switch_off_nobody_waits_and_what_would_have_been_is_told() {
    let full = [tier(0, 8, 8), tier(0, 9, 8)];
    let over =
        |backends: &[BackendView], ask: &Ask<'_>| match decide(&PoolView { is_enforced: false, ..pool(backends) }, ask)
        {
            Decision::Grant(grant) => (grant.slot, grant.is_over),
            other => panic!("{other:?}"),
        };
    assert_eq!(over(&full, &nobody()), (0, true), "the least loaded");
    assert_eq!(over(&full, &ask(Some(1))), (1, true), "a session stays");
    assert_eq!(over(&[tier(0, 7, 8)], &nobody()), (0, false));
    assert_eq!(over(&[tier(0, 7, 8)], &Ask { share: 0.5, ..nobody() }), (0, true));
    let claims = [Claims { window: 0, count: 40 }];
    let unenforced = PoolView { is_enforced: false, claims: &claims, ..pool(&full) };
    assert_eq!(reserve(&unenforced, &nobody()), Decision::Reserve);
    let out = [BackendView { is_admitted: false, ..tier(0, 0, 8) }];
    let gone = decide(&PoolView { is_enforced: false, ..pool(&out) }, &nobody());
    assert_eq!(gate(gone), Some(Gate::NoBackend), "503 is no matter of load");
}

#[test]
fn where_a_session_belongs_does_not_depend_on_who_is_up_but_on_the_tier() {
    let mut backends = [tier(10, 8, 8), tier(10, 0, 8), tier(0, 0, 8)];
    let of = |backends: &[BackendView], preference| belongs(&pool(backends), &Ask { preference, ..nobody() });
    let (hash, ranked) = (Preference::Crc32(2), Preference::Ranked(&[2, 0, 1]));
    let bound = Preference::Session { bound: Some(2) };
    assert_eq!(of(&backends, Preference::None), None);
    assert_eq!((of(&backends, hash), of(&backends, ranked), of(&backends, bound)), (Some(0), Some(0), Some(2)));
    backends[0].is_admitted = false;
    assert_eq!((of(&backends, hash), of(&backends, ranked)), (Some(0), Some(0)), "out for a while");
    backends[1].is_admitted = false;
    assert_eq!((of(&backends, hash), of(&backends, ranked)), (Some(2), Some(2)), "the tier is");
    backends[2].is_admitted = false;
    assert_eq!((of(&backends, hash), of(&backends, ranked)), (Some(0), Some(0)), "nobody is up");
    assert_eq!(of(&backends, Preference::Session { bound: Some(9) }), None, "its backend has left the route");
}

/// How many requests of this share a pool holds when they come one by one.
fn holds(adaptive: Option<f64>, factor: f64, limit: u32, share: f64) -> u32 {
    (0..1000)
        .find(|in_flight| {
            let backends = [tier(0, *in_flight, limit)];
            let pool = PoolView { adaptive, factor, ..pool(&backends) };
            decide(&pool, &Ask { share, ..nobody() }) == Decision::Wait
        })
        .unwrap_or_default()
}

/// By the default table, or one that starts at `r_new`.
fn by_bucket(adaptive: Option<f64>, factor: f64, limit: u32, r_new: f64) -> Vec<u32> {
    let table = TurnTable::by_doubling(r_new, 32, 1.5);
    table.rows().iter().map(|row| holds(adaptive, factor, limit, row.share)).collect()
}

#[test]
fn limits_example_32_the_factor_multiplies_an_adaptive_limit() {
    assert_eq!(holds(Some(2.0), 2.0, 64, 1.0), 4, "two of a burst of six are refused");
    assert_eq!(holds(Some(2.0), 1.0, 64, 1.0), 2);
    assert_eq!(holds(None, 2.0, 10, 1.0), 10, "rulings §3: no backend goes past its own limit");
    assert_eq!(holds(None, 0.5, 10, 1.0), 5);
}

#[test]
fn limits_example_34_shares_of_a_static_limit() {
    assert_eq!(by_bucket(None, 1.0, 6, 0.85), [6, 6, 6, 6, 6, 6]);
    assert_eq!(by_bucket(None, 1.0, 7, 0.85), [6, 7, 7, 7, 7, 7]);
    assert_eq!(by_bucket(None, 1.0, 10, 0.85), [9, 9, 10, 10, 10, 10]);
    assert_eq!(by_bucket(None, 1.0, 20, 0.85), [17, 18, 19, 19, 20, 20]);
}

#[test]
fn limits_example_35_shares_of_an_adaptive_limit_and_with_a_factor() {
    assert_eq!(by_bucket(Some(13.3), 1.0, 64, 0.85), [12, 12, 13, 13, 13, 14]);
    assert_eq!(by_bucket(Some(10.0), 2.0, 64, 0.85), [17, 18, 19, 19, 20, 20]);
    assert_eq!(by_bucket(None, 2.0, 10, 0.85), [9, 9, 10, 10, 10, 10], "first turns leave room in what there is");
}

#[test]
fn limits_example_36_another_share_for_first_turns() {
    assert_eq!(by_bucket(None, 1.0, 6, 0.5), [3, 4, 5, 5, 6, 6]);
}
