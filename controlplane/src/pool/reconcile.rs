//! After a gap: what the database remembers, what a replica says it holds, and what a dead replica held.

use std::collections::HashMap;
use std::sync::Arc;

use router_policy::ids::{BackendId, Fingerprint, LeaseId};
use router_policy::route::BackendSpec;
use router_policy::tick::Tick;

use super::backend::Backend;
use super::binding::Binding;
use super::lease::Lease;
use super::model_pool::NO_POOL;
use super::state::State;
use super::{Asked, Pool};
use crate::store::{BindingRow, BindingWrite, LeaseRow};

/// A lease that a replica reports.
#[derive(Debug, Clone)]
pub struct Held {
    /// The lease.
    pub lease: LeaseId,
    /// The backend that it is on; `None` for a reservation.
    pub backend: Option<BackendId>,
    /// Its session.
    pub fingerprint: Option<Fingerprint>,
    /// Of a reservation: the context window that it asks for, in tokens.
    pub window: u64,
    /// When it was granted.
    pub granted: Tick,
    /// The model that it was asked for with, or empty.
    pub model: String,
    /// Its turn, when the client has said it.
    pub turn: Option<u32>,
    /// Its answer is a stream that has begun.
    pub is_stream: bool,
}

impl Pool {
    /// Takes up bindings from the database, at start.
    pub fn restore_bindings(&self, rows: Vec<BindingRow>) {
        let clock = self.context.clock;
        let mut state = self.state.lock();
        for row in rows {
            let binding = Binding {
                backend: row.backend,
                dp_rank: row.dp_rank,
                created_unix_ms: row.created_unix_ms,
                last_used: clock.tick(row.last_used_unix_ms),
                last_used_unix_ms: row.last_used_unix_ms,
                requests: row.requests,
                moves: row.moves,
                in_flight: 0,
                commit: 0,
            };
            state.count_bound(&binding.backend, binding.dp_rank, true);
            state.bindings.insert(row.fingerprint, binding);
        }
        self.metrics.sessions(state.bindings.len());
    }

    /// Counts leases from the database as in flight, until their replica confirms or drops them or is given up.
    pub fn restore_leases(&self, rows: Vec<LeaseRow>) {
        let mut state = self.state.lock();
        for row in rows {
            let replica: Arc<str> = row.replica.into();
            take_up(&mut state, row.lease, Some(&row.backend), &replica, row.fingerprint, 0);
        }
        self.after_load_change(&state);
    }

    /// Makes this pool's leases of a replica those that the replica reports, no more and no fewer. Its waiters go: they came
    /// on a stream that nobody reads any more, and a slot that comes free here would be granted to nobody.
    pub fn reconcile(&self, replica: &Arc<str>, held: &[Held]) {
        let now = self.context.clock.now();
        let reported: HashMap<LeaseId, &Held> = held.iter().map(|held| (held.lease, held)).collect();
        let mut state = self.state.lock();
        state.waiters.cancel_replica(replica);
        let ended: Vec<LeaseId> = state
            .leases
            .iter()
            .filter(|(lease, known)| known.replica == *replica && !reported.contains_key(lease))
            .map(|(lease, _)| *lease)
            .collect();
        state.in_bulk(|state| {
            for lease in ended {
                self.end_lease(state, lease, now);
            }
        });
        for held in held {
            if !state.leases.contains_key(&held.lease) {
                take_up(&mut state, held.lease, held.backend.as_ref(), replica, held.fingerprint, held.window);
                // Reservations are not stored: after a restart, only a replica's own word counts for them.
                if let Some(backend) = &held.backend {
                    self.context.journal.lease_granted(LeaseRow {
                        lease: held.lease,
                        route: self.name.clone(),
                        backend: backend.clone(),
                        replica: replica.to_string(),
                        fingerprint: held.fingerprint,
                        granted_unix_ms: self.context.clock.unix_ms(held.granted),
                    });
                }
            }
            remember(&mut state, replica, held);
        }
        self.after_load_change(&state);
        self.serve_waiters(&mut state, now);
    }

    /// Takes up a binding that a replica made by itself. One that exists already wins: it may be in use elsewhere.
    pub fn adopt_binding(&self, session: Fingerprint, backend: BackendId) {
        let now = self.context.clock.now();
        let unix_ms = self.context.clock.unix_ms(now);
        let mut state = self.state.lock();
        if state.bindings.get(session).is_some() || state.bindings.len() >= state.options.max_sessions {
            return;
        }
        let mut binding = Binding {
            backend,
            dp_rank: None,
            created_unix_ms: unix_ms,
            last_used: now,
            last_used_unix_ms: unix_ms,
            requests: 1,
            moves: 0,
            in_flight: 0,
            commit: 0,
        };
        let write = BindingWrite::Put(self.binding_row(session, &binding));
        let deadline = tokio::time::Instant::now() + state.options.queue_timeout;
        binding.commit = self.context.committer.submit(Some(write), deadline, |_| {});
        state.count_bound(&binding.backend, binding.dp_rank, true);
        state.bindings.insert(session, binding);
        self.metrics.sessions(state.bindings.len());
    }

    /// Ends everything that a dead replica held or waited for; how many leases.
    pub fn drop_replica(&self, replica: &str) -> usize {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        state.waiters.cancel_replica(replica);
        let ended: Vec<LeaseId> =
            state.leases.iter().filter(|(_, lease)| &*lease.replica == replica).map(|(lease, _)| *lease).collect();
        state.in_bulk(|state| {
            for lease in &ended {
                self.end_lease(state, *lease, now);
            }
        });
        self.after_load_change(&state);
        self.serve_waiters(&mut state, now);
        ended.len()
    }

    /// Takes a stream's waiters out of the queue: nobody is left to hear the answer.
    pub fn drop_stream(&self, stream: u64) {
        let mut state = self.state.lock();
        if state.waiters.cancel_stream(stream) > 0 {
            self.after_load_change(&state);
        }
    }

    /// Leases of a replica.
    pub fn leases_of(&self, replica: &str) -> u32 {
        let state = self.state.lock();
        let count = state.leases.values().filter(|lease| &*lease.replica == replica).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// What the database does not tell of a lease of before this start: whose sample its answer is, and of which turn. What is known
/// already stays.
fn remember(state: &mut State, replica: &Arc<str>, held: &Held) {
    let Some(place) = held.backend.as_ref().and_then(|_| state.pools.place(&held.model)) else { return };
    let asked = Asked { turn: held.turn, ..Asked::default() };
    let bucket = state.pools.list.get(place).and_then(|pool| pool.bucket(&asked));
    let Some(lease) = state.leases.get_mut(&held.lease).filter(|lease| lease.replica == *replica) else { return };
    if lease.pool == NO_POOL {
        lease.pool = place;
    }
    lease.bucket = lease.bucket.or(bucket);
    lease.is_stream |= held.is_stream;
}

/// Counts a lease that was granted before this start. A backend that is not in the route any more is counted too.
fn take_up(
    state: &mut State,
    lease: LeaseId,
    backend: Option<&BackendId>,
    replica: &Arc<str>,
    fingerprint: Option<Fingerprint>,
    window: u64,
) {
    let replica = Arc::clone(replica);
    let Some(id) = backend else {
        let window = state.claim_class(window);
        state.leases.insert(lease, Lease::reserved(replica, window));
        state.count_claim(window, true);
        return;
    };
    let slot = state.slot_for(id, || Backend { is_removed: true, ..Backend::new(BackendSpec::new(id.clone())) });
    let binding = fingerprint.and_then(|session| state.bindings.get_mut(session));
    let is_bound = binding.map(|binding| binding.in_flight += 1).is_some();
    // Whose model it was is not stored: its replica tells. Where there is one pool, it is that one.
    let pool = state.pools.place("").unwrap_or(NO_POOL);
    state
        .leases
        .insert(lease, Lease { slot, replica, fingerprint, window: 0, pool, bucket: None, is_stream: false, is_bound });
    state.count(slot, true);
}
