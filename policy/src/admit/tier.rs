//! Tiers: of a pool's backends, those of the highest priority that is healthy and admitted take the requests (routing.md §3,
//! §8.2; rulings §3).

use super::view::{Ask, BackendView, PoolView, Slot};
use super::{Decision, Refusal};
use crate::refusal::Gate;
use crate::route::Priority;

impl PoolView<'_> {
    /// The priority that takes requests of so many tokens now.
    pub(super) fn active_tier(&self, context_tokens: u64) -> Option<Priority> {
        self.members().filter(|(_, one)| one.suits(context_tokens)).map(|(_, one)| one.priority).max()
    }
}

/// The backends that one request may go to, and their load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The priority that takes the request; `None` when no backend suits it.
    pub active: Option<Priority>,
    admitted: u32,
    /// Those of them in the active tier.
    healthy: u32,
    /// Candidates that were not tried, with the tier rule of retries.
    pub untried: u32,
    in_flight: u32,
    /// The same, without what a backend holds above a limit that was lowered: that keeps nobody from another's free slot.
    within_limits: u32,
    /// What the adaptive limit is measured against: the same backends whatever their windows, and every claim.
    pub in_tier: u32,
    /// What these may hold.
    tier_limit: u32,
    limit: u32,
}

impl Load {
    pub(super) fn of(pool: &PoolView<'_>, ask: &Ask<'_>) -> Self {
        let active = pool.active_tier(ask.context_tokens);
        // A claim of a route with a pool per model may be for any of them.
        let claimed = |context_tokens| if pool.is_by_model { 0 } else { pool.claimed(context_tokens) };
        let (in_flight, in_tier) = (claimed(ask.context_tokens), claimed(0));
        let mut load = Self {
            active,
            admitted: 0,
            healthy: 0,
            untried: 0,
            in_flight,
            within_limits: in_flight,
            in_tier,
            tier_limit: 0,
            limit: 0,
        };
        for (slot, backend) in pool.members() {
            load.admitted += u32::from(backend.is_admitted);
            let is_candidate = pool.crosses_tiers || active == Some(backend.priority);
            if is_candidate && backend.is_admitted {
                load.in_tier = load.in_tier.saturating_add(backend.in_flight);
                load.tier_limit = load.tier_limit.saturating_add(backend.limit);
            }
            if !ask.suits(backend) {
                continue;
            }
            load.healthy += u32::from(active == Some(backend.priority));
            if is_candidate {
                load.untried += u32::from(may_try(pool, ask, active, slot, backend));
                load.in_flight = load.in_flight.saturating_add(backend.in_flight);
                load.within_limits = load.within_limits.saturating_add(backend.in_flight.min(backend.limit));
                load.limit = load.limit.saturating_add(backend.limit);
            }
        }
        load
    }

    /// Whether the pool's limit leaves room for one more request that may fill this part of it.
    pub(super) fn is_below_ceiling(&self, pool: &PoolView<'_>, share: f64) -> bool {
        // The factor takes the pool no further than its backends go; the share is of what there is.
        let is_below = |in_flight: u32, limit: f64, most: u32| {
            f64::from(in_flight) < (limit * pool.factor).min(f64::from(most)) * share
        };
        is_below(self.within_limits, f64::from(self.limit), self.limit)
            && pool.adaptive.is_none_or(|adaptive| is_below(self.in_tier, adaptive, self.tier_limit))
    }

    /// The refusal when no backend suits.
    pub(super) fn nobody(&self) -> Decision {
        self.refuse(if self.admitted == 0 { Gate::NoBackend } else { Gate::ContextWindow })
    }

    pub(super) fn wait(&self, pool: &PoolView<'_>, ask: &Ask<'_>) -> Decision {
        if ask.is_queued || pool.waiting < pool.max_waiting { Decision::Wait } else { self.refuse(Gate::QueueFull) }
    }

    pub(super) fn refuse(&self, gate: Gate) -> Decision {
        Decision::Refuse(self.refusal(gate))
    }

    pub(super) fn refusal(&self, gate: Gate) -> Refusal {
        Refusal { gate, in_flight: self.in_flight, limit: self.limit, healthy: self.healthy, active: self.active }
    }
}

/// Whether a request may be sent to this backend, room left aside: it suits, is of the active tier or one that takes what that
/// has no room for, and was not tried. Of each lower tier only one backend is tried.
pub(super) fn may_try(
    pool: &PoolView<'_>,
    ask: &Ask<'_>,
    active: Option<Priority>,
    slot: Slot,
    backend: &BackendView,
) -> bool {
    let is_active = active == Some(backend.priority);
    let was_tried_in_tier = || {
        let tried = ask.tried.iter().filter_map(|tried| pool.backends.get(*tried));
        tried.into_iter().any(|tried| tried.priority == backend.priority)
    };
    ask.suits(backend)
        && !ask.tried.contains(&slot)
        && (is_active || (pool.crosses_tiers && active > Some(backend.priority) && !was_tried_in_tier()))
}
