//! The memory that all records of a replica share: what is being captured and what waits for the collector. Counted, not
//! reserved; asked when a buffer grows, not for each chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes for all.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
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
        }
        has_room
    }
}

#[cfg(test)]
impl Share {
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fill_the_budget_to_the_byte_and_give_all_of_it_back() {
        let budget = Arc::new(Budget::new(10));
        let mut first = Share::new(Arc::clone(&budget));
        let mut second = Share::new(Arc::clone(&budget));
        assert!(first.grow(6) && second.grow(4));
        assert!(!first.grow(1) && !second.grow(usize::MAX));
        assert_eq!((first.held, second.held), (6, 4));
        drop(first);
        assert!(!second.grow(7) && second.grow(6));
        drop(second);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}
