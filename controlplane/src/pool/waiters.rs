//! The queue: first in, first out, each with a deadline.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use router_policy::tick::Tick;

use super::{Asked, Caller};

/// A request that waits for a slot.
#[derive(Debug)]
pub(super) struct Waiter {
    pub op: u64,
    pub caller: Arc<Caller>,
    pub asked: Asked,
    pub since: Tick,
    pub deadline: Tick,
}

/// Waiters in order of arrival; bounded by the route's `max_waiting`.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: u64,
    by_arrival: BTreeMap<u64, Waiter>,
    by_deadline: BTreeSet<(Tick, u64)>,
    by_op: HashMap<(u64, u64), u64>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    /// Puts a waiter at the end; true when its deadline is now the nearest.
    pub(super) fn push(&mut self, waiter: Waiter) -> bool {
        let place = self.next;
        self.next += 1;
        let key = (waiter.deadline, place);
        self.by_op.insert((waiter.caller.stream, waiter.op), place);
        self.by_deadline.insert(key);
        self.by_arrival.insert(place, waiter);
        self.by_deadline.first() == Some(&key)
    }

    /// The place of the first waiter at or after `place`.
    pub(super) fn at_or_after(&self, place: u64) -> Option<(u64, &Waiter)> {
        self.by_arrival.range(place..).next().map(|(place, waiter)| (*place, waiter))
    }

    pub(super) fn remove(&mut self, place: u64) -> Option<Waiter> {
        let waiter = self.by_arrival.remove(&place)?;
        self.by_deadline.remove(&(waiter.deadline, place));
        self.by_op.remove(&(waiter.caller.stream, waiter.op));
        Some(waiter)
    }

    pub(super) fn cancel(&mut self, stream: u64, op: u64) -> Option<Waiter> {
        let place = *self.by_op.get(&(stream, op))?;
        self.remove(place)
    }

    /// Takes out every waiter of a stream.
    pub(super) fn cancel_stream(&mut self, stream: u64) -> usize {
        let places: Vec<u64> =
            self.by_op.iter().filter(|((of, _), _)| *of == stream).map(|(_, place)| *place).collect();
        places.into_iter().filter_map(|place| self.remove(place)).count()
    }

    /// Takes out every waiter of a replica, whichever of its streams it came on.
    pub(super) fn cancel_replica(&mut self, replica: &str) -> usize {
        let waiters = self.by_arrival.iter().filter(|(_, waiter)| &*waiter.caller.replica == replica);
        let places: Vec<u64> = waiters.map(|(place, _)| *place).collect();
        places.into_iter().filter_map(|place| self.remove(place)).count()
    }

    /// Takes out everyone, in order.
    pub(super) fn drain(&mut self) -> Vec<Waiter> {
        self.by_deadline.clear();
        self.by_op.clear();
        std::mem::take(&mut self.by_arrival).into_values().collect()
    }

    pub(super) fn pop_expired(&mut self, now: Tick) -> Option<Waiter> {
        let (deadline, place) = *self.by_deadline.first()?;
        if deadline > now {
            return None;
        }
        self.remove(place)
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }
}
