//! What replicas count of the route's payload handling, added up (payloads.md §9). Kept over restarts: the session router lost it
//! with each of its processes.

use router_policy::payload_count::PayloadTotals;
use router_policy::route::RouteSpec;
use router_policy::toggle::Switch;
use router_proto::v1;

use super::Pool;
use crate::store::PayloadCountsRow;

/// The sums, and whether the database has them.
#[derive(Debug, Default)]
pub(super) struct PayloadState {
    pub totals: PayloadTotals,
    is_dirty: bool,
}

impl PayloadState {
    /// Takes a route's new document: what was counted of rules that have gone is forgotten.
    pub(super) fn install(&mut self, spec: &RouteSpec) {
        self.is_dirty |= self.totals.set_rules(spec.rules().iter().map(|rule| rule.name().to_owned()));
    }

    /// Clears the sum of refusals by rules.
    pub(super) fn reset_refusals(&mut self) {
        self.totals.reset_refusals();
        self.is_dirty = true;
    }

    /// The route goes away.
    pub(super) fn forget(&mut self) {
        self.totals = PayloadTotals::default();
        // In place of what is just being stored of it, should the route return at once.
        self.is_dirty = true;
    }
}

impl Pool {
    /// A replica has counted.
    pub fn counted(&self, counted: &v1::Counted) {
        let now = self.context.unix(self.context.clock.now());
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let payload = &mut state.payload;
        payload.is_dirty |= payload.totals.add(
            |count| counted.counts.get(count.name()).copied().unwrap_or(0),
            |rule| counted.rule_hits.get(rule).copied().unwrap_or(0),
            // A replica whose clock is ahead would keep the others from being heard.
            counted.body_log_last_unix_ms.min(now.0),
        );
    }

    /// Clears a feature's counters.
    pub fn reset_payload(&self, feature: Switch) {
        let payload = &mut self.state.lock().payload;
        payload.totals.reset(feature);
        payload.is_dirty = true;
    }

    /// Takes up what the database holds, at start.
    pub fn restore_payload(&self, row: &PayloadCountsRow) {
        match serde_json::from_str(&row.state) {
            Ok(stored) => self.state.lock().payload.totals.restore(stored),
            Err(error) => {
                tracing::warn!(route = %self.name, %error, "a route's stored payload counts can't be read; they start anew");
            }
        }
    }

    /// The sums, if they have changed since the last call, for the database.
    pub fn take_payload_row(&self) -> Option<PayloadCountsRow> {
        let unix = self.context.unix(self.context.clock.now());
        let totals = {
            let mut state = self.state.lock();
            let is_due = !state.is_closed && std::mem::take(&mut state.payload.is_dirty);
            is_due.then(|| state.payload.totals.clone())?
        };
        let state = serde_json::to_string(&totals).ok()?;
        Some(PayloadCountsRow { route: self.name.clone(), state, updated_unix_ms: unix.0 })
    }

    /// The row could not be stored: it is given again.
    pub fn payload_not_stored(&self) {
        self.state.lock().payload.is_dirty = true;
    }
}
