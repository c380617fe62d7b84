//! The way down, in numbered phases. No phase waits for a client beyond the grace period.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accept::Signals;
use crate::request::handle::Proxy;

const REPORT_EVERY: Duration = Duration::from_secs(5);
/// For tasks that have been told to end at once.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// What a shutdown ends, in order.
pub(crate) struct Drain {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) signals: Signals,
    /// Client connections, and HTTP/2 streams.
    pub(crate) connections: TaskTracker,
    /// The body log's sender.
    pub(crate) body_log: Stage,
    /// Ends the control plane link.
    pub(crate) link_stop: CancellationToken,
    pub(crate) link: TaskTracker,
    /// Ends everything else.
    pub(crate) background_stop: CancellationToken,
    pub(crate) background: TaskTracker,
}

/// Tasks that end together.
pub(crate) struct Stage {
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Stage {
    async fn end(&self, what: &'static str) {
        self.stop.cancel();
        self.tasks.close();
        wait(&self.tasks, what).await;
    }
}

impl Drain {
    pub(crate) async fn run(self) {
        let config = &self.proxy.config;
        // 1. Not ready any more, still accepting: load balancers look away first.
        self.proxy.readiness.start_draining();
        if !config.drain_delay.is_zero() {
            tracing::info!(delay = ?config.drain_delay, "draining: not ready any more, still accepting");
            tokio::time::sleep(config.drain_delay).await;
        }
        // 2. Stop accepting; idle connections close, HTTP/2 clients get GOAWAY.
        self.signals.stop.cancel();
        self.connections.close();
        // 3. Streams end, or the grace period does.
        if !self.finish_streams(config.grace).await {
            tracing::warn!(in_flight = self.in_flight(), "grace period over; ending what still runs");
            self.signals.kill.cancel();
            wait(&self.connections, "connections").await;
        }
        // 4. What was captured is sent or given up: then the link can tell the last counts.
        self.body_log.end("body log").await;
        // 5. Releases are flushed, Goodbye follows them, the link closes.
        self.link_stop.cancel();
        self.link.close();
        wait(&self.link, "control plane link").await;
        // 6. Everything else.
        self.background_stop.cancel();
        self.background.close();
        wait(&self.background, "background tasks").await;
    }

    async fn finish_streams(&self, grace: Duration) -> bool {
        let mut report = tokio::time::interval_at(Instant::now() + REPORT_EVERY, REPORT_EVERY);
        report.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let finished = async {
            loop {
                tokio::select! {
                    () = self.connections.wait() => break,
                    _ = report.tick() => tracing::info!(in_flight = self.in_flight(), "draining"),
                }
            }
        };
        tokio::time::timeout(grace, finished).await.is_ok()
    }

    fn in_flight(&self) -> i64 {
        self.proxy.metrics.in_flight.get()
    }
}

async fn wait(tasks: &TaskTracker, what: &'static str) {
    if tokio::time::timeout(LAST_WAIT, tasks.wait()).await.is_err() {
        tracing::warn!(what, left = tasks.len(), "did not end in time; left behind");
    }
}
