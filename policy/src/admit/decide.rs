//! The decision itself.

use super::choose::least_loaded;
use super::claim::Slack;
use super::tier::{Load, may_try};
use super::view::{Ask, BackendView, PoolView, Preference, Slot};
use super::{Decision, Refusal};
use crate::option::OnFull;
use crate::refusal::Gate;
use crate::route::Priority;

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

/// Why a request without a binding goes where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The least loaded backend.
    LeastLoaded,
    /// The backend that the hash names.
    Hash,
    /// The backend of the highest weight.
    Rendezvous,
    /// The backend that the session belongs to can't take it; the least loaded one.
    Fallback,
}

/// A lease on a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The backend.
    pub slot: Slot,
    /// What its session's binding does.
    pub binding: Binding,
    /// How the backend was found.
    pub pick: Pick,
    /// It would have waited or been refused, but the master switch is off.
    pub is_over: bool,
}

/// Decides one request, up to the gates that judge a pool by its speed. A grant always names an admitted backend with room,
/// never one of `ask.tried`; room is not asked for while the master switch is off.
pub fn decide(pool: &PoolView<'_>, ask: &Ask<'_>) -> Decision {
    let load = Load::of(pool, ask);
    let Some(active) = load.active else {
        return load.nobody();
    };
    if load.untried == 0 {
        return load.refuse(Gate::NoMoreBackends);
    }
    let bound = match ask.preference {
        Preference::Session { bound } if pool.binds_sessions => Some(bound),
        _ => None,
    };
    let binding = match (bound, pool.sessions_full, pool.on_full) {
        (None, ..) | (Some(None), true, OnFull::Unbound) => Binding::Absent,
        (Some(Some(_)), ..) => Binding::Moved,
        (Some(None), false, _) => Binding::Made,
        (Some(None), true, OnFull::Refuse | OnFull::EvictIdle) => return load.refuse(Gate::SessionTableFull),
    };
    let home = bound.flatten().filter(|slot| pool.members.contains(slot));
    let grant = |slot, pick, is_over| {
        let binding = if home == Some(slot) { Binding::Kept } else { binding };
        Decision::Grant(Grant { slot, binding, pick, is_over })
    };
    let slack = Slack::of(pool);
    let room = Room { pool, ask, slack: &slack, load: &load };
    // Who changes its backend at once has just given its slot back; who had to wait for that has given it to others.
    let keeps_slot = ask.is_retry() && !ask.is_queued;
    if keeps_slot || load.is_below_ceiling(pool, ask.share) {
        if let Some(slot) = home.filter(|slot| room.is_of(active, *slot) && room.can_take(*slot)) {
            return grant(slot, Pick::LeastLoaded, false);
        }
        let (owner, found) = owner(pool, ask, &load);
        if let Some(slot) = owner.filter(|slot| room.can_take(*slot)) {
            return grant(slot, found, false);
        }
        let pick = if found == Pick::LeastLoaded { found } else { Pick::Fallback };
        if let Some(slot) = least_loaded(pool, ask, |slot| room.is_of(active, slot) && room.can_take(slot)) {
            return grant(slot, pick, false);
        }
        // The active tier is full: where others may help, a session stays where it is.
        if let Some(slot) = home.filter(|slot| room.can_take(*slot)) {
            return grant(slot, pick, false);
        }
        if let Some(slot) = least_loaded(pool, ask, |slot| room.can_take(slot)) {
            return grant(slot, pick, false);
        }
    }
    if !pool.is_enforced {
        // Over every limit, but to where it belongs, else to the least loaded.
        let (owner, found) = owner(pool, ask, &load);
        let here = |slot: &Slot| room.is_of(active, *slot) && room.may_try(*slot);
        if let Some(slot) = home.or(owner).filter(here) {
            return grant(slot, found, true);
        }
        let any = least_loaded(pool, ask, |slot| room.is_of(active, slot) && room.may_try(slot));
        if let Some(slot) = any.or_else(|| least_loaded(pool, ask, |slot| room.may_try(slot))) {
            return grant(slot, Pick::LeastLoaded, true);
        }
    }
    load.wait(pool, ask)
}

/// Decides whether a request may take a slot before its body is in (gateway.md §1). Of `ask`, only what is known by then
/// counts: the context window that it wants, its turn and whether it is queued.
pub fn reserve(pool: &PoolView<'_>, ask: &Ask<'_>) -> Decision {
    let load = Load::of(pool, ask);
    if load.active.is_none() {
        return load.nobody();
    }
    let has_slot = Slack::after_claim(pool, ask.context_tokens).is_met_up_to(ask.context_tokens);
    // Which pool's limit counts is not known before the model is.
    let is_below = pool.is_by_model || load.is_below_ceiling(pool, ask.share);
    if (has_slot && is_below) || !pool.is_enforced { Decision::Reserve } else { load.wait(pool, ask) }
}

/// The pool's load as a refusal by this gate would tell it.
pub fn refusal(pool: &PoolView<'_>, ask: &Ask<'_>, gate: Gate) -> Refusal {
    Load::of(pool, ask).refusal(gate)
}

/// The backend that the request's session belongs to, whether it can take it or not: health, drains and load are left aside,
/// but for which tier is asked. For whoever wants to know why a request goes where it goes.
pub fn belongs(pool: &PoolView<'_>, ask: &Ask<'_>) -> Option<Slot> {
    let highest = || pool.members().map(|(_, one)| one.priority).max();
    let tier = pool.active_tier(ask.context_tokens).or_else(highest)?;
    let is_of_tier = |slot: &Slot| pool.backends.get(*slot).is_some_and(|one| one.priority == tier);
    match ask.preference {
        Preference::None => None,
        Preference::Session { bound } => bound.filter(|slot| pool.backends.get(*slot).is_some()),
        Preference::Crc32(hash) => hashed(pool, tier, hash),
        Preference::Ranked(ranked) => {
            ranked.iter().copied().find(|slot| pool.members.contains(slot) && is_of_tier(slot))
        }
    }
}

/// Of the tier's backends that are configured: one that is out for a while must not move everybody's sessions.
fn hashed(pool: &PoolView<'_>, tier: Priority, hash: u32) -> Option<Slot> {
    let of_tier = || pool.members().filter(|(_, one)| one.priority == tier).map(|(slot, _)| slot);
    let count = u32::try_from(of_tier().count()).unwrap_or(u32::MAX);
    let at = hash.checked_rem(count).and_then(|at| usize::try_from(at).ok())?;
    of_tier().nth(at)
}

/// How many requests this one competes with: what the adaptive limit is measured against.
pub fn competing(pool: &PoolView<'_>, ask: &Ask<'_>) -> u32 {
    Load::of(pool, ask).in_tier
}

/// The backend that a hash gives the session to (rulings §1, routing.md §5.1), whether it can take it or not; and the word
/// for it.
fn owner(pool: &PoolView<'_>, ask: &Ask<'_>, load: &Load) -> (Option<Slot>, Pick) {
    match ask.preference {
        Preference::Crc32(hash) => (load.active.and_then(|tier| hashed(pool, tier, hash)), Pick::Hash),
        Preference::Ranked(ranked) => {
            let is_candidate = |slot: &&Slot| {
                pool.members.contains(slot)
                    && pool.backends.get(**slot).is_some_and(|one| ask.suits(one) && load.active == Some(one.priority))
            };
            (ranked.iter().find(is_candidate).copied(), Pick::Rendezvous)
        }
        Preference::None | Preference::Session { .. } => (None, Pick::LeastLoaded),
    }
}

/// What may be chosen.
struct Room<'a> {
    pool: &'a PoolView<'a>,
    ask: &'a Ask<'a>,
    slack: &'a Slack,
    load: &'a Load,
}

impl Room<'_> {
    fn is_of(&self, tier: Priority, slot: Slot) -> bool {
        self.pool.backends.get(slot).is_some_and(|one| one.priority == tier)
    }

    /// Of a member of the pool.
    fn may_try(&self, slot: Slot) -> bool {
        self.pool.backends.get(slot).is_some_and(|one| may_try(self.pool, self.ask, self.load.active, slot, one))
    }

    /// Of a member of the pool.
    fn can_take(&self, slot: Slot) -> bool {
        let has_room = |one: &BackendView| one.has_room() && self.slack.allows(one);
        self.pool.backends.get(slot).is_some_and(has_room) && self.may_try(slot)
    }
}
