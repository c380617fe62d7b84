//! What is to be written, merged as it comes in. No I/O, no clock.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use router_policy::ids::{Fingerprint, LeaseId, RouteName};

use super::TOUCH_LIMIT;
use crate::store::{BindingTouch, LeaseRow};

#[derive(Default)]
pub(super) struct Pending {
    pub(super) leases: PendingLeases,
    pub(super) touches: PendingTouches,
}

/// Leases to write and to remove. Invariant: no lease is in both.
#[derive(Default)]
pub(super) struct PendingLeases {
    changes: LeaseChanges,
    /// Those that the database holds, or may hold: a write that failed may have been done.
    stored: HashSet<LeaseId>,
}

#[derive(Default)]
pub(super) struct LeaseChanges {
    put: HashMap<LeaseId, LeaseRow>,
    remove: HashSet<LeaseId>,
}

impl PendingLeases {
    pub(super) fn loaded(&mut self, lease: LeaseId) {
        self.stored.insert(lease);
    }

    pub(super) fn granted(&mut self, row: LeaseRow) {
        if self.changes.remove.remove(&row.lease) {
            self.stored.insert(row.lease);
        }
        self.changes.put.insert(row.lease, row);
    }

    pub(super) fn ended(&mut self, lease: LeaseId) {
        let was_pending = self.changes.put.remove(&lease).is_some();
        // One that is known nowhere was there at start.
        if self.stored.remove(&lease) || !was_pending {
            self.changes.remove.insert(lease);
        }
    }

    /// Hands out the changes, to be written now.
    pub(super) fn take(&mut self) -> LeaseChanges {
        self.stored.extend(self.changes.put.keys());
        std::mem::take(&mut self.changes)
    }

    /// Takes back what was not written, or may have been written without an answer.
    pub(super) fn merge_older(&mut self, older: LeaseChanges) {
        let newer = &mut self.changes;
        for (lease, row) in older.put {
            if !newer.remove.contains(&lease) {
                newer.put.entry(lease).or_insert(row);
            }
        }
        for lease in older.remove {
            if newer.put.contains_key(&lease) {
                self.stored.insert(lease);
            } else {
                newer.remove.insert(lease);
            }
        }
    }
}

impl LeaseChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.put.is_empty() && self.remove.is_empty()
    }

    pub(super) fn rows(&self) -> (Vec<LeaseRow>, Vec<LeaseId>) {
        (self.put.values().cloned().collect(), self.remove.iter().copied().collect())
    }
}

#[derive(Clone, Copy)]
struct Use {
    last_used_unix_ms: u64,
    more_requests: u64,
}

#[derive(Default)]
pub(super) struct PendingTouches {
    uses: HashMap<(Fingerprint, RouteName), Use>,
}

impl PendingTouches {
    pub(super) fn touched(&mut self, route: &RouteName, fingerprint: Fingerprint, at_unix_ms: u64) {
        self.add((fingerprint, route.clone()), Use { last_used_unix_ms: at_unix_ms, more_requests: 1 });
    }

    pub(super) fn merge_older(&mut self, older: Self) {
        for (session, older) in older.uses {
            self.add(session, older);
        }
    }

    fn add(&mut self, session: (Fingerprint, RouteName), more: Use) {
        let is_full = self.uses.len() >= TOUCH_LIMIT;
        match self.uses.entry(session) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.last_used_unix_ms = known.last_used_unix_ms.max(more.last_used_unix_ms);
                known.more_requests = known.more_requests.saturating_add(more.more_requests);
            }
            Entry::Vacant(free) if !is_full => {
                free.insert(more);
            }
            Entry::Vacant(_) => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    pub(super) fn rows(&self) -> Vec<BindingTouch> {
        let row = |((fingerprint, route), used): (&(Fingerprint, RouteName), &Use)| BindingTouch {
            route: route.clone(),
            fingerprint: *fingerprint,
            last_used_unix_ms: used.last_used_unix_ms,
            more_requests: used.more_requests,
        };
        self.uses.iter().map(row).collect()
    }
}
