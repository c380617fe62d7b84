//! The memory that all records of a replica share: what is being captured and what waits for the collector. Counted, not
//! reserved; asked when a buffer grows, not for each chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::gauge::Gauge;

/// So many bytes for all.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// Shows the same to operators.
    shown: Gauge,
}

impl Budget {
    pub(super) fn new(limit: usize, shown: Gauge) -> Self {
        Self { limit, used: AtomicUsize::new(0), shown }
    }
}

/// What one record holds of it, given back in `Drop`.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    held: usize,
}

impl Share {
    /// An empty one.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, held: 0 }
    }

    /// Holds `more` bytes more; false, and nothing changed, when there is no room.
    pub(super) fn grow(&mut self, more: usize) -> bool {
        let room = |used: usize| used.checked_add(more).filter(|&sum| sum <= self.budget.limit);
        let has_room = self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if has_room {
            self.held += more;
            self.budget.shown.inc_by(shown(more));
        }
        has_room
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.held, Ordering::Relaxed);
        self.budget.shown.dec_by(shown(self.held));
    }
}

/// As a gauge counts. A buffer has at most 64 GiB.
fn shown(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_the_budget_to_the_byte_and_give_all_of_it_back() {
        let shown = Gauge::default();
        let budget = Arc::new(Budget::new(10, shown.clone()));
        let mut first = Share::new(Arc::clone(&budget));
        let mut second = Share::new(Arc::clone(&budget));
        assert!(first.grow(6) && second.grow(4));
        assert!(!first.grow(1) && !second.grow(usize::MAX));
        assert_eq!((first.held, second.held, shown.get()), (6, 4, 10));
        drop(first);
        assert!(!second.grow(7) && second.grow(6));
        drop(second);
        assert_eq!((budget.used.load(Ordering::Relaxed), shown.get()), (0, 0));
    }
}
