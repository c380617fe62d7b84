//! The body log: what clients sent and were answered, kept by a collector outside the replicas (payloads.md §6, §7). Off
//! unless a collector is named; then nothing is captured and nothing runs. Bodies go from a replica to the collector and
//! nowhere else.
//!
//! A request is never slowed: a record is filled without waiting, handed over when the request has ended, and dropped (and
//! counted) when the buffer that all records share is full.
//!
//! | module | is |
//! | --- | --- |
//! | [`settings`] | the replica's flags |
//! | `record` | one request as it is captured |
//! | `capture` | a response's beginning and end |
//! | `redact` | what of a request's head is never kept |
//! | `meta` | what a record says beside the bodies |
//! | `ship` | the task that sends them |
//! | [`collector`] | the other end, a process of its own |
//! | `frame` | one record on the wire; both sides use it |
//! | `zone` | times with their offset; both sides use it |

mod capture;
pub mod collector;
pub(crate) mod frame;
mod meta;
pub(crate) mod record;
mod redact;
pub mod settings;
pub(crate) mod ship;
pub(crate) mod zone;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use router_policy::payload_count::PayloadCount;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::record::Finished;
use self::settings::Settings;
use crate::budget::{Budget, Share};
use crate::metrics::{BodyLogGauges, RouteMetrics};

/// Of drops for one cause, each one after this many is in the log.
const WARN_EVERY: u64 = 1000;

/// Why a record goes no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// No room for it.
    Full,
    /// The sender has ended: the replica stops.
    Ended,
}

/// Takes the records of a replica.
#[derive(Debug)]
pub(crate) struct BodyLog {
    budget: Arc<Budget>,
    /// Bounded by the budget, of which each record in it holds a share.
    queue: UnboundedSender<Box<Finished>>,
    full: AtomicU64,
    ended: AtomicU64,
}

impl BodyLog {
    /// The log, and what its sender ([`ship::ship`]) reads.
    pub(crate) fn new(settings: &Settings, gauges: &BodyLogGauges) -> (Self, UnboundedReceiver<Box<Finished>>) {
        let (queue, records) = unbounded_channel();
        let budget = Arc::new(Budget::new(settings.buffer, gauges.buffered.clone()));
        (Self { budget, queue, full: AtomicU64::new(0), ended: AtomicU64::new(0) }, records)
    }

    /// Of `pct` of 100 requests (payloads.md §6): whether this is one. Below 1 none is, as the lots are whole numbers.
    fn is_sampled(pct: f64, draw: impl FnOnce() -> u8) -> bool {
        pct >= 100.0 || (pct > 0.0 && f64::from(draw()) <= pct)
    }

    fn share(&self) -> Share {
        Share::new(Arc::clone(&self.budget))
    }

    fn take(&self, finished: Box<Finished>) {
        let counts = Arc::clone(&finished.metrics);
        if self.queue.send(finished).is_err() {
            return self.drop_one(&counts, Cause::Ended);
        }
        let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        counts.payload.body_log_written(now);
    }

    fn drop_one(&self, metrics: &RouteMetrics, cause: Cause) {
        metrics.payload.add(PayloadCount::BodyLogDropped, 1);
        let (count, text) = match cause {
            Cause::Full => (&self.full, "body log: the buffer is full; records are dropped"),
            Cause::Ended => (&self.ended, "body log: its sender has ended; records are dropped"),
        };
        let before = count.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(WARN_EVERY) {
            tracing::warn!(dropped = before + 1, "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_6_the_lot_decides_between_none_and_all() {
        let sampled = |pct| (1..=100).filter(|&lot| BodyLog::is_sampled(pct, || lot)).count();
        for (pct, of_100) in
            [(-1.0, 0), (0.0, 0), (0.9, 0), (1.0, 1), (50.0, 50), (99.0, 99), (100.0, 100), (250.0, 100)]
        {
            assert_eq!(sampled(pct), of_100, "{pct}");
        }
        let never = || -> u8 { panic!("no lot is drawn") };
        assert!(!BodyLog::is_sampled(0.0, never) && BodyLog::is_sampled(100.0, never));
    }
}
