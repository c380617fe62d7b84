//! The router's queue as the control plane keeps it: by rank, then first in, first out, each with a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::{Session, Us};

/// A request that waits for a slot.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    /// Whose it is.
    pub session: Session,
    /// Its turn, from 1.
    pub turn: u32,
    /// When it is refused.
    pub deadline: Us,
}

/// A place in the order of service: rank, then arrival.
pub type Place = (usize, u64);

/// The queue.
#[derive(Debug, Default)]
pub struct Waiters {
    next: u64,
    in_order: BTreeMap<Place, Waiter>,
    by_deadline: BTreeSet<(Us, Place)>,
}

impl Waiters {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Puts a waiter at the end of its rank.
    pub fn push(&mut self, rank: usize, waiter: Waiter) {
        let place = (rank, self.next);
        self.next += 1;
        self.by_deadline.insert((waiter.deadline, place));
        self.in_order.insert(place, waiter);
    }

    /// The first waiter, or the first after `place`.
    pub fn after(&self, place: Option<Place>) -> Option<(Place, Waiter)> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        self.in_order.range((from, Bound::Unbounded)).next().map(|(place, waiter)| (*place, *waiter))
    }

    /// Takes a waiter out.
    pub fn remove(&mut self, place: Place) -> Option<Waiter> {
        let waiter = self.in_order.remove(&place)?;
        self.by_deadline.remove(&(waiter.deadline, place));
        Some(waiter)
    }

    /// Takes out one whose time is over.
    pub fn pop_expired(&mut self, now: Us) -> Option<Waiter> {
        let (deadline, place) = *self.by_deadline.first()?;
        if deadline > now { None } else { self.remove(place) }
    }

    /// The nearest deadline.
    pub fn next_deadline(&self) -> Option<Us> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_rank_then_arrival_and_each_until_its_deadline() {
        let mut waiters = Waiters::default();
        for (rank, session) in [(1, 10), (0, 11), (1, 12)] {
            waiters.push(rank, Waiter { session, turn: 1, deadline: 100 - session as u64 });
        }
        let mut at = None;
        let order = std::iter::from_fn(|| {
            let (place, waiter) = waiters.after(at)?;
            at = Some(place);
            Some(waiter.session)
        });
        assert_eq!(order.collect::<Vec<_>>(), [11, 10, 12]);
        assert_eq!(waiters.next_deadline(), Some(88));
        assert!(waiters.pop_expired(87).is_none());
        assert_eq!(waiters.pop_expired(88).map(|waiter| waiter.session), Some(12));
        assert_eq!(waiters.len(), 2);
    }
}
