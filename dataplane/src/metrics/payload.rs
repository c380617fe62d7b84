//! What is done to the bodies of a route, counted: for Prometheus here, and for the control plane, which adds it up over the
//! replicas (`Counted`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use router_policy::payload_count::PayloadCount;

/// One route's counts since the replica started. They only rise.
#[derive(Debug, Default)]
pub(crate) struct PayloadCounts {
    counts: [AtomicU64; PayloadCount::ALL.len()],
    /// By rule; as many as the route has had rules.
    rule_hits: Mutex<BTreeMap<String, u64>>,
    /// When the body log's sender last took a frame, in Unix milliseconds; 0 for never.
    body_log_last: AtomicU64,
}

impl PayloadCounts {
    pub(crate) fn add(&self, count: PayloadCount, more: u64) {
        if let Some((_, slot)) = PayloadCount::ALL.iter().zip(&self.counts).find(|(known, _)| **known == count) {
            slot.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// A rule refused a request.
    pub(crate) fn rule_hit(&self, rule: &str) {
        self.add(PayloadCount::RuleRejected, 1);
        let mut hits = self.rule_hits.lock();
        match hits.get_mut(rule) {
            Some(count) => *count += 1,
            None => drop(hits.insert(rule.to_owned(), 1)),
        }
    }
}
