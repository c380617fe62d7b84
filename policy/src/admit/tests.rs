use proptest::prelude::*;

use super::*;
use crate::option::OnFull;
use crate::refusal::Gate;
use crate::route::Priority;

mod tiers;

fn backend(in_flight: u32, limit: u32, bound: u64) -> BackendView {
    BackendView {
        limit,
        in_flight,
        bound,
        is_admitted: true,
        is_failing: false,
        context_limit: None,
        priority: Priority::default(),
    }
}

/// Every backend of a small pool, in order.
pub(super) const EVERYBODY: [Slot; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

fn pool(backends: &[BackendView]) -> PoolView<'_> {
    PoolView {
        backends,
        members: &EVERYBODY[..backends.len()],
        waiting: 0,
        max_waiting: 32,
        binds_sessions: true,
        sessions_full: false,
        on_full: OnFull::Unbound,
        claims: &[],
        is_by_model: false,
        crosses_tiers: false,
        adaptive: None,
        factor: 1.0,
        is_enforced: true,
    }
}

fn ask(bound: Option<Slot>) -> Ask<'static> {
    Ask { preference: Preference::Session { bound }, spread: 7, ..Ask::default() }
}

fn grant(slot: Slot, binding: Binding) -> Decision {
    Decision::Grant(Grant { slot, binding, pick: Pick::LeastLoaded, is_over: false })
}

fn gate(decision: Decision) -> Option<Gate> {
    match decision {
        Decision::Refuse(refusal) => Some(refusal.gate),
        _ => None,
    }
}

#[test]
fn gateway_3_a_new_session_takes_the_fewest_in_flight_relative_to_the_limit_then_the_fewest_bound() {
    let backends = [backend(2, 4, 0), backend(3, 8, 9), backend(4, 8, 0)];
    assert_eq!(decide(&pool(&backends), &ask(None)), grant(1, Binding::Made));
    let backends = [backend(1, 4, 5), backend(2, 8, 4), backend(1, 4, 6)];
    assert_eq!(decide(&pool(&backends), &ask(None)), grant(1, Binding::Made));
}

#[test]
fn gateway_3_a_bound_session_stays_however_loaded_its_backend_is() {
    let backends = [backend(7, 8, 9), backend(0, 8, 0)];
    assert_eq!(decide(&pool(&backends), &ask(Some(0))), grant(0, Binding::Kept));
}

#[test]
fn gateway_3_a_bound_session_moves_when_its_backend_is_out_full_or_too_small() {
    let mut backends = [backend(8, 8, 0), backend(0, 8, 0)];
    assert_eq!(decide(&pool(&backends), &ask(Some(0))), grant(1, Binding::Moved), "full");
    backends[0] = BackendView { is_admitted: false, ..backend(0, 8, 0) };
    assert_eq!(decide(&pool(&backends), &ask(Some(0))), grant(1, Binding::Moved), "out");
    backends[0] = BackendView { context_limit: Some(100), ..backend(0, 8, 0) };
    backends[1].context_limit = Some(200);
    let long = Ask { context_tokens: 101, ..ask(Some(0)) };
    assert_eq!(decide(&pool(&backends), &long), grant(1, Binding::Moved), "too small");
    let short = Ask { context_tokens: 100, ..ask(Some(0)) };
    assert_eq!(decide(&pool(&backends), &short), grant(0, Binding::Kept));
    let tried = Ask { tried: &[0], ..ask(Some(0)) };
    backends[0] = backend(0, 8, 0);
    assert_eq!(decide(&pool(&backends), &tried), grant(1, Binding::Moved), "tried");
}

#[test]
fn gateway_7_only_a_backend_that_is_known_to_have_the_window_will_do() {
    let window = |tokens| BackendView { context_limit: tokens, ..backend(0, 8, 0) };
    let mut backends = [window(Some(100)), window(None), window(Some(200))];
    let long = Ask { context_tokens: 200, ..ask(None) };
    assert_eq!(decide(&pool(&backends), &long), grant(2, Binding::Made));
    assert_eq!(gate(decide(&pool(&backends), &Ask { context_tokens: 201, ..long })), Some(Gate::ContextWindow));
    backends[2].in_flight = 8;
    assert_eq!(decide(&pool(&backends), &long), Decision::Wait, "full is not too small");
    backends[2].is_admitted = false;
    assert_eq!(gate(decide(&pool(&backends), &long)), Some(Gate::ContextWindow), "never a shorter one");
    assert!(matches!(decide(&pool(&backends), &ask(None)), Decision::Grant(_)), "who says nothing is served");
    for one in &mut backends {
        one.is_admitted = false;
    }
    assert_eq!(gate(decide(&pool(&backends), &long)), Some(Gate::NoBackend));
}

#[test]
fn gateway_1_a_reserved_slot_is_nobody_else_s() {
    let backends = [backend(7, 8, 0), backend(8, 8, 0)];
    let claims = [Claims { window: 0, count: 1 }];
    let claimed = PoolView { claims: &claims, ..pool(&backends) };
    assert_eq!(decide(&claimed, &ask(None)), Decision::Wait);
    assert_eq!(decide(&claimed, &ask(Some(0))), Decision::Wait, "a bound session neither");
    assert_eq!(reserve(&claimed, &ask(None)), Decision::Wait);
    assert_eq!(decide(&pool(&backends), &ask(None)), grant(0, Binding::Made));
    assert_eq!(reserve(&pool(&backends), &ask(None)), Decision::Reserve);
    let no_queue = PoolView { max_waiting: 0, ..claimed };
    let refusal = Refusal {
        in_flight: 16,
        limit: 16,
        healthy: 2,
        active: Some(Priority::default()),
        ..Refusal::by(Gate::QueueFull)
    };
    assert_eq!(reserve(&no_queue, &ask(None)), Decision::Refuse(refusal), "the reserved slot is counted");
    let out = [BackendView { is_admitted: false, ..backend(0, 8, 0) }];
    assert!(matches!(reserve(&pool(&out), &ask(None)), Decision::Refuse(refusal) if refusal.gate == Gate::NoBackend));
}

#[test]
fn gateway_3_full_waits_then_refuses_and_none_is_503() {
    let full = [backend(8, 8, 0), backend(8, 8, 0)];
    assert_eq!(decide(&pool(&full), &ask(None)), Decision::Wait);
    let no_queue = PoolView { waiting: 32, ..pool(&full) };
    let refused = decide(&no_queue, &ask(None));
    let told = Refusal {
        in_flight: 16,
        limit: 16,
        healthy: 2,
        active: Some(Priority::default()),
        ..Refusal::by(Gate::QueueFull)
    };
    assert_eq!(refused, Decision::Refuse(told));
    let queued = Ask { is_queued: true, ..ask(None) };
    assert_eq!(decide(&no_queue, &queued), Decision::Wait, "its place is its own");
    let out = [BackendView { is_admitted: false, ..backend(0, 8, 0) }];
    assert_eq!(gate(decide(&pool(&out), &ask(None))), Some(Gate::NoBackend));
    assert_eq!(gate(decide(&pool(&[]), &ask(Some(3)))), Some(Gate::NoBackend));
}

#[test]
fn a_transfer_never_goes_back_to_a_tried_backend() {
    let backends = [backend(0, 8, 0), backend(8, 8, 0)];
    let one = Ask { tried: &[0], ..ask(None) };
    assert_eq!(decide(&pool(&backends), &one), Decision::Wait, "the other one is only full");
    let both = Ask { tried: &[0, 1], ..ask(None) };
    assert_eq!(gate(decide(&pool(&backends), &both)), Some(Gate::NoMoreBackends));
}

#[test]
fn rulings_1_on_full() {
    let backends = [backend(0, 8, 0)];
    let full = |on_full| PoolView { sessions_full: true, on_full, ..pool(&backends) };
    assert_eq!(decide(&full(OnFull::Unbound), &ask(None)), grant(0, Binding::Absent));
    assert_eq!(gate(decide(&full(OnFull::Refuse), &ask(None))), Some(Gate::SessionTableFull));
    assert_eq!(gate(decide(&full(OnFull::EvictIdle), &ask(None))), Some(Gate::SessionTableFull));
    assert_eq!(decide(&full(OnFull::Refuse), &ask(Some(0))), grant(0, Binding::Kept), "bound sessions go on");
    let none = Ask { preference: Preference::None, ..ask(None) };
    assert_eq!(decide(&full(OnFull::Refuse), &none), grant(0, Binding::Absent), "no session needs no place");
}

#[test]
fn requests_without_a_session_spread_over_idle_backends() {
    let backends = [backend(0, 8, 0); 4];
    let mut seen = [0_u32; 4];
    for spread in 0..4000 {
        let none = Ask { preference: Preference::None, spread, ..ask(None) };
        if let Decision::Grant(Grant { slot, .. }) = decide(&pool(&backends), &none) {
            seen[slot] += 1;
        }
    }
    assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
}

#[test]
fn a_backend_that_fails_fast_does_not_attract_more() {
    let backends = [BackendView { is_failing: true, ..backend(0, 8, 0) }, backend(7, 8, 50)];
    assert_eq!(decide(&pool(&backends), &ask(None)), grant(1, Binding::Made));
    let alone = [BackendView { is_failing: true, ..backend(0, 8, 0) }];
    assert_eq!(
        decide(&pool(&alone), &ask(None)),
        grant(0, Binding::Made),
        "but it is still used when it is all there is"
    );
}

prop_compose! {
    fn any_backend()(limit in 0_u32..5, in_flight in 0_u32..6, bound in 0_u64..4, is_admitted: bool, is_failing: bool,
        context_limit in proptest::option::of(1_u64..4)) -> BackendView {
        BackendView { limit, in_flight, bound, is_admitted, is_failing, context_limit, priority: Priority::default() }
    }
}

proptest! {
    #[test]
    fn a_decision_keeps_every_promise(
        backends in proptest::collection::vec(any_backend(), 0..6),
        bound in proptest::option::of(0_usize..6),
        tried in proptest::collection::vec(0_usize..6, 0..4),
        has_session: bool, binds_sessions: bool, sessions_full: bool, is_queued: bool,
        context_tokens in 0_u64..4, spread: u64, waiting in 0_usize..3, max_waiting in 0_usize..3, reserved in 0_u32..4,
    ) {
        let claims = [Claims { window: 0, count: reserved }];
        let pool =
            PoolView { waiting, max_waiting, binds_sessions, sessions_full, on_full: OnFull::Refuse, claims: &claims, ..pool(&backends) };
        let preference = if has_session { Preference::Session { bound } } else { Preference::None };
        let ask = Ask { preference, tried: &tried, context_tokens, is_queued, spread, share: 1.0 };
        let usable = |slot: usize| {
            let b = &backends[slot];
            b.is_admitted && b.in_flight < b.limit && !tried.contains(&slot)
                && (context_tokens == 0 || b.context_limit.is_some_and(|c| c >= context_tokens))
        };
        let any_usable = (0..backends.len()).any(usable);
        let room: u32 = backends.iter().filter(|b| b.is_admitted).map(|b| b.limit.saturating_sub(b.in_flight)).sum();
        let is_free = room > reserved;
        match decide(&pool, &ask) {
            Decision::Grant(Grant { slot, binding, .. }) => {
                prop_assert!(usable(slot) && is_free);
                match binding {
                    Binding::Kept => prop_assert_eq!(bound, Some(slot)),
                    Binding::Moved => prop_assert!(bound.is_some() && bound != Some(slot)),
                    Binding::Made => prop_assert!(bound.is_none() && !sessions_full),
                    Binding::Absent => prop_assert!(!(has_session && binds_sessions)),
                }
            }
            Decision::Reserve => prop_assert!(false, "only `reserve` gives that"),
            Decision::Wait => prop_assert!(!(any_usable && is_free) && (is_queued || waiting < max_waiting)),
            Decision::Refuse(refusal) => match refusal.gate {
                Gate::SessionTableFull => prop_assert!(sessions_full && bound.is_none()),
                _ => prop_assert!(!(any_usable && is_free)),
            },
        }
    }
}
