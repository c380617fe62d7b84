//! The queue: by rank, then first in, first out, each with a deadline. Where turns are not ranked, every rank is 0.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
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

/// A waiter's place in the order of service: its rank, then its arrival.
pub(super) type Turn = (usize, u64);

/// Waiters in order of service; bounded by the route's `max_waiting`, with a pool per model by that for each.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next: u64,
    in_order: BTreeMap<Turn, Waiter>,
    by_deadline: BTreeSet<(Tick, Turn)>,
    by_op: HashMap<(u64, u64), Turn>,
    by_model: HashMap<String, usize>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Those who ask for a model.
    pub(super) fn of_model(&self, model: &str) -> usize {
        self.by_model.get(model).copied().unwrap_or(0)
    }

    /// Puts a waiter at the end of its rank; true when its deadline is now the nearest.
    pub(super) fn push(&mut self, rank: usize, waiter: Waiter) -> bool {
        let turn = (rank, self.next);
        self.next += 1;
        self.insert(turn, waiter)
    }

    fn insert(&mut self, turn: Turn, waiter: Waiter) -> bool {
        let key = (waiter.deadline, turn);
        self.by_op.insert((waiter.caller.stream, waiter.op), turn);
        self.by_deadline.insert(key);
        *self.by_model.entry(waiter.asked.model.clone()).or_default() += 1;
        self.in_order.insert(turn, waiter);
        self.by_deadline.first() == Some(&key)
    }

    /// Gives every waiter the rank that it has now; those of one rank stay in order of arrival.
    pub(super) fn rerank(&mut self, rank: impl Fn(&Asked) -> usize) {
        if self.in_order.iter().all(|((known, _), waiter)| *known == rank(&waiter.asked)) {
            return;
        }
        for ((_, arrival), waiter) in self.take_all() {
            self.insert((rank(&waiter.asked), arrival), waiter);
        }
    }

    /// The first waiter, or the first after `turn`.
    pub(super) fn after(&self, turn: Option<Turn>) -> Option<(Turn, &Waiter)> {
        let from = turn.map_or(Bound::Unbounded, Bound::Excluded);
        self.in_order.range((from, Bound::Unbounded)).next().map(|(turn, waiter)| (*turn, waiter))
    }

    /// The last in order, if it ranks behind `rank`; of those who ask for `model`, where each model has a queue of its own.
    pub(super) fn last_behind(&self, rank: usize, model: Option<&str>) -> Option<Turn> {
        let behind = self.in_order.range((rank.saturating_add(1), 0)..);
        let is_in_queue = |waiter: &Waiter| model.is_none_or(|model| waiter.asked.model == model);
        behind.rev().find(|(_, waiter)| is_in_queue(waiter)).map(|(turn, _)| *turn)
    }

    pub(super) fn remove(&mut self, turn: Turn) -> Option<Waiter> {
        let waiter = self.in_order.remove(&turn)?;
        self.by_deadline.remove(&(waiter.deadline, turn));
        self.by_op.remove(&(waiter.caller.stream, waiter.op));
        if let Some(count) = self.by_model.get_mut(&waiter.asked.model) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                // Bounded by who waits, whatever models clients name.
                self.by_model.remove(&waiter.asked.model);
            }
        }
        Some(waiter)
    }

    pub(super) fn cancel(&mut self, stream: u64, op: u64) -> Option<Waiter> {
        let turn = *self.by_op.get(&(stream, op))?;
        self.remove(turn)
    }

    /// Takes out every waiter of a stream.
    pub(super) fn cancel_stream(&mut self, stream: u64) -> usize {
        let turns: Vec<Turn> = self.by_op.iter().filter(|((of, _), _)| *of == stream).map(|(_, turn)| *turn).collect();
        turns.into_iter().filter_map(|turn| self.remove(turn)).count()
    }

    /// Takes out every waiter of a replica, whichever of its streams it came on.
    pub(super) fn cancel_replica(&mut self, replica: &str) -> usize {
        let waiters = self.in_order.iter().filter(|(_, waiter)| &*waiter.caller.replica == replica);
        let turns: Vec<Turn> = waiters.map(|(turn, _)| *turn).collect();
        turns.into_iter().filter_map(|turn| self.remove(turn)).count()
    }

    /// Takes out everyone, in order.
    pub(super) fn drain(&mut self) -> Vec<Waiter> {
        self.take_all().into_values().collect()
    }

    fn take_all(&mut self) -> BTreeMap<Turn, Waiter> {
        self.by_deadline.clear();
        self.by_op.clear();
        self.by_model.clear();
        std::mem::take(&mut self.in_order)
    }

    pub(super) fn pop_expired(&mut self, now: Tick) -> Option<Waiter> {
        let (deadline, turn) = *self.by_deadline.first()?;
        if deadline > now {
            return None;
        }
        self.remove(turn)
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }
}
