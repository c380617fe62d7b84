//! One task that makes binding writes durable: all that wait go into one transaction.
//!
//! Promises. Writes reach the database in the order of [`Committer::submit`]; of several queued writes of one session only
//! the newest is written, in the place of the oldest. `done` runs exactly once, on the committer's task and never inside
//! `submit`, so the caller may hold a lock: with [`Durability::Written`] in order of submission, or with
//! [`Durability::Provisional`] within [`TICK`] of its deadline when the database hasn't taken the write by then. Such a
//! write stays queued, is retried (100 ms, doubling to 1 s) and written when the database returns.
//!
//! Bounds. Queued writes: one per session and [`QUEUE_LIMIT`] in all; past that, a write of a further session is dropped
//! and counted, and its `done` gets `Provisional` at once. Waiters: each lives until its deadline at most, so those who
//! submit bound them. A write that the database refuses for good (it answers, with an error that a retry can't heal) is
//! found by halving the batch, given up and counted; those around it are written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::queue::{Queue, Submitted, Waiter};
use super::health::StoreHealth;
use super::{BindingWrite, Store, StoreError};

mod queue;

#[cfg(test)]
mod tests;

/// How many sessions may have a write queued (about 60 MB).
pub const QUEUE_LIMIT: usize = 1 << 18;
/// How many writes one transaction holds at most.
pub const BATCH_LIMIT: usize = 4096;
/// How late a deadline may be noticed.
pub const TICK: Duration = Duration::from_millis(10);
/// How long [`Committer::flush`] waits for the database.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(1);

/// How far a write got when its waiter was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It and all that was submitted before it is in the database.
    Written,
    /// Not yet: it stays queued unless it was dropped.
    Provisional,
}

/// Counts for the metrics; all but `queued_writes` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitterCounts {
    /// Writes that wait for the database now.
    pub queued_writes: u64,
    /// Transactions done.
    pub transactions: u64,
    /// Writes in them.
    pub written: u64,
    /// Waiters told `Provisional`.
    pub provisional: u64,
    /// Writes lost: the queue was full, or the database refused them for good.
    pub dropped: u64,
}

#[derive(Default)]
struct Counters {
    committed: AtomicU64,
    transactions: AtomicU64,
    written: AtomicU64,
    provisional: AtomicU64,
    dropped: AtomicU64,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    counters: Counters,
    health: Arc<StoreHealth>,
}

/// The handle; clones speak to the same task.
#[derive(Clone)]
pub struct Committer {
    shared: Arc<Shared>,
}

impl Committer {
    /// Starts the task. At `shutdown` it tries once more to write what is queued, tells the remaining waiters
    /// `Provisional` and ends; what is submitted later is dropped with its `done` unrun. Call [`Self::flush`] before.
    pub fn start(
        store: Arc<dyn Store>,
        tracker: &TaskTracker,
        shutdown: CancellationToken,
        health: Arc<StoreHealth>,
    ) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(QUEUE_LIMIT)),
            wake: Notify::new(),
            counters: Counters::default(),
            health,
        });
        let task = Task { shared: Arc::clone(&shared), store, shutdown, batch_limit: BATCH_LIMIT };
        tracker.spawn(task.run());
        Self { shared }
    }

    /// Queues a write, or a barrier when `write` is `None`: its `done` runs once all that was submitted before is durable.
    /// Never blocks. Returns the submission's sequence number: 1, 2, 3, …
    pub fn submit(
        &self,
        write: Option<BindingWrite>,
        deadline: Instant,
        done: impl FnOnce(Durability) + Send + 'static,
    ) -> u64 {
        let Submitted { sequence, was_dropped } = self.shared.queue.lock().submit(write, deadline, Box::new(done));
        if was_dropped {
            self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake.notify_one();
        sequence
    }

    /// Everything up to this sequence number is durable (or counted as dropped).
    pub fn committed(&self) -> u64 {
        self.shared.counters.committed.load(Ordering::Acquire)
    }

    /// Waits until all that was submitted before is durable; `Provisional` when the database hasn't taken it within
    /// [`FLUSH_TIMEOUT`], or after shutdown.
    pub async fn flush(&self) -> Durability {
        let (tell, told) = oneshot::channel();
        self.submit(None, Instant::now() + FLUSH_TIMEOUT, move |durability| {
            // The one who asked may have gone.
            let _ = tell.send(durability);
        });
        told.await.unwrap_or(Durability::Provisional)
    }

    /// What happened so far.
    pub fn counts(&self) -> CommitterCounts {
        let counters = &self.shared.counters;
        let queued = self.shared.queue.lock().queued_writes();
        CommitterCounts {
            queued_writes: u64::try_from(queued).unwrap_or(u64::MAX),
            transactions: counters.transactions.load(Ordering::Relaxed),
            written: counters.written.load(Ordering::Relaxed),
            provisional: counters.provisional.load(Ordering::Relaxed),
            dropped: counters.dropped.load(Ordering::Relaxed),
        }
    }
}

struct Task {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
    /// Shrinks while a refused write is searched.
    batch_limit: usize,
}

impl Task {
    async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let batch = self.shared.queue.lock().take_batch(self.batch_limit);
            self.expire();
            let is_last_try = self.shutdown.is_cancelled();
            let outcome = if batch.is_empty() { Ok(()) } else { self.attempt(&batch).await };
            match outcome {
                Ok(()) => {
                    backoff = FIRST_BACKOFF;
                    self.settle(batch.len());
                }
                Err(error) if error.is_transient() => {
                    self.shared.queue.lock().put_back(batch);
                    if is_last_try {
                        break;
                    }
                    self.pause(backoff).await;
                    backoff = (backoff * 2).min(LAST_BACKOFF);
                    continue;
                }
                Err(error) => self.narrow(batch, &error),
            }
            if self.shared.queue.lock().is_idle() {
                if is_last_try {
                    break;
                }
                tokio::select! {
                    () = self.shared.wake.notified() => {}
                    () = self.shutdown.cancelled() => {}
                }
            }
        }
        let waiters = self.shared.queue.lock().close();
        self.tell_provisional(waiters);
    }

    /// One transaction; deadlines are kept while it lasts.
    async fn attempt(&self, batch: &[BindingWrite]) -> Result<(), StoreError> {
        let saving = self.store.save_bindings(batch);
        tokio::pin!(saving);
        let outcome = loop {
            tokio::select! {
                outcome = &mut saving => break outcome,
                () = tokio::time::sleep(TICK) => self.expire(),
            }
        };
        self.shared.health.record(&outcome);
        outcome
    }

    /// The batch that was taken last is in the database.
    fn settle(&mut self, written: usize) {
        self.batch_limit = (self.batch_limit * 2).min(BATCH_LIMIT);
        let counters = &self.shared.counters;
        if written > 0 {
            counters.transactions.fetch_add(1, Ordering::Relaxed);
            counters.written.fetch_add(u64::try_from(written).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        let (committed, waiters) = self.shared.queue.lock().batch_done();
        counters.committed.store(committed, Ordering::Release);
        for waiter in waiters {
            (waiter.done)(Durability::Written);
        }
    }

    /// The database refuses something in this batch for good: search it by halves, give it up when it is alone.
    fn narrow(&mut self, batch: Vec<BindingWrite>, error: &StoreError) {
        if batch.len() > 1 {
            self.batch_limit = batch.len() / 2;
            self.shared.queue.lock().put_back(batch);
            return;
        }
        tracing::error!(%error, "binding refused by the database, not stored");
        self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
        let refused = self.shared.queue.lock().take_refused();
        self.tell_provisional(refused);
        self.settle(0);
    }

    fn expire(&self) {
        let expired = self.shared.queue.lock().expire(Instant::now());
        self.tell_provisional(expired);
    }

    fn tell_provisional(&self, waiters: Vec<Waiter>) {
        for waiter in waiters {
            self.shared.counters.provisional.fetch_add(1, Ordering::Relaxed);
            (waiter.done)(Durability::Provisional);
        }
    }

    async fn pause(&self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end && !self.shutdown.is_cancelled() {
            tokio::time::sleep(TICK).await;
            self.expire();
        }
    }
}
