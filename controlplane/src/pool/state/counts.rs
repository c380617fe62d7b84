//! Leases, claims and sessions, counted in and out: the views that decisions read are right at any moment.

use router_policy::admit::{Claims, Slot};
use router_policy::ids::BackendId;

use super::{BindingTable, RESERVED, State};

impl State {
    /// What a window amounts to in this pool: the smallest that some backend has and that is large enough. So there are never
    /// more kinds of claims than of backends, whatever clients ask for.
    pub(in crate::pool) fn claim_class(&self, window: u64) -> u64 {
        if window == 0 {
            return 0;
        }
        let known = self.views.iter().filter_map(|view| view.context_limit);
        known.filter(|known| *known >= window).min().unwrap_or(window)
    }

    /// Counts a reserved slot in or out.
    pub(in crate::pool) fn count_claim(&mut self, window: u64, is_in: bool) {
        self.count(RESERVED, is_in);
        match self.claims.iter_mut().find(|claims| claims.window == window) {
            Some(claims) if is_in => claims.count = claims.count.saturating_add(1),
            Some(claims) => claims.count = claims.count.saturating_sub(1),
            None if is_in => self.claims.push(Claims { window, count: 1 }),
            None => {}
        }
        self.claims.retain(|claims| claims.count > 0);
    }

    /// Counts a lease in or out.
    pub(in crate::pool) fn count(&mut self, slot: Slot, is_in: bool) {
        let step = |count: u32| if is_in { count.saturating_add(1) } else { count.saturating_sub(1) };
        self.total_in_flight = step(self.total_in_flight);
        if let Some(view) = self.views.get_mut(slot) {
            view.in_flight = step(view.in_flight);
        }
        let is_empty_and_removed = !is_in
            && !self.is_in_bulk
            && self.backends.get(slot).is_some_and(|backend| backend.is_removed)
            && self.views.get(slot).is_some_and(|view| view.in_flight == 0);
        if is_empty_and_removed {
            self.free_removed();
        }
    }

    /// Counts a session on or off a backend and its rank there.
    pub(in crate::pool) fn count_bound(&mut self, backend: &BackendId, rank: Option<u32>, is_on: bool) {
        let Some(slot) = self.slots.get(backend).copied() else { return };
        if let Some(view) = self.views.get_mut(slot) {
            view.bound = if is_on { view.bound.saturating_add(1) } else { view.bound.saturating_sub(1) };
        }
        if let (Some(rank), Some(backend)) = (rank, self.backends.get_mut(slot)) {
            backend.count_rank(rank, is_on);
        }
    }

    /// Counts a request that goes on to another backend.
    pub(in crate::pool) fn count_retry(&mut self, failed: &BackendId) {
        if let Some(backend) = self.slots.get(failed).and_then(|slot| self.backends.get_mut(*slot)) {
            backend.retries_total += 1;
        }
    }

    /// Moves to backends that are not here any more are not counted any longer.
    pub(in crate::pool) fn forget_moves_to_nowhere(&mut self) {
        let slots = &self.slots;
        self.bindings.keep_moves(|backend| slots.contains_key(backend));
    }

    /// Forgets every session, in memory only.
    pub(in crate::pool) fn forget_all_bindings(&mut self) {
        self.bindings = BindingTable::default();
        for (backend, view) in self.backends.iter_mut().zip(&mut self.views) {
            view.bound = 0;
            backend.bound_by_rank.clear();
        }
    }
}
