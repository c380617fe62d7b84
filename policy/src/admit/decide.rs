//! The decision itself.

use super::choose::least_loaded;
use super::claim::Slack;
use super::view::{Ask, PoolView, Slot};
use crate::option::OnFull;
use crate::refusal::{Gate, Refusal};

/// What happens to the session's binding with a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// There is none and none is made.
    Absent,
    /// The session goes where it is bound.
    Kept,
    /// A new binding is made.
    Made,
    /// The binding moves here, and stays.
    Moved,
}

/// The outcome for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// A lease on this backend.
    Grant {
        /// The backend.
        slot: Slot,
        /// What its session's binding does.
        binding: Binding,
    },
    /// One slot of the pool, on no backend yet: [`reserve`]'s grant.
    Reserve,
    /// Every candidate is full and the queue has a place.
    Wait,
    /// Refused; nothing changes.
    Refuse(Refusal),
}

/// Decides one request. A grant always names an admitted backend with room, never one of `ask.tried`.
pub fn decide(pool: &PoolView<'_>, ask: &Ask<'_>) -> Decision {
    let sessions_matter = pool.binds_sessions && ask.has_session;
    let bound = ask.bound.filter(|_| sessions_matter);

    let slack = Slack::of(pool);
    if let Some(slot) = bound.filter(|slot| can_take(pool, ask, *slot, &slack)) {
        return Decision::Grant { slot, binding: Binding::Kept };
    }
    let load = Load::of(pool, ask);
    if load.suitable == 0 {
        return load.nobody();
    }
    if load.untried == 0 {
        return load.refuse(Gate::NoMoreBackends);
    }
    let binding = match (sessions_matter, bound, pool.sessions_full, pool.on_full) {
        (false, ..) | (true, None, true, OnFull::Unbound) => Binding::Absent,
        (true, Some(_), ..) => Binding::Moved,
        (true, None, false, _) => Binding::Made,
        (true, None, true, OnFull::Refuse | OnFull::EvictIdle) => return load.refuse(Gate::SessionTableFull),
    };
    match least_loaded(pool, ask, &slack) {
        Some(slot) => Decision::Grant { slot, binding },
        None => load.wait(pool, ask),
    }
}

/// Decides whether a request may take a slot before its body is in (gateway.md §1). Of `ask`, only what is known by then
/// counts: the context window that it wants and whether it is queued.
pub fn reserve(pool: &PoolView<'_>, ask: &Ask<'_>) -> Decision {
    let load = Load::of(pool, ask);
    if load.suitable == 0 {
        load.nobody()
    } else if Slack::after_claim(pool, ask.context_tokens).is_met_up_to(ask.context_tokens) {
        Decision::Reserve
    } else {
        load.wait(pool, ask)
    }
}

fn can_take(pool: &PoolView<'_>, ask: &Ask<'_>, slot: Slot, slack: &Slack) -> bool {
    pool.backends.get(slot).is_some_and(|backend| backend.has_room() && ask.suits(backend) && slack.allows(backend))
        && !ask.tried.contains(&slot)
}

/// The candidates' load, for the decision and for the refusal's details.
struct Load {
    admitted: usize,
    suitable: usize,
    untried: usize,
    in_flight: u32,
    limit: u32,
}

impl Load {
    fn of(pool: &PoolView<'_>, ask: &Ask<'_>) -> Self {
        let mut load = Self { admitted: 0, suitable: 0, untried: 0, in_flight: pool.claimed(), limit: 0 };
        for (slot, backend) in pool.backends.iter().enumerate() {
            load.admitted += usize::from(backend.is_admitted);
            if ask.suits(backend) {
                load.suitable += 1;
                load.untried += usize::from(!ask.tried.contains(&slot));
                load.in_flight = load.in_flight.saturating_add(backend.in_flight);
                load.limit = load.limit.saturating_add(backend.limit);
            }
        }
        load
    }

    /// The refusal when no backend suits.
    fn nobody(&self) -> Decision {
        self.refuse(if self.admitted == 0 { Gate::NoBackend } else { Gate::ContextWindow })
    }

    fn wait(&self, pool: &PoolView<'_>, ask: &Ask<'_>) -> Decision {
        if ask.is_queued || pool.waiting < pool.max_waiting { Decision::Wait } else { self.refuse(Gate::QueueFull) }
    }

    fn refuse(&self, gate: Gate) -> Decision {
        Decision::Refuse(Refusal { gate, in_flight: self.in_flight, limit: self.limit })
    }
}
