//! What a decision reads.

use super::claim::{Claims, Slack};
use super::tier::Load;
use crate::option::OnFull;
use crate::route::Priority;

/// A backend's place in its route's list; stable while it holds leases or bindings.
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
    /// Its tier: the larger is preferred.
    pub priority: Priority,
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

    /// Whether it may take a request that needs so many tokens, room left aside.
    pub(super) fn suits(&self, context_tokens: u64) -> bool {
        self.is_admitted && has_window(self.context_limit, context_tokens)
    }
}

/// A pool, as a decision sees it: all backends of a route, or those of one model.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one rule of the route, on or off")]
pub struct PoolView<'a> {
    /// Every backend of the route, by slot.
    pub backends: &'a [BackendView],
    /// Those of the pool, in the order of the route's document.
    pub members: &'a [Slot],
    /// Requests in the pool's queue.
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
    /// The route has a pool per model, and a claim may be for any of them.
    pub is_by_model: bool,
    /// Whether tiers below the active one take what it has no room for.
    pub crosses_tiers: bool,
    /// What the pool may hold now beside what its backends may; `None` when nothing else limits it.
    pub adaptive: Option<f64>,
    /// Multiplies the pool's limit (`rt_limit_factor`).
    pub factor: f64,
    /// The master switch. False: nobody waits or is refused for load.
    pub is_enforced: bool,
}

impl PoolView<'_> {
    /// How many slots are claimed by requests that need this window or a larger one.
    pub(super) fn claimed(&self, context_tokens: u64) -> u32 {
        let claims = self.claims.iter().filter(|claims| claims.window >= context_tokens);
        claims.fold(0, |sum, claims| sum.saturating_add(claims.count))
    }

    /// The pool's backends.
    pub(super) fn members(&self) -> impl Iterator<Item = (Slot, &BackendView)> {
        self.members.iter().filter_map(|slot| Some((*slot, self.backends.get(*slot)?)))
    }

    /// Whether somebody could be granted a slot now, whatever its turn and its window.
    pub fn has_free_slot(&self) -> bool {
        let slack = Slack::of(self);
        let has_room = self.members().any(|(_, backend)| backend.room() > 0 && slack.allows(backend));
        // Which tier's limit counts may depend on the window.
        let depends = || self.members().any(|(_, backend)| backend.context_limit.is_some());
        has_room && (Load::of(self, &Ask::default()).is_below_ceiling(self, 1.0) || depends())
    }
}

/// Where affinity would send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference<'a> {
    /// Nowhere: no session, or `affinity: off`.
    #[default]
    None,
    /// It has a session that may be bound.
    Session {
        /// Where it is bound.
        bound: Option<Slot>,
    },
    /// crc32 of the session id.
    Crc32(u32),
    /// The pool's backends, the highest weight first.
    Ranked(&'a [Slot]),
}

/// A request for one lease.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Where its session belongs.
    pub preference: Preference<'a>,
    /// Backends that must not be chosen. With any of them, the request is one that was admitted before.
    pub tried: &'a [Slot],
    /// Total tokens that must fit; 0 when unstated.
    pub context_tokens: u64,
    /// It holds a place in the queue already.
    pub is_queued: bool,
    /// The part of the pool's limit that its turn may fill.
    pub share: f64,
    /// Spreads ties: a hash of the session, or a running number.
    pub spread: u64,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Self { preference: Preference::None, tried: &[], context_tokens: 0, is_queued: false, share: 1.0, spread: 0 }
    }
}

impl Ask<'_> {
    /// Whether this backend could serve the request, room and tier left aside. A window that nobody has stated is not enough
    /// for a request that states how much it needs.
    pub fn suits(&self, backend: &BackendView) -> bool {
        backend.suits(self.context_tokens)
    }

    /// Whether it was admitted before and now only changes its backend: no gate but the backends' own limits is asked again.
    pub(super) fn is_retry(&self) -> bool {
        !self.tried.is_empty()
    }
}

/// Whether a backend that is known to have this window, if any, has room for so many tokens; 0 asks for none.
pub fn has_window(known: Option<u64>, context_tokens: u64) -> bool {
    context_tokens == 0 || known.is_some_and(|window| window >= context_tokens)
}
