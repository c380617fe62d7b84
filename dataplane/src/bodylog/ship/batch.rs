//! Frames on their way, and how much of the first one is written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use router_policy::payload_count::PayloadCount;
use tokio::time::Instant;

use crate::bodylog::record::Finished;
use crate::bodylog::{frame, meta};
use crate::budget::Share;
use crate::metrics::RouteMetrics;

/// So many bytes are sent at once, in bytes.
const FULL: usize = 4096;
/// What is fewer waits this long for more.
const LINGER: Duration = Duration::from_secs(1);
/// A larger buffer is not kept for the next batch, in bytes.
const KEPT: usize = 256 << 10;

/// At most [`FULL`] bytes and one frame.
pub(super) struct Batch {
    zone: TimeZone,
    bytes: Vec<u8>,
    /// Those that are not written whole.
    frames: VecDeque<Waiting>,
    /// Where the first of them starts.
    start: usize,
    /// Up to here the bytes are written.
    written: usize,
    /// When the first of them came.
    since: Option<Instant>,
}

struct Waiting {
    /// Of its bytes.
    end: usize,
    metrics: Arc<RouteMetrics>,
    _share: Share,
}

impl Batch {
    pub(super) fn new(zone: TimeZone) -> Self {
        Self { zone, bytes: Vec::new(), frames: VecDeque::new(), start: 0, written: 0, since: None }
    }

    /// Makes a frame of it, or counts that it can't be one.
    pub(super) fn add(&mut self, record: Finished) {
        let meta = meta::text(&record, &self.zone);
        let marker = record.response.marker();
        let pieces = record.response.pieces(&marker);
        if let Err(error) = frame::encode(&mut self.bytes, &meta, &record.request, &pieces) {
            record.metrics.payload.add(PayloadCount::BodyLogErrors, 1);
            tracing::warn!(%error, "body log: a record can't be sent");
            return;
        }
        self.since.get_or_insert_with(Instant::now);
        self.frames.push_back(Waiting { end: self.bytes.len(), metrics: record.metrics, _share: record.share });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= FULL
    }

    /// When it has to be sent, if there is anything in it.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + LINGER)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_full() || self.due().is_some_and(|due| due <= now)
    }

    /// What is to be written next.
    pub(super) fn unwritten(&self) -> &[u8] {
        self.bytes.get(self.written..).unwrap_or_default()
    }

    /// So many bytes more are written. Whether a frame has become whole by that.
    pub(super) fn wrote(&mut self, count: usize) -> bool {
        self.written += count;
        let before = self.frames.len();
        while let Some(first) = self.frames.front().filter(|first| first.end <= self.written) {
            self.start = first.end;
            self.frames.pop_front();
        }
        self.clear_if_empty();
        self.frames.len() < before
    }

    /// The connection is gone: the frame that was being written starts anew.
    pub(super) fn rewind(&mut self) {
        self.written = self.start;
    }

    /// The first frame is given up.
    pub(super) fn skip(&mut self) {
        if let Some(first) = self.frames.pop_front() {
            first.metrics.payload.add(PayloadCount::BodyLogDropped, 1);
            self.start = first.end;
            self.written = first.end;
            self.clear_if_empty();
        }
    }

    /// All of them are; returns how many.
    pub(super) fn give_up(&mut self) -> usize {
        let lost = self.frames();
        while !self.is_empty() {
            self.skip();
        }
        lost
    }

    fn clear_if_empty(&mut self) {
        if self.frames.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
            self.start = 0;
            self.written = 0;
            self.since = None;
        }
    }
}
