//! Whether the database answers, as last seen by whoever used it.
//!
//! The committer, the journal and the ping loop report each answer and each failure; `/readyz`, the metrics and `status`
//! read the state. Only failures that a retry may heal ([`StoreError::is_transient`]) count: any other error is an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Store, StoreError};

/// How often a database that does not answer is asked again.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// What is known of the database.
#[derive(Debug, Clone)]
pub struct HealthState {
    /// Whether the last call was answered.
    pub is_ok: bool,
    /// Since when that is so.
    pub since: Instant,
    /// The newest failure, also after the database is back. Names no credentials.
    pub last_error: Option<Arc<str>>,
}

/// The state, shared by all who talk to the database.
#[derive(Debug)]
pub struct StoreHealth {
    is_ok: AtomicBool,
    outages: AtomicU64,
    state: watch::Sender<HealthState>,
}

impl StoreHealth {
    /// A database that has just answered.
    pub fn new() -> Arc<Self> {
        let state = HealthState { is_ok: true, since: Instant::now(), last_error: None };
        Arc::new(Self { is_ok: AtomicBool::new(true), outages: AtomicU64::new(0), state: watch::Sender::new(state) })
    }

    /// Whether the last call was answered; one atomic read.
    pub fn is_ok(&self) -> bool {
        self.is_ok.load(Ordering::Acquire)
    }

    /// How often the database has gone away.
    pub fn outages(&self) -> u64 {
        self.outages.load(Ordering::Relaxed)
    }

    /// All that is known.
    pub fn state(&self) -> HealthState {
        self.state.borrow().clone()
    }

    /// Tells of each change between answering and not answering.
    pub fn subscribe(&self) -> watch::Receiver<HealthState> {
        self.state.subscribe()
    }

    /// Records the outcome of any call.
    pub fn record<T>(&self, outcome: &Result<T, StoreError>) {
        match outcome {
            Err(error) if error.is_transient() => self.failed(error),
            Ok(_) | Err(_) => self.answered(),
        }
    }

    fn answered(&self) {
        if self.is_ok() {
            return;
        }
        let changed = self.state.send_if_modified(|state| {
            let changes = !state.is_ok;
            if changes {
                state.is_ok = true;
                state.since = Instant::now();
                self.is_ok.store(true, Ordering::Release);
            }
            changes
        });
        if changed {
            tracing::info!("database answers again");
        }
    }

    fn failed(&self, error: &StoreError) {
        let text: Arc<str> = error.to_string().into();
        let changed = self.state.send_if_modified(|state| {
            let changes = state.is_ok;
            state.last_error = Some(Arc::clone(&text));
            if changes {
                state.is_ok = false;
                state.since = Instant::now();
                self.is_ok.store(false, Ordering::Release);
            }
            changes
        });
        if changed {
            self.outages.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(error = %text, "database does not answer");
        }
    }

    /// Starts the task that asks a database that went away, each 500 ms, whether it is back. It ends at shutdown only.
    pub fn start_pings(self: &Arc<Self>, store: Arc<dyn Store>, tracker: &TaskTracker, shutdown: CancellationToken) {
        let health = Arc::clone(self);
        tracker.spawn(async move {
            shutdown.run_until_cancelled(health.ping_while_down(store)).await;
        });
    }

    async fn ping_while_down(&self, store: Arc<dyn Store>) {
        let mut changes = self.subscribe();
        // The sender lives in `self`: waiting can't fail.
        while changes.wait_for(|state| !state.is_ok).await.is_ok() {
            tokio::time::sleep(PING_INTERVAL).await;
            self.record(&store.ping().await);
        }
    }
}
