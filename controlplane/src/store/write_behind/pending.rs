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

/// Invariant: no lease is in both.
#[derive(Default)]
pub(super) struct PendingLeases {
    put: HashMap<LeaseId, LeaseRow>,
    remove: HashSet<LeaseId>,
}

impl PendingLeases {
    pub(super) fn granted(&mut self, row: LeaseRow) {
        if !self.remove.is_empty() {
            self.remove.remove(&row.lease);
        }
        self.put.insert(row.lease, row);
    }

    pub(super) fn ended(&mut self, lease: LeaseId) {
        // One that is not here is in the database, or on its way there.
        if self.put.remove(&lease).is_none() {
            self.remove.insert(lease);
        }
    }

    /// Takes back what a flush could not write, or may have written without an answer.
    pub(super) fn merge_older(&mut self, older: Self) {
        for (lease, row) in older.put {
            if !self.remove.contains(&lease) {
                self.put.entry(lease).or_insert(row);
            }
        }
        for lease in older.remove {
            if !self.put.contains_key(&lease) {
                self.remove.insert(lease);
            }
        }
    }

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
