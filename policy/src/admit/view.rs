//! What a decision reads.

use super::claim::{Claims, Slack};
use crate::option::OnFull;

/// A backend's place in its pool's list; stable while it holds leases or bindings.
pub type Slot = usize;

/// One backend, as a decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendView {
    /// Leases it may hold.
    pub limit: u32,
    /// Leases it holds.
    pub in_flight: u32,
    /// Sessions bound to it.
    pub bound: u64,
    /// Healthy, not banned, not draining, not removed.
    pub is_admitted: bool,
    /// Requests failed on it a moment ago: it is chosen last, because a backend that fails fast looks idle.
    pub is_failing: bool,
    /// The context window in tokens that it is known to have.
    pub context_limit: Option<u64>,
}

impl BackendView {
    /// Whether it has room for one more lease.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.limit
    }

    /// Leases that it may still take.
    pub(super) fn room(&self) -> u32 {
        if self.is_admitted { self.limit.saturating_sub(self.in_flight) } else { 0 }
    }
}

/// A pool, as a decision sees it.
#[derive(Debug, Clone, Copy)]
pub struct PoolView<'a> {
    /// By slot.
    pub backends: &'a [BackendView],
    /// Requests in the queue.
    pub waiting: usize,
    /// How many may be.
    pub max_waiting: usize,
    /// Whether sessions are bound at all.
    pub binds_sessions: bool,
    /// Whether the binding table has no place left.
    pub sessions_full: bool,
    /// What that means for a new session.
    pub on_full: OnFull,
    /// Slots taken for requests whose body is still coming in, by the window that they ask for. They are on no backend yet.
    pub claims: &'a [Claims],
}

impl PoolView<'_> {
    /// How many slots are claimed.
    pub(super) fn claimed(&self) -> u32 {
        self.claims.iter().fold(0, |sum, claims| sum.saturating_add(claims.count))
    }

    /// Whether somebody could be granted a slot now.
    pub fn has_free_slot(&self) -> bool {
        let slack = Slack::of(self);
        self.backends.iter().any(|backend| backend.room() > 0 && slack.allows(backend))
    }
}

/// A request for one lease.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// It has a session.
    pub has_session: bool,
    /// Where the session is bound.
    pub bound: Option<Slot>,
    /// Backends that must not be chosen.
    pub tried: &'a [Slot],
    /// Total tokens that must fit; 0 when unstated.
    pub context_tokens: u64,
    /// It holds a place in the queue already.
    pub is_queued: bool,
    /// Spreads ties: a hash of the session, or a running number.
    pub spread: u64,
}

impl Ask<'_> {
    /// Whether this backend could serve the request, room left aside. A window that nobody has stated is not enough for a
    /// request that states how much it needs.
    pub fn suits(&self, backend: &BackendView) -> bool {
        backend.is_admitted && fits(backend, self.context_tokens)
    }
}

pub(super) fn fits(backend: &BackendView, context_tokens: u64) -> bool {
    has_window(backend.context_limit, context_tokens)
}

/// Whether a backend that is known to have this window, if any, has room for so many tokens; 0 asks for none.
pub fn has_window(known: Option<u64>, context_tokens: u64) -> bool {
    context_tokens == 0 || known.is_some_and(|window| window >= context_tokens)
}
