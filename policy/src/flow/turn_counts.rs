//! What became of the requests of each bucket, and how many named no turn (limits.md §9.1, §9.6).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::UnixMs;
use super::turn::{Bucket, MAX_ROWS, PrioOptions};

/// Fewer requests in a minute are no ground for a warning.
const MIN_REQUESTS: u32 = 20;

const MINUTE: Duration = Duration::from_secs(60);

/// The shortest time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(600);

/// The counters of one bucket, since the pool began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketCounts {
    /// Requests that got a backend.
    pub admitted: u64,
    /// Requests that were refused, by whichever gate.
    pub refused: u64,
    /// Requests that found their share of the pool full; some of them may have waited and got in.
    pub over: u64,
    /// Prompt tokens of answers that told.
    pub prompt_tokens: u64,
    /// Those of them that the engine had in its cache.
    pub cached_tokens: u64,
}

impl BucketCounts {
    /// Cached tokens as a part of the prompt tokens; `None` without any.
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    pub fn hit_rate(&self) -> Option<f64> {
        (self.prompt_tokens > 0).then(|| self.cached_tokens as f64 / self.prompt_tokens as f64)
    }
}

/// The counters of all buckets. Requests without session priority are not counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnCounts {
    buckets: Vec<BucketCounts>,
    no_header: BucketCounts,
    minute: Minute,
    last_warning: Option<UnixMs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Minute {
    id: u64,
    requests: u32,
    no_header: u32,
}

impl TurnCounts {
    /// By bucket, the coldest first; a bucket that no request was in may be missing at the end.
    pub fn buckets(&self) -> &[BucketCounts] {
        &self.buckets
    }

    /// Of the requests that named no turn.
    pub fn no_header(&self) -> &BucketCounts {
        &self.no_header
    }

    pub(super) fn admitted(&mut self, bucket: Bucket) {
        self.count_request(bucket);
        if let Some(counts) = self.of(bucket) {
            counts.admitted = counts.admitted.saturating_add(1);
        }
    }

    pub(super) fn refused(&mut self, bucket: Bucket) {
        self.count_request(bucket);
        if let Some(counts) = self.of(bucket) {
            counts.refused = counts.refused.saturating_add(1);
        }
    }

    pub(super) fn over(&mut self, bucket: Bucket) {
        if let Some(counts) = self.of(bucket) {
            counts.over = counts.over.saturating_add(1);
        }
    }

    pub(super) fn tokens(&mut self, bucket: Bucket, prompt: u32, cached: u32) {
        if let Some(counts) = self.of(bucket) {
            counts.prompt_tokens = counts.prompt_tokens.saturating_add(u64::from(prompt));
            counts.cached_tokens = counts.cached_tokens.saturating_add(u64::from(cached));
        }
    }

    /// Ends the minute if it is over. The fraction of its requests that named no turn, when that is above the limit and
    /// nothing was said of late.
    pub(super) fn take_warning(&mut self, now: UnixMs, options: &PrioOptions) -> Option<f64> {
        let id = now.window(MINUTE);
        if id == self.minute.id {
            return None;
        }
        let Minute { requests, no_header, .. } =
            std::mem::replace(&mut self.minute, Minute { id, ..Minute::default() });
        let is_quiet = self.last_warning.is_some_and(|last| !last.is_expired(now, WARN_EVERY));
        if is_quiet || requests < MIN_REQUESTS {
            return None;
        }
        let fraction = f64::from(no_header) / f64::from(requests);
        if fraction > options.warn_frac {
            self.last_warning = Some(now);
            return Some(fraction);
        }
        None
    }

    fn count_request(&mut self, bucket: Bucket) {
        self.minute.requests = self.minute.requests.saturating_add(1);
        if !bucket.is_known {
            self.minute.no_header = self.minute.no_header.saturating_add(1);
        }
    }

    fn of(&mut self, bucket: Bucket) -> Option<&mut BucketCounts> {
        if !bucket.is_known {
            return Some(&mut self.no_header);
        }
        // No table has more rows; a stray index must not grow the state.
        if bucket.index >= MAX_ROWS {
            return None;
        }
        if self.buckets.len() <= bucket.index {
            self.buckets.resize(bucket.index + 1, BucketCounts::default());
        }
        self.buckets.get_mut(bucket.index)
    }
}
