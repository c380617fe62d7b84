//! Reserved slots: requests whose body is still coming in have a claim on one slot each, on whichever backend has the context
//! window that they asked for. Nothing may be granted that leaves a claim without a slot, and no claim keeps a slot back that
//! it could not use.
//!
//! Windows are nested: a backend that fits a large one fits every smaller one. So all claims can be met exactly when, for
//! each window `w`, no more claims ask for `w` or more than there are free slots on backends that fit `w`. With tiers, only the
//! tier that would take a request of that window counts; a claim may then keep back a slot more than it needs, never one less.
//! On a route with a pool per model, which pool a claim is for is known when its body is in. Until then it keeps nothing back: a
//! model must not lose its slots to uploads for another. There a claim only bounds how many bodies come in at the same time.

use super::view::{BackendView, PoolView};
use crate::route::Priority;

/// Claims that ask for the same context window, in tokens; 0 for those that say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claims {
    /// The window.
    pub window: u64,
    /// How many.
    pub count: u32,
}

/// What the claims leave of a pool.
#[derive(Debug)]
pub(super) struct Slack {
    by_window: Vec<Window>,
}

/// A window that is claimed.
#[derive(Debug)]
struct Window {
    tokens: u64,
    /// The tier that serves it; `None` when all do.
    tier: Option<Priority>,
    /// Slots for it that are neither in use nor claimed; negative when backends have gone.
    slack: i64,
}

impl Window {
    fn is_on(&self, backend: &BackendView) -> bool {
        backend.suits(self.tokens) && self.tier.is_none_or(|tier| backend.priority == tier)
    }
}

impl Slack {
    /// Of the pool as it is.
    pub(super) fn of(pool: &PoolView<'_>) -> Self {
        if pool.is_by_model { Self { by_window: Vec::new() } } else { Self::with(pool, None) }
    }

    /// Of the pool with one more claim.
    pub(super) fn after_claim(pool: &PoolView<'_>, window: u64) -> Self {
        Self::with(pool, Some(window))
    }

    fn with(pool: &PoolView<'_>, more: Option<u64>) -> Self {
        let mut windows: Vec<u64> = pool.claims.iter().map(|claims| claims.window).chain(more).collect();
        windows.sort_unstable();
        windows.dedup();
        let all_tiers = pool.crosses_tiers || pool.is_by_model;
        let window = |tokens: u64| {
            let tier = if all_tiers { None } else { pool.active_tier(tokens) };
            let mut window = Window { tokens, tier, slack: 0 };
            let claimed = pool.claims.iter().filter(|claims| claims.window >= tokens);
            let claimed: i64 = claimed.map(|claims| i64::from(claims.count)).sum();
            let one_more = i64::from(more.is_some_and(|more| more >= tokens));
            let room: i64 = pool.backends.iter().filter(|one| window.is_on(one)).map(|one| i64::from(one.room())).sum();
            window.slack = room - claimed - one_more;
            window
        };
        Self { by_window: windows.into_iter().map(window).collect() }
    }

    /// Whether every claim up to this window can be met.
    pub(super) fn is_met_up_to(&self, window: u64) -> bool {
        self.by_window.iter().all(|claimed| claimed.tokens > window || claimed.slack >= 0)
    }

    /// Whether a slot of this backend is nobody's claim.
    pub(super) fn allows(&self, backend: &BackendView) -> bool {
        self.by_window.iter().all(|window| window.slack > 0 || !window.is_on(backend))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ask, Decision, Grant, decide, reserve};
    use super::*;
    use crate::option::OnFull;
    use proptest::prelude::*;

    fn pool<'a>(backends: &'a [BackendView], claims: &'a [Claims]) -> PoolView<'a> {
        PoolView {
            backends,
            members: &super::super::tests::EVERYBODY[..backends.len()],
            waiting: 0,
            max_waiting: 1,
            binds_sessions: true,
            sessions_full: false,
            on_full: OnFull::Unbound,
            claims,
            is_by_model: false,
            crosses_tiers: false,
            adaptive: None,
            factor: 1.0,
            is_enforced: true,
        }
    }

    fn backend(room: u32, context_limit: Option<u64>) -> BackendView {
        BackendView {
            limit: room,
            in_flight: 0,
            bound: 0,
            is_admitted: true,
            is_failing: false,
            context_limit,
            priority: Priority::default(),
        }
    }

    fn ask(context_tokens: u64) -> Ask<'static> {
        Ask { context_tokens, spread: 3, ..Ask::default() }
    }

    fn add(claims: &mut Vec<Claims>, window: u64) {
        match claims.iter_mut().find(|one| one.window == window) {
            Some(one) => one.count += 1,
            None => claims.push(Claims { window, count: 1 }),
        }
    }

    #[test]
    fn a_claim_keeps_back_no_slot_that_it_could_not_use() {
        let backends = [backend(1, Some(100)), backend(1, Some(10))];
        let large = [Claims { window: 100, count: 1 }];
        assert!(matches!(decide(&pool(&backends, &large), &ask(0)), Decision::Grant(Grant { slot: 1, .. })));
        assert_eq!(reserve(&pool(&backends, &large), &ask(100)), Decision::Wait, "the other slot is too small");
        assert_eq!(reserve(&pool(&backends, &large), &ask(10)), Decision::Reserve);
        let both = [Claims { window: 100, count: 1 }, Claims { window: 0, count: 1 }];
        assert_eq!(decide(&pool(&backends, &both), &ask(0)), Decision::Wait);
        let small = [Claims { window: 0, count: 1 }];
        assert!(matches!(decide(&pool(&backends, &small), &ask(100)), Decision::Grant(Grant { slot: 0, .. })));
    }

    proptest! {
        /// Whatever is granted and reserved in whatever order, each reservation finds its slot when its body is in.
        #[test]
        fn a_reservation_is_kept(
            rooms in proptest::collection::vec((0_u32..4, proptest::option::of(0_u64..4)), 1..5),
            steps in proptest::collection::vec((any::<bool>(), 0_u64..4), 0..20),
            order in any::<prop::sample::Index>(),
        ) {
            let mut backends: Vec<BackendView> = rooms.iter().map(|(room, window)| backend(*room, *window)).collect();
            let mut claims: Vec<Claims> = Vec::new();
            let mut reserved: Vec<u64> = Vec::new();
            for (is_reserve, window) in steps {
                if is_reserve {
                    if reserve(&pool(&backends, &claims), &ask(window)) == Decision::Reserve {
                        add(&mut claims, window);
                        reserved.push(window);
                    }
                } else if let Decision::Grant(Grant { slot, .. }) = decide(&pool(&backends, &claims), &ask(window)) {
                    backends[slot].in_flight += 1;
                }
            }
            while !reserved.is_empty() {
                let window = reserved.remove(order.index(reserved.len()));
                claims.iter_mut().find(|one| one.window == window).unwrap().count -= 1;
                claims.retain(|one| one.count > 0);
                let decision = decide(&pool(&backends, &claims), &ask(window));
                let Decision::Grant(Grant { slot, .. }) = decision else {
                    return Err(TestCaseError::fail(format!("{decision:?} for a reservation of {window}")));
                };
                prop_assert!(backends[slot].has_room());
                backends[slot].in_flight += 1;
            }
        }

        /// The control: no slot is kept back for nobody. With claims that need only so much, everything else is used.
        #[test]
        fn nothing_is_kept_back_for_nobody(
            rooms in proptest::collection::vec((0_u32..4, proptest::option::of(1_u64..4)), 1..5),
            window in 0_u64..4,
        ) {
            let mut backends: Vec<BackendView> = rooms.iter().map(|(room, window)| backend(*room, *window)).collect();
            let total: u32 = backends.iter().map(BackendView::room).sum();
            let mut claims = Vec::new();
            if reserve(&pool(&backends, &claims), &ask(window)) == Decision::Reserve {
                add(&mut claims, window);
            }
            let mut granted = 0;
            while let Decision::Grant(Grant { slot, .. }) = decide(&pool(&backends, &claims), &ask(0)) {
                backends[slot].in_flight += 1;
                granted += 1;
            }
            prop_assert_eq!(granted + claims.iter().map(|one| one.count).sum::<u32>(), total);
        }
    }
}
