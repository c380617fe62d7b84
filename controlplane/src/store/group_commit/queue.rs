//! What waits for the database: writes and waiters, apart, both in order of submission. No I/O.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use router_policy::ids::{Fingerprint, RouteName};
use tokio::time::Instant;

use super::Durability;
use crate::store::BindingWrite;

pub(super) type Done = Box<dyn FnOnce(Durability) + Send>;

pub(super) struct Waiter {
    sequence: u64,
    deadline: Instant,
    pub(super) done: Done,
}

pub(super) struct Submitted {
    pub(super) sequence: u64,
    pub(super) was_dropped: bool,
}

type Session = (Fingerprint, RouteName);

/// Invariants: `writes` is ordered by sequence; `index` names the one write of each session in `writes`; `batch` holds the
/// sequences of the writes that the task has taken, all below those in `writes`.
pub(super) struct Queue {
    limit: usize,
    last_sequence: u64,
    writes: VecDeque<(u64, BindingWrite)>,
    index: HashMap<Session, u64>,
    batch: Vec<u64>,
    waiters: VecDeque<Waiter>,
    earliest_deadline: Option<Instant>,
    is_closed: bool,
}

fn session(write: &BindingWrite) -> Session {
    match write {
        BindingWrite::Put(row) => (row.fingerprint, row.route.clone()),
        BindingWrite::Forget { route, fingerprint } => (*fingerprint, route.clone()),
    }
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            last_sequence: 0,
            writes: VecDeque::new(),
            index: HashMap::new(),
            batch: Vec::new(),
            waiters: VecDeque::new(),
            earliest_deadline: None,
            is_closed: false,
        }
    }

    pub(super) fn queued_writes(&self) -> usize {
        self.writes.len() + self.batch.len()
    }

    /// Nothing to write and no one to tell.
    pub(super) fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.waiters.is_empty()
    }

    pub(super) fn submit(&mut self, write: Option<BindingWrite>, deadline: Instant, done: Done) -> Submitted {
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        if self.is_closed {
            return Submitted { sequence, was_dropped: write.is_some() };
        }
        let was_dropped = write.is_some_and(|write| !self.push(sequence, write));
        // The task tells it at its next step, not this call: the caller may hold a lock that `done` wants.
        let deadline = if was_dropped { Instant::now() } else { deadline };
        self.earliest_deadline = Some(self.earliest_deadline.map_or(deadline, |earliest| earliest.min(deadline)));
        self.waiters.push_back(Waiter { sequence, deadline, done });
        Submitted { sequence, was_dropped }
    }

    /// `false` when the queue is full.
    fn push(&mut self, sequence: u64, write: BindingWrite) -> bool {
        let is_full = self.queued_writes() >= self.limit;
        match self.index.entry(session(&write)) {
            Entry::Occupied(queued) => {
                let place = self.writes.binary_search_by_key(queued.get(), |(sequence, _)| *sequence);
                if let Some((_, older)) = place.ok().and_then(|place| self.writes.get_mut(place)) {
                    *older = write;
                }
                true
            }
            Entry::Vacant(_) if is_full => false,
            Entry::Vacant(free) => {
                free.insert(sequence);
                self.writes.push_back((sequence, write));
                true
            }
        }
    }

    /// Hands the oldest writes to the task. Ended by [`Self::batch_done`] or [`Self::put_back`].
    pub(super) fn take_batch(&mut self, limit: usize) -> Vec<BindingWrite> {
        let count = self.writes.len().min(limit);
        let mut batch = Vec::with_capacity(count);
        self.batch.clear();
        for (sequence, write) in self.writes.drain(..count) {
            self.index.remove(&session(&write));
            self.batch.push(sequence);
            batch.push(write);
        }
        batch
    }

    /// The batch was not written: it is first in the queue again, except where a newer write of the session has come.
    pub(super) fn put_back(&mut self, batch: Vec<BindingWrite>) {
        let sequences = std::mem::take(&mut self.batch);
        for (sequence, write) in sequences.into_iter().zip(batch).rev() {
            let session = session(&write);
            let newer = self.index.get(&session).and_then(|newer| {
                let place = self.writes.binary_search_by_key(newer, |(sequence, _)| *sequence).ok()?;
                self.writes.remove(place)
            });
            self.index.insert(session, sequence);
            self.writes.push_front((sequence, newer.map_or(write, |(_, newer)| newer)));
        }
    }

    /// The batch is written: up to which sequence all is durable, and who waited for that.
    pub(super) fn batch_done(&mut self) -> (u64, Vec<Waiter>) {
        self.batch.clear();
        // What came since and has nothing to write before it is durable too.
        let durable = self.writes.front().map_or(self.last_sequence, |(next, _)| next - 1);
        let covered = self.waiters.partition_point(|waiter| waiter.sequence <= durable);
        let told = self.waiters.drain(..covered).collect();
        if self.waiters.is_empty() {
            self.earliest_deadline = None;
        }
        (durable, told)
    }

    /// The waiter of the write that the task holds alone, which is given up.
    pub(super) fn take_refused(&mut self) -> Vec<Waiter> {
        let refused = self.batch.first().copied();
        let place = self.waiters.iter().position(|waiter| Some(waiter.sequence) == refused);
        place.and_then(|place| self.waiters.remove(place)).into_iter().collect()
    }

    /// Those whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Waiter> {
        if self.earliest_deadline.is_none_or(|earliest| earliest > now) {
            return Vec::new();
        }
        let (expired, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.deadline <= now);
        self.waiters = waiting;
        self.earliest_deadline = self.waiters.iter().map(|waiter| waiter.deadline).min();
        expired.into()
    }

    /// No more submissions; returns all who still wait.
    pub(super) fn close(&mut self) -> Vec<Waiter> {
        self.is_closed = true;
        std::mem::take(&mut self.waiters).into()
    }
}
