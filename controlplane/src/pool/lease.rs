//! Leases: granted, waited for, given back.

use std::sync::Arc;
use std::time::Duration;

use router_policy::admit::{Binding as BindingChange, Decision, Grant as Granting, Refusal, Slot};
use router_policy::flow::Bucket;
use router_policy::ids::{BackendId, Fingerprint, LeaseId};
use router_policy::refusal::Gate;
use router_policy::tick::Tick;
use router_proto::v1;
use router_proto::v1::server_op::Kind;

use super::binding::Binding;
use super::flow::note_admitted;
use super::model_pool::NO_POOL;
use super::state::{RESERVED, State};
use super::{Asked, Caller, Place, Pool};
use crate::store::group_commit::Durability;
use crate::store::{BindingRow, BindingWrite, LeaseRow};

/// One in-flight request's slot.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub slot: Slot,
    pub replica: Arc<str>,
    pub fingerprint: Option<Fingerprint>,
    /// Of a reservation: what the context window that it asks for amounts to ([`State::claim_class`]).
    pub window: u64,
    /// The place of its pool; [`NO_POOL`] when it is not known.
    pub pool: usize,
    /// Its turn's step, where turns are ranked.
    pub bucket: Option<Bucket>,
    /// Its answer is a stream that has begun.
    pub is_stream: bool,
    /// Its session's binding counts it.
    pub is_bound: bool,
}

impl Lease {
    /// A slot of the pool, on no backend yet.
    pub(super) fn reserved(replica: Arc<str>, window: u64) -> Self {
        Self {
            slot: RESERVED,
            replica,
            fingerprint: None,
            window,
            pool: NO_POOL,
            bucket: None,
            is_stream: false,
            is_bound: false,
        }
    }
}

/// A lease that has just ended: a slot is free.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` for a reservation, and for a backend that is gone.
    pub backend: Option<BackendId>,
    pub lease: Lease,
}

/// A grant that is decided and applied, and not yet told.
struct Grant {
    lease: LeaseId,
    backend: BackendId,
    mode: v1::Mode,
    dp_rank: Option<u32>,
    /// The binding's change, to be written first.
    write: Option<BindingWrite>,
    /// The commit that must be durable first, when the binding was written by another grant a moment ago.
    after_commit: u64,
}

impl Pool {
    /// Decides one request and applies the decision.
    pub(super) fn admit(&self, state: &mut State, op: u64, asked: Asked, caller: &Arc<Caller>, now: Tick) {
        if state.is_closed {
            caller.refuse(op, Refusal::by(Gate::UnknownRoute));
            return;
        }
        if state.refresh(now) {
            self.mark_dirty();
        }
        let Some(place) = state.place(&asked) else {
            self.refuse_unknown_model(state, op, &asked, caller);
            return;
        };
        self.note_judged(state, place, &asked, now);
        match state.decide(place, &asked, false, now, self.context.unix(now)) {
            Decision::Grant(granting) => self.grant_if_fast(state, place, granting, op, &asked, caller, now),
            Decision::Reserve => self.grant_reservation(state, op, &asked, caller),
            Decision::Wait => {
                self.note_over(state, place, &asked, now);
                self.wait(state, place, op, asked, caller, false, now);
            }
            Decision::Refuse(refusal) if refusal.gate == Gate::QueueFull => {
                self.note_over(state, place, &asked, now);
                if state.has_colder_waiter(&asked) {
                    self.wait(state, place, op, asked, caller, true, now);
                } else {
                    self.refuse(state, place, op, &asked, caller, refusal, now);
                }
            }
            Decision::Refuse(refusal) => self.refuse(state, place, op, &asked, caller, refusal, now),
        }
    }

    /// The last two gates, then the grant (routing.md §6): nobody takes a probe slot who would not get a backend.
    #[expect(clippy::too_many_arguments, reason = "one decision's parts, used in two places")]
    pub(super) fn grant_if_fast(
        &self,
        state: &mut State,
        place: Place,
        granting: Granting,
        op: u64,
        asked: &Asked,
        caller: &Arc<Caller>,
        now: Tick,
    ) {
        if granting.is_over {
            self.note_over(state, place, asked, now);
        }
        match self.judge_speed(state, place, asked, now) {
            None => self.grant(state, place, granting, op, asked, caller, now),
            Some(slow) => self.refuse_slow(state, place, op, asked, caller, &slow, now),
        }
    }

    /// Gives a slot of the pool to a request whose body is still coming in. It is on no backend, binds nothing and is not
    /// stored: after a restart its replica reports it.
    pub(super) fn grant_reservation(&self, state: &mut State, op: u64, asked: &Asked, caller: &Caller) {
        let lease = self.context.next_lease();
        let (window, replica) = (state.claim_class(asked.context_tokens), Arc::clone(&caller.replica));
        state.count_claim(window, true);
        state.leases.insert(lease, Lease::reserved(replica, window));
        self.after_load_change(state);
        let queued_ms = u32::try_from(asked.waited.as_millis()).unwrap_or(u32::MAX);
        caller.answer(op, Kind::Granted(v1::Granted { lease: lease.0, queued_ms, ..Default::default() }));
    }

    /// Ends a lease at a replica's word, if it is that replica's own: a slot that is still in use elsewhere stays counted.
    pub(super) fn end_lease_of(&self, state: &mut State, lease: LeaseId, caller: &Caller, now: Tick) -> Option<Ended> {
        let is_own = state.leases.get(&lease).is_some_and(|held| held.replica == caller.replica);
        if is_own { self.end_lease(state, lease, now) } else { None }
    }

    /// Ends a lease; `None` when there is none.
    pub(super) fn end_lease(&self, state: &mut State, lease: LeaseId, now: Tick) -> Option<Ended> {
        let ended = state.leases.remove(&lease)?;
        if ended.slot == RESERVED {
            state.count_claim(ended.window, false);
            self.after_load_change(state);
            return Some(Ended { backend: None, lease: ended });
        }
        self.context.journal.lease_ended(lease);
        let backend = state.backends.get(ended.slot).map(|backend| backend.spec.id.clone());
        let session = ended.fingerprint.filter(|_| ended.is_bound);
        if let Some(binding) = session.and_then(|session| state.bindings.get_mut(session)) {
            binding.in_flight = binding.in_flight.saturating_sub(1);
            binding.last_used = now;
        }
        state.count(ended.slot, false);
        self.after_load_change(state);
        Some(Ended { backend, lease: ended })
    }

    #[expect(clippy::too_many_arguments, reason = "one decision's parts, used in two places")]
    fn grant(
        &self,
        state: &mut State,
        place: Place,
        granting: Granting,
        op: u64,
        asked: &Asked,
        caller: &Arc<Caller>,
        now: Tick,
    ) {
        let slot = granting.slot;
        // `decide` names slots of this very state.
        let Some(backend) = state.backends.get_mut(slot) else {
            return;
        };
        self.metrics.waited.observe(asked.waited.as_secs_f64());
        backend.granted_total += 1;
        let id = backend.spec.id.clone();
        let lease = self.context.next_lease();
        state.count(slot, true);
        let (replica, fingerprint) = (Arc::clone(&caller.replica), asked.fingerprint);
        let (pool, bucket) = note_admitted(state, place, asked);
        let is_bound = fingerprint.is_some() && granting.binding != BindingChange::Absent;
        let held = Lease { slot, replica, fingerprint, window: 0, pool, bucket, is_stream: false, is_bound };
        state.leases.insert(lease, held);
        self.context.journal.lease_granted(LeaseRow {
            lease,
            route: self.name.clone(),
            backend: id.clone(),
            replica: caller.replica.to_string(),
            fingerprint: asked.fingerprint,
            granted_unix_ms: self.context.clock.unix_ms(now),
        });
        let mode = v1::Mode::from(&granting);
        let mut grant = Grant { lease, backend: id, mode, dp_rank: None, write: None, after_commit: 0 };
        if let Some(session) = asked.fingerprint {
            self.bind(state, slot, session, granting.binding, &mut grant, now);
        }
        state.next_spread();
        self.metrics.granted(grant.mode);
        self.after_load_change(state);
        let retries = u32::try_from(asked.tried.len()).unwrap_or(u32::MAX);
        let queued_ms = u32::try_from(asked.waited.as_millis()).unwrap_or(u32::MAX);
        self.tell(state, grant, op, retries, queued_ms, caller);
    }

    /// Makes, moves or uses the session's binding.
    fn bind(
        &self,
        state: &mut State,
        slot: Slot,
        session: Fingerprint,
        change: BindingChange,
        grant: &mut Grant,
        now: Tick,
    ) {
        let unix_ms = self.context.clock.unix_ms(now);
        let previous = match change {
            BindingChange::Absent => return,
            BindingChange::Kept => {
                let had = state.bindings.get(session).and_then(|binding| binding.dp_rank);
                grant.dp_rank = state.rank_for(slot, had);
                // A backend that has got ranks, or fewer of them, since the session was bound.
                let is_other_rank = grant.dp_rank.is_some() && grant.dp_rank != had;
                if is_other_rank {
                    state.count_bound(&grant.backend, had, false);
                    state.count_bound(&grant.backend, grant.dp_rank, true);
                }
                if let Some(binding) = state.bindings.get_mut(session) {
                    binding.requests += 1;
                    binding.in_flight += 1;
                    binding.last_used = now;
                    binding.last_used_unix_ms = unix_ms;
                    grant.after_commit = binding.commit;
                    if is_other_rank {
                        binding.dp_rank = grant.dp_rank;
                        grant.write = Some(BindingWrite::Put(self.binding_row(session, binding)));
                    }
                }
                self.context.journal.touched(&self.name, session, unix_ms);
                return;
            }
            BindingChange::Made => {
                if state.bindings.len() >= state.options.max_sessions {
                    self.evict_idle(state, now);
                }
                None
            }
            BindingChange::Moved => state.bindings.get(session).cloned(),
        };
        grant.dp_rank = state.rank_for(slot, None);
        let binding = Binding {
            backend: grant.backend.clone(),
            dp_rank: grant.dp_rank,
            created_unix_ms: previous.as_ref().map_or(unix_ms, |old| old.created_unix_ms),
            last_used: now,
            last_used_unix_ms: unix_ms,
            requests: previous.as_ref().map_or(0, |old| old.requests) + 1,
            moves: previous.as_ref().map_or(0, |old| old.moves + 1),
            in_flight: previous.as_ref().map_or(0, |old| old.in_flight) + 1,
            commit: 0,
        };
        if let Some(old) = &previous {
            state.count_bound(&old.backend, old.dp_rank, false);
        }
        state.count_bound(&binding.backend, binding.dp_rank, true);
        grant.write = Some(BindingWrite::Put(self.binding_row(session, &binding)));
        state.bindings.insert(session, binding);
        self.metrics.sessions(state.bindings.len());
    }

    /// Sends a grant, after its binding is durable.
    fn tell(&self, state: &mut State, grant: Grant, op: u64, retries: u32, queued_ms: u32, caller: &Arc<Caller>) {
        let mut granted = v1::Granted {
            lease: grant.lease.0,
            backend: grant.backend.to_string(),
            mode: grant.mode.into(),
            dp_rank: grant.dp_rank,
            retries,
            queued_ms,
            provisional: false,
        };
        if grant.write.is_none() {
            let is_durable = self.context.committer.committed() >= grant.after_commit;
            // Without a database, a session that was bound provisionally does not wait again for each request.
            if is_durable || !self.context.store_health.is_ok() {
                granted.provisional = !is_durable;
                caller.answer(op, Kind::Granted(granted));
                return;
            }
        }
        let session = grant.write.as_ref().map(|write| match write {
            BindingWrite::Put(row) => row.fingerprint,
            BindingWrite::Forget { fingerprint, .. } => *fingerprint,
        });
        // One timeout for the whole wait: what was spent in the queue is not given again.
        let left = state.options.queue_timeout.saturating_sub(Duration::from_millis(u64::from(queued_ms)));
        let deadline = tokio::time::Instant::now() + left;
        let to = Arc::clone(caller);
        let commit = self.context.committer.submit(grant.write, deadline, move |durability| {
            granted.provisional = durability == Durability::Provisional;
            to.answer(op, Kind::Granted(granted));
        });
        if let Some(binding) = session.and_then(|session| state.bindings.get_mut(session)) {
            binding.commit = commit;
        }
    }

    pub(super) fn binding_row(&self, session: Fingerprint, binding: &Binding) -> BindingRow {
        BindingRow {
            route: self.name.clone(),
            fingerprint: session,
            backend: binding.backend.clone(),
            dp_rank: binding.dp_rank,
            created_unix_ms: binding.created_unix_ms,
            last_used_unix_ms: binding.last_used_unix_ms,
            requests: binding.requests,
            moves: binding.moves,
        }
    }

    fn evict_idle(&self, state: &mut State, now: Tick) {
        let Some(ttl) = state.options.session_idle_ttl else {
            return;
        };
        if let Some((session, binding)) = state.bindings.pop_oldest_idle(now, ttl) {
            self.forgotten(state, session, &binding);
        }
    }

    /// Settles what hangs on a binding that was taken out of the table.
    pub(super) fn forgotten(&self, state: &mut State, session: Fingerprint, binding: &Binding) {
        state.count_bound(&binding.backend, binding.dp_rank, false);
        let write = BindingWrite::Forget { route: self.name.clone(), fingerprint: session };
        let deadline = tokio::time::Instant::now() + state.options.queue_timeout;
        self.context.committer.submit(Some(write), deadline, |_| {});
        self.metrics.sessions(state.bindings.len());
    }
}
