//! What stands behind the pool's lock, and the plain views that decisions read.

mod counts;
mod health;

use std::collections::HashMap;
use std::sync::Arc;

use router_policy::admit::{self, Ask, BackendView, Claims, Decision, PoolView, Preference, Slot};
use router_policy::flow::UnixMs;
use router_policy::ids::{BackendId, LeaseId};
use router_policy::option::{Affinity, OnFull, RouteOptions};
use router_policy::refusal::{Gate, Refusal};
use router_policy::route::RouteSpec;
use router_policy::tick::Tick;
use router_policy::toggle::Toggles;

use super::backend::Backend;
use super::binding::BindingTable;
use super::lease::Lease;
use super::model_pool::{ModelPool, ModelPools, NO_POOL};
use super::payload::PayloadState;
use super::waiters::Waiters;
use super::{Asked, Place};

/// The slot of a binding whose backend is not in the pool any more: no backend has it.
const GONE: Slot = Slot::MAX;
/// The slot of a lease that is reserved from the pool and on no backend yet.
pub(super) const RESERVED: Slot = Slot::MAX - 1;

/// One pool's state.
pub(super) struct State {
    pub spec: Arc<RouteSpec>,
    pub options: RouteOptions,
    /// By slot, beside `views`.
    pub backends: Vec<Backend>,
    pub views: Vec<BackendView>,
    pub slots: HashMap<BackendId, Slot>,
    /// By model, or one for all.
    pub pools: ModelPools,
    /// What is set at run time.
    pub toggles: Toggles,
    /// What replicas have counted.
    pub payload: PayloadState,
    pub bindings: BindingTable,
    pub leases: HashMap<LeaseId, Lease>,
    pub waiters: Waiters,
    /// The route is gone: nobody may enter any more.
    pub is_closed: bool,
    /// When the conditions of some backend change by time alone.
    next_change: Option<Tick>,
    /// Spreads requests without a session.
    spread: u64,
    total_in_flight: u32,
    /// Of these, on no backend yet: by the window that they ask for.
    claims: Vec<Claims>,
    /// See [`State::in_bulk`].
    is_in_bulk: bool,
}

impl State {
    pub(super) fn new(spec: Arc<RouteSpec>) -> Self {
        let options = spec.options();
        Self {
            spec,
            options,
            backends: Vec::new(),
            views: Vec::new(),
            slots: HashMap::new(),
            pools: ModelPools::new(),
            toggles: Toggles::default(),
            payload: PayloadState::default(),
            bindings: BindingTable::default(),
            leases: HashMap::new(),
            waiters: Waiters::default(),
            is_closed: false,
            next_change: None,
            spread: 0,
            total_in_flight: 0,
            claims: Vec::new(),
            is_in_bulk: false,
        }
    }

    /// Takes a route's new document: backends that stay keep their leases, bindings and health.
    pub(super) fn install(&mut self, spec: Arc<RouteSpec>, now: Tick, unix: UnixMs) {
        self.options = spec.options();
        self.spec = spec;
        self.payload.install(&self.spec);
        let named = Arc::clone(&self.spec);
        for backend in &mut self.backends {
            backend.is_removed = true;
        }
        for wanted in &named.backends {
            let slot = self.slot_for(&wanted.id, || Backend::new(wanted.clone()));
            if let Some(backend) = self.backends.get_mut(slot) {
                backend.spec = wanted.clone();
                backend.is_removed = false;
            }
        }
        self.free_removed();
        let options = &self.options;
        for (backend, view) in self.backends.iter().zip(&mut self.views) {
            view.limit = backend.limit(options);
            view.context_limit = backend.spec.known_context(options);
            view.priority = backend.spec.priority;
        }
        let moved = self.pools.install(&self.spec, &self.options, &self.toggles, unix);
        for lease in self.leases.values_mut() {
            lease.pool = moved.get(lease.pool).copied().unwrap_or(NO_POOL);
        }
        self.refresh_members();
        self.rank_waiters();
        self.refresh_all(now);
    }

    /// The slot of a backend, made if there is none.
    pub(super) fn slot_for(&mut self, id: &BackendId, make: impl FnOnce() -> Backend) -> Slot {
        if let Some(slot) = self.slots.get(id) {
            return *slot;
        }
        let mut backend = make();
        let mut bound = 0;
        for binding in self.bindings.on(id) {
            bound += 1;
            if let Some(rank) = binding.dp_rank {
                backend.count_rank(rank, true);
            }
        }
        let view = BackendView {
            limit: backend.limit(&self.options),
            in_flight: 0,
            bound,
            is_admitted: false,
            is_failing: false,
            context_limit: backend.spec.known_context(&self.options),
            priority: backend.spec.priority,
        };
        let slot = self.backends.len();
        self.backends.push(backend);
        self.views.push(view);
        self.slots.insert(id.clone(), slot);
        slot
    }

    /// Ends leases in bulk with `end`. Removed backends that hold nothing any more are forgotten once, after all: a walk over
    /// every slot for each lease would hold the lock for very long.
    pub(super) fn in_bulk(&mut self, end: impl FnOnce(&mut Self)) {
        self.is_in_bulk = true;
        end(self);
        self.is_in_bulk = false;
        self.free_removed();
    }

    /// Forgets removed backends that hold nothing. Slots move together, so nothing may keep a slot over this call.
    fn free_removed(&mut self) {
        if !self.backends.iter().zip(&self.views).any(|(backend, view)| backend.is_removed && view.in_flight == 0) {
            return;
        }
        let old: Vec<(Backend, BackendView)> =
            std::mem::take(&mut self.backends).into_iter().zip(std::mem::take(&mut self.views)).collect();
        let mut moved = HashMap::new();
        for (before, (backend, view)) in old.into_iter().enumerate() {
            if backend.is_removed && view.in_flight == 0 {
                self.slots.remove(&backend.spec.id);
                continue;
            }
            let slot = self.backends.len();
            moved.insert(before, slot);
            self.slots.insert(backend.spec.id.clone(), slot);
            self.backends.push(backend);
            self.views.push(view);
        }
        for lease in self.leases.values_mut() {
            // A backend that holds a lease was kept.
            if lease.slot != RESERVED {
                lease.slot = moved.get(&lease.slot).copied().unwrap_or(GONE);
            }
        }
        self.refresh_members();
    }

    fn refresh_members(&mut self) {
        let slots = &self.slots;
        self.pools.refresh_members(&self.spec, &self.options, |id| slots.get(id).copied(), &self.views);
    }

    /// Takes what is set at run time into account, and what has undone itself.
    pub(super) fn refresh_toggles(&mut self, unix: UnixMs) {
        self.pools.refresh_options(&self.options, &self.toggles, unix);
        self.rank_waiters();
    }

    /// Puts the queue in the order of turns, where they are ranked.
    fn rank_waiters(&mut self) {
        let pools = &self.pools;
        self.waiters.rerank(|asked| rank(pools, asked));
    }

    /// A waiter's rank: the smallest is served first.
    pub(super) fn rank(&self, asked: &Asked) -> usize {
        rank(&self.pools, asked)
    }

    /// Brings time-dependent conditions up to date; true when some backend's admission has changed.
    pub(super) fn refresh(&mut self, now: Tick) -> bool {
        if self.next_change.is_none_or(|at| now < at) {
            return false;
        }
        self.refresh_all(now)
    }

    pub(super) fn refresh_all(&mut self, now: Tick) -> bool {
        let mut has_changed = false;
        for (backend, view) in self.backends.iter().zip(&mut self.views) {
            has_changed |= backend.refresh(view, now);
        }
        self.next_change = self.backends.iter().filter_map(|backend| backend.next_change(now)).min();
        has_changed
    }

    /// When [`super::Pool::tick`] has something to do, time-driven flow control left aside.
    pub(super) fn next_event(&self) -> Option<Tick> {
        [self.waiters.next_deadline(), self.next_change].into_iter().flatten().min()
    }

    /// The pool that a request is for.
    pub(super) fn place(&self, asked: &Asked) -> Option<Place> {
        if asked.is_reserve && self.pools.is_by_model() {
            return Some(Place::Everybody);
        }
        self.pools.place(&asked.model).map(Place::Pool)
    }

    pub(super) fn pool(&self, place: Place) -> Option<&ModelPool> {
        match place {
            Place::Pool(at) => self.pools.list.get(at),
            Place::Everybody => None,
        }
    }

    pub(super) fn pool_mut(&mut self, place: Place) -> Option<&mut ModelPool> {
        match place {
            Place::Pool(at) => self.pools.list.get_mut(at),
            Place::Everybody => None,
        }
    }

    pub(super) fn view(&self, place: Place, unix: UnixMs) -> PoolView<'_> {
        let is_by_model = self.pools.is_by_model();
        let model = if is_by_model { self.pool(place).map(ModelPool::name) } else { None };
        let view = PoolView {
            backends: &self.views,
            members: &self.pools.everybody,
            // With a pool per model, those whose model is not known yet have a queue of their own.
            waiting: if is_by_model { self.waiters.of_model(model.unwrap_or_default()) } else { self.waiters.len() },
            max_waiting: self.options.max_waiting as usize,
            binds_sessions: self.options.affinity == Affinity::Binding,
            sessions_full: self.bindings.len() >= self.options.max_sessions,
            on_full: self.options.on_full,
            claims: &self.claims,
            is_by_model,
            crosses_tiers: self.options.cross_tier_fallback,
            adaptive: None,
            factor: 1.0,
            is_enforced: self.pools.list.first().is_none_or(|pool| pool.options.is_enforced),
        };
        match self.pool(place) {
            Some(pool) => pool.view(view, unix),
            None => view,
        }
    }

    /// [`Self::view`] for one request: a full binding table has a place for it where an idle session may give way. It does so
    /// when the request is granted, for a refusal has no side effect.
    pub(super) fn view_for(&self, place: Place, asked: &Asked, now: Tick, unix: UnixMs) -> PoolView<'_> {
        let mut view = self.view(place, unix);
        if view.sessions_full && self.needs_eviction(asked) {
            view.sessions_full = !self.options.session_idle_ttl.is_some_and(|ttl| self.bindings.has_idle(now, ttl));
        }
        view
    }

    /// The slots of the backends that a request has tried.
    pub(super) fn tried(&self, asked: &Asked) -> Vec<Slot> {
        asked.tried.iter().filter_map(|id| self.slots.get(id).copied()).collect()
    }

    /// Backends by the weight that the session gives them.
    pub(super) fn ranked(&self, asked: &Asked) -> Vec<Slot> {
        asked.ranked.iter().filter_map(|id| self.slots.get(id).copied()).collect()
    }

    pub(super) fn ask<'a>(&self, place: Place, asked: &Asked, lists: &'a Lists, is_queued: bool) -> Ask<'a> {
        let preference = match self.options.affinity {
            Affinity::Binding if asked.fingerprint.is_some() => {
                let binding = asked.fingerprint.and_then(|session| self.bindings.get(session));
                let bound = binding.map(|binding| self.slots.get(&binding.backend).copied().unwrap_or(GONE));
                Preference::Session { bound }
            }
            Affinity::Hash => asked.crc32.map_or(Preference::None, Preference::Crc32),
            Affinity::Rendezvous if !lists.ranked.is_empty() => Preference::Ranked(&lists.ranked),
            _ => Preference::None,
        };
        Ask {
            preference,
            tried: &lists.tried,
            context_tokens: asked.context_tokens,
            is_queued,
            share: self.pool(place).map_or(1.0, |pool| pool.options.share(pool.bucket(asked))),
            spread: match asked.fingerprint {
                Some(session) if self.options.affinity == Affinity::Binding => session.spread(),
                _ => self.spread,
            },
        }
    }

    /// What becomes of a request, up to the gates that judge a pool by its speed.
    pub(super) fn decide(&self, place: Place, asked: &Asked, is_queued: bool, now: Tick, unix: UnixMs) -> Decision {
        let view = self.view_for(place, asked, now, unix);
        if asked.is_reserve {
            return admit::reserve(&view, &self.ask(place, asked, &Lists::default(), is_queued));
        }
        let lists = Lists { tried: self.tried(asked), ranked: self.ranked(asked) };
        admit::decide(&view, &self.ask(place, asked, &lists, is_queued))
    }

    /// The rank of a session on this backend, when it has `current` there.
    pub(super) fn rank_for(&self, slot: Slot, current: Option<u32>) -> Option<u32> {
        self.backends.get(slot)?.rank_for(current, &self.options)
    }

    /// Another value for the next request that is not bound.
    pub(super) fn next_spread(&mut self) {
        self.spread = self.spread.wrapping_add(1);
    }

    /// Whether a new session needs another's place, and the route's `on_full` lets it.
    fn needs_eviction(&self, asked: &Asked) -> bool {
        self.options.on_full == OnFull::EvictIdle
            && asked.fingerprint.is_some_and(|session| self.bindings.get(session).is_none())
    }

    pub(super) fn total_in_flight(&self) -> u32 {
        self.total_in_flight
    }

    pub(super) fn reserved(&self) -> u32 {
        self.claims.iter().fold(0, |sum, claims| sum.saturating_add(claims.count))
    }

    /// What the adaptive limit is measured against, for this request.
    pub(super) fn competing(&self, place: Place, asked: &Asked, unix: UnixMs) -> u32 {
        admit::competing(&self.view(place, unix), &self.ask(place, asked, &Lists::default(), false))
    }

    /// What a gate that refuses this request would tell of its pool.
    pub(super) fn refusal(&self, place: Place, asked: &Asked, gate: Gate, unix: UnixMs) -> Refusal {
        let lists = Lists { tried: self.tried(asked), ranked: Vec::new() };
        admit::refusal(&self.view(place, unix), &self.ask(place, asked, &lists, true), gate)
    }
}

/// Slots that a request names; kept beside the [`Ask`] that borrows them.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub tried: Vec<Slot>,
    pub ranked: Vec<Slot>,
}

fn rank(pools: &ModelPools, asked: &Asked) -> usize {
    // A request whose model is not known yet is ranked by what the route says of turns, which is the same for all its pools.
    let pool = pools.place(&asked.model).and_then(|place| pools.list.get(place)).or_else(|| pools.list.first());
    let Some(pool) = pool else { return 0 };
    pool.options
        .prio
        .as_ref()
        .zip(pool.bucket(asked))
        .map_or(0, |(prio, bucket)| prio.table.rows().len().saturating_sub(1).saturating_sub(bucket.index))
}
