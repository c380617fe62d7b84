//! The least loaded backend of the highest tier: fewest in flight relative to its limit, then fewest bound sessions, then a
//! hash.

use std::cmp::Ordering;

use super::view::{Ask, BackendView, PoolView, Slot};
use crate::route::Priority;

/// How good a backend is for one request; the smallest wins. The order of the comparisons is the rule.
#[derive(Debug, Clone, Copy)]
struct Score {
    priority: Priority,
    is_failing: bool,
    in_flight: u32,
    limit: u32,
    bound: u64,
    tie: u64,
}

impl Score {
    fn new(slot: Slot, backend: &BackendView, spread: u64) -> Self {
        Self {
            priority: backend.priority,
            is_failing: backend.is_failing,
            in_flight: backend.in_flight,
            limit: backend.limit,
            bound: backend.bound,
            tie: mix(spread ^ mix(slot as u64)),
        }
    }

    fn better(&self, other: &Self) -> Ordering {
        let ratio = u64::from(self.in_flight) * u64::from(other.limit);
        let other_ratio = u64::from(other.in_flight) * u64::from(self.limit);
        other
            .priority
            .cmp(&self.priority)
            .then(self.is_failing.cmp(&other.is_failing))
            .then(ratio.cmp(&other_ratio))
            .then(self.bound.cmp(&other.bound))
            .then(self.tie.cmp(&other.tie))
    }
}

/// The best of the pool's backends that `may_take` the request, the highest tier first.
pub(super) fn least_loaded(pool: &PoolView<'_>, ask: &Ask<'_>, may_take: impl Fn(Slot) -> bool) -> Option<Slot> {
    pool.members()
        .filter(|(slot, _)| may_take(*slot))
        .map(|(slot, backend)| (slot, Score::new(slot, backend, ask.spread)))
        .min_by(|(_, a), (_, b)| a.better(b))
        .map(|(slot, _)| slot)
}

/// The finalizer of `SplitMix64`: every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
