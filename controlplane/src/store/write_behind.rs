//! Writes that may lag: leases by 50 ms, last-used times and counters of bindings by 1 s (design.md §4).
//!
//! Promises. Each call but [`Journal::flush_now`] takes a short lock and returns. A lease that ends before its flush is
//! never written. A flush that fails, or that is dropped half way, loses nothing: its rows are merged with what came since
//! and written again, after 1 s.
//!
//! Bounds. Leases to write: those in flight. Leases to remove: those that the database holds; their ids are kept. Touched
//! sessions: [`TOUCH_LIMIT`]; past that, the times of further sessions are passed over until the next flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::ids::{Fingerprint, LeaseId, RouteName};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::pending::{LeaseChanges, Pending, PendingTouches};
use super::health::StoreHealth;
use super::{LeaseRow, Store, StoreError};

mod pending;

#[cfg(test)]
mod tests;

/// How often leases are written.
pub const LEASE_INTERVAL: Duration = Duration::from_millis(50);
/// How often uses of bindings are written.
pub const TOUCH_INTERVAL: Duration = Duration::from_secs(1);
/// How many sessions may have a use that isn't written yet (about 30 MB).
pub const TOUCH_LIMIT: usize = 1 << 18;

/// Uses in one statement, so that what an outage has gathered does not run into the limit of a call.
const TOUCHES_AT_ONCE: usize = 8192;
const RETRY: Duration = Duration::from_secs(1);

/// Takes what is to be written later.
pub struct Journal {
    pending: Mutex<Pending>,
    /// One flush at a time, so that rows reach the database in order.
    flushing: tokio::sync::Mutex<()>,
    store: Arc<dyn Store>,
    health: Arc<StoreHealth>,
    leases_written: AtomicU64,
}

impl Journal {
    /// Starts the task that flushes. At `shutdown` it ends without a flush: call [`Self::flush_now`] last.
    pub fn start(
        store: Arc<dyn Store>,
        tracker: &TaskTracker,
        shutdown: CancellationToken,
        health: Arc<StoreHealth>,
    ) -> Arc<Self> {
        let journal = Arc::new(Self {
            pending: Mutex::new(Pending::default()),
            flushing: tokio::sync::Mutex::new(()),
            store,
            health,
            leases_written: AtomicU64::new(0),
        });
        let task = Arc::clone(&journal);
        tracker.spawn(async move {
            shutdown.run_until_cancelled(task.flush_by_the_clock()).await;
        });
        journal
    }

    /// A lease was in the database at start. Only needed for one that may be granted again under its id.
    pub fn lease_loaded(&self, lease: LeaseId) {
        self.pending.lock().leases.loaded(lease);
    }

    /// A lease was granted, or changed: the newest row counts.
    pub fn lease_granted(&self, row: LeaseRow) {
        self.pending.lock().leases.granted(row);
    }

    /// A lease ended, also one that was in the database at start.
    pub fn lease_ended(&self, lease: LeaseId) {
        self.pending.lock().leases.ended(lease);
    }

    /// A lease was granted to a bound session.
    pub fn touched(&self, route: &RouteName, fingerprint: Fingerprint, at_unix_ms: u64) {
        self.pending.lock().touches.touched(route, fingerprint, at_unix_ms);
    }

    /// Writes all that is pending. After an error it is still pending.
    pub async fn flush_now(&self) -> Result<(), StoreError> {
        self.flush_leases().await?;
        self.flush_touches().await
    }

    /// How many leases lived long enough to be written.
    pub fn leases_written(&self) -> u64 {
        self.leases_written.load(Ordering::Relaxed)
    }

    async fn flush_by_the_clock(&self) {
        let mut leases = tokio::time::interval(LEASE_INTERVAL);
        let mut touches = tokio::time::interval_at(Instant::now() + TOUCH_INTERVAL, TOUCH_INTERVAL);
        leases.set_missed_tick_behavior(MissedTickBehavior::Delay);
        touches.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let outcome = tokio::select! {
                _ = leases.tick() => self.flush_leases().await,
                _ = touches.tick() => self.flush_touches().await,
            };
            if let Err(error) = outcome {
                // The rows are kept. An outage is told by the health.
                if !error.is_transient() {
                    tracing::error!(%error, "leases or uses of bindings refused by the database, kept for a retry");
                }
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn flush_leases(&self) -> Result<(), StoreError> {
        let _turn = self.flushing.lock().await;
        let taken = self.pending.lock().leases.take();
        if taken.is_empty() {
            return Ok(());
        }
        let (put, remove) = taken.rows();
        let flush = Flush { journal: self, leases: Some(taken), touches: None };
        let outcome = self.store.save_leases(&put, &remove).await;
        self.leases_written.fetch_add(flush.end(&outcome, put.len()), Ordering::Relaxed);
        outcome
    }

    async fn flush_touches(&self) -> Result<(), StoreError> {
        let _turn = self.flushing.lock().await;
        let taken = std::mem::take(&mut self.pending.lock().touches);
        if taken.is_empty() {
            return Ok(());
        }
        let rows = taken.rows();
        let flush = Flush { journal: self, leases: None, touches: Some(taken) };
        let mut outcome = Ok(());
        for some in rows.chunks(TOUCHES_AT_ONCE) {
            outcome = self.store.touch_bindings(some).await;
            if outcome.is_err() {
                break;
            }
        }
        flush.end(&outcome, 0);
        outcome
    }
}

/// What a flush has taken; given back unless the flush ends well.
struct Flush<'a> {
    journal: &'a Journal,
    leases: Option<LeaseChanges>,
    touches: Option<PendingTouches>,
}

impl Flush<'_> {
    fn end(mut self, outcome: &Result<(), StoreError>, rows: usize) -> u64 {
        self.journal.health.record(outcome);
        if outcome.is_err() {
            return 0;
        }
        self.leases = None;
        self.touches = None;
        u64::try_from(rows).unwrap_or(u64::MAX)
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        let mut pending = self.journal.pending.lock();
        if let Some(leases) = self.leases.take() {
            pending.leases.merge_older(leases);
        }
        if let Some(touches) = self.touches.take() {
            pending.touches.merge_older(touches);
        }
    }
}
