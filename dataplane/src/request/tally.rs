//! Counts one request from its head to its end, on every way out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::metrics::{Metrics, RouteMetrics};

/// Lives as long as the request: in the handler, then in the response's body.
#[derive(Debug)]
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    pub(crate) route: Arc<RouteMetrics>,
    started: Instant,
    /// Time in the control plane's queue, over all tries.
    queued: Duration,
    /// `None` until there is an answer; a request that ends so is a client that left.
    status: Option<u16>,
}

/// What a client that left before its answer is counted as (conventions §1). Never sent.
pub(crate) const CLIENT_LEFT: u16 = 499;

impl Tally {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        metrics.in_flight.inc();
        let route = Arc::clone(&metrics.unrouted);
        Self { metrics, route, started: Instant::now(), queued: Duration::ZERO, status: None }
    }

    /// When the request came.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn answered(&mut self, status: http::StatusCode) {
        self.status = Some(status.as_u16());
    }

    pub(crate) fn queued(&mut self, queued: Duration) {
        self.queued += queued;
    }

    /// The answer's first body byte is here. Returns the time that it took, queue time left out (rulings §3).
    pub(crate) fn first_byte(&self) -> Duration {
        let ttft = self.started.elapsed().saturating_sub(self.queued);
        self.route.first_byte(ttft);
        ttft
    }

    /// The client left in the middle of the answer.
    pub(crate) fn client_left(&self) {
        self.route.client_disconnects.inc();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        if self.status.is_none() {
            self.client_left();
        }
        self.route.count(self.status.unwrap_or(CLIENT_LEFT), self.started.elapsed());
    }
}
