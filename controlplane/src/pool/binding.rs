//! The binding table of one route.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use indexmap::IndexMap;
use router_policy::ids::{BackendId, Fingerprint};
use router_policy::tick::Tick;

/// How many bindings one sweep looks at while it holds the pool's lock.
const SWEEP_STEP: usize = 4096;
/// A full table is searched for idle bindings at most this often.
const FULL_SCAN_EVERY: Duration = Duration::from_secs(1);

/// A session's place.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub backend: BackendId,
    pub dp_rank: Option<u32>,
    pub created_unix_ms: u64,
    pub last_used: Tick,
    /// Shown to operators; unlike `last_used` it also tells times before this start.
    pub last_used_unix_ms: u64,
    pub requests: u64,
    pub moves: u32,
    /// Leases that the session holds now.
    pub in_flight: u32,
    /// The group commit that makes it durable; 0 when it was loaded from the database.
    pub commit: u64,
}

/// Bindings by session. Ordered by insertion only so that a sweep can go on where it stopped.
#[derive(Debug, Default)]
pub(super) struct BindingTable {
    by_session: IndexMap<Fingerprint, Binding>,
    sweep_at: usize,
    /// A full table is not searched again before this, when the last search was in vain.
    next_full_scan: Cell<Tick>,
    /// Sessions that moved here from another backend. Bounded by the route's backends: see [`Self::keep_moves`].
    moved_to: HashMap<BackendId, u64>,
}

impl BindingTable {
    pub(super) fn len(&self) -> u64 {
        self.by_session.len() as u64
    }

    pub(super) fn get(&self, session: Fingerprint) -> Option<&Binding> {
        self.by_session.get(&session)
    }

    pub(super) fn get_mut(&mut self, session: Fingerprint) -> Option<&mut Binding> {
        self.by_session.get_mut(&session)
    }

    /// In place of one on another backend, it counts as the session's move.
    pub(super) fn insert(&mut self, session: Fingerprint, binding: Binding) -> Option<Binding> {
        let to = binding.backend.clone();
        let old = self.by_session.insert(session, binding);
        if old.as_ref().is_some_and(|old| old.backend != to) {
            *self.moved_to.entry(to).or_default() += 1;
        }
        old
    }

    /// How many sessions have moved to a backend.
    pub(super) fn moves_to(&self, backend: &BackendId) -> u64 {
        self.moved_to.get(backend).copied().unwrap_or(0)
    }

    /// Forgets the moves to backends that are gone.
    pub(super) fn keep_moves(&mut self, is_there: impl Fn(&BackendId) -> bool) {
        self.moved_to.retain(|backend, _| is_there(backend));
    }

    pub(super) fn remove(&mut self, session: Fingerprint) -> Option<Binding> {
        self.by_session.swap_remove(&session)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Fingerprint, &Binding)> {
        self.by_session.iter().map(|(session, binding)| (*session, binding))
    }

    /// The bindings of a backend.
    pub(super) fn on<'a>(&'a self, backend: &'a BackendId) -> impl Iterator<Item = &'a Binding> {
        self.by_session.values().filter(move |binding| binding.backend == *backend)
    }

    /// Removes some of the bindings idle for `ttl`: one step of an endless walk over the table. The second value says
    /// whether the walk has come round.
    pub(super) fn sweep(&mut self, now: Tick, ttl: Duration) -> (Vec<(Fingerprint, Binding)>, bool) {
        let mut ended = Vec::new();
        for _ in 0..SWEEP_STEP {
            let Some((session, binding)) = self.by_session.get_index(self.sweep_at) else {
                self.sweep_at = 0;
                return (ended, true);
            };
            let session = *session;
            if binding.is_idle(now, ttl) {
                // The last binding takes its place and is looked at next.
                ended.extend(self.by_session.swap_remove(&session).map(|binding| (session, binding)));
            } else {
                self.sweep_at += 1;
            }
        }
        (ended, false)
    }

    /// Whether there is one to give up. A search that found none is not repeated at once.
    pub(super) fn has_idle(&self, now: Tick, ttl: Duration) -> bool {
        if now < self.next_full_scan.get() {
            return false;
        }
        let has_idle = self.by_session.values().any(|binding| binding.is_idle(now, ttl));
        if !has_idle {
            self.next_full_scan.set(now + FULL_SCAN_EVERY);
        }
        has_idle
    }

    /// The binding that has been idle longest, if it is idle for `ttl`.
    pub(super) fn pop_oldest_idle(&mut self, now: Tick, ttl: Duration) -> Option<(Fingerprint, Binding)> {
        let oldest = self
            .by_session
            .iter()
            .filter(|(_, binding)| binding.is_idle(now, ttl))
            .min_by_key(|(session, binding)| (binding.last_used, **session))
            .map(|(session, _)| *session)?;
        self.remove(oldest).map(|binding| (oldest, binding))
    }
}

impl Binding {
    fn is_idle(&self, now: Tick, ttl: Duration) -> bool {
        self.in_flight == 0 && now.since(self.last_used) >= ttl
    }
}
