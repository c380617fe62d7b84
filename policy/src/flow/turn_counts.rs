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
    /// Requests that were refused by the concurrency, the TTFT or the TPS gate.
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

#[cfg(test)]
mod tests {
    use super::super::fixtures::{assert_close, at, prio_options};
    use super::*;

    const COLD: Bucket = Bucket { index: 0, is_known: true };
    const WARM: Bucket = Bucket { index: 3, is_known: true };
    const UNKNOWN: Bucket = Bucket { index: 5, is_known: false };

    #[test]
    fn limits_9_1_those_without_a_turn_are_counted_apart() {
        let mut counts = TurnCounts::default();
        counts.admitted(WARM);
        counts.refused(COLD);
        counts.over(COLD);
        counts.admitted(UNKNOWN);
        counts.tokens(WARM, 100, 40);
        counts.tokens(UNKNOWN, 10, 0);
        assert_eq!(counts.buckets().len(), 4);
        assert_eq!(counts.buckets()[0], BucketCounts { refused: 1, over: 1, ..BucketCounts::default() });
        assert_eq!(counts.buckets()[3].admitted, 1);
        assert_close(counts.buckets()[3].hit_rate().unwrap(), 0.4);
        assert_eq!(counts.buckets()[0].hit_rate(), None);
        assert_eq!(*counts.no_header(), BucketCounts { admitted: 1, prompt_tokens: 10, ..BucketCounts::default() });
    }

    #[test]
    fn a_stray_index_does_not_grow_the_state() {
        let mut counts = TurnCounts::default();
        counts.admitted(Bucket { index: usize::MAX, is_known: true });
        assert!(counts.buckets().is_empty());
    }

    /// A minute's warning, after this many requests with and without a turn.
    fn warning(counts: &mut TurnCounts, now: UnixMs, known: u32, unknown: u32) -> Option<f64> {
        for _ in 0..known {
            counts.admitted(WARM);
        }
        for at in 0..unknown {
            if at % 2 == 0 { counts.refused(UNKNOWN) } else { counts.admitted(UNKNOWN) }
        }
        assert_eq!(counts.take_warning(UnixMs(now.0 - 1), &prio_options()), None, "the minute is not over");
        counts.take_warning(now, &prio_options())
    }

    #[test]
    fn limits_9_1_a_warning_for_many_requests_without_a_turn() {
        let begun = || {
            let mut counts = TurnCounts::default();
            counts.take_warning(at(6000), &prio_options());
            counts
        };
        assert_close(warning(&mut begun(), at(6060), 15, 5).unwrap(), 0.25);
        assert_eq!(warning(&mut begun(), at(6060), 16, 4), None, "exactly the fraction");
        assert_eq!(warning(&mut begun(), at(6060), 0, 19), None, "too few to say");
        assert_eq!(warning(&mut begun(), at(6060), 0, 20), Some(1.0));
    }

    #[test]
    fn warnings_are_rare_and_each_minute_starts_afresh() {
        let mut counts = TurnCounts::default();
        counts.take_warning(at(6000), &prio_options());
        assert!(warning(&mut counts, at(6060), 0, 20).is_some());
        assert_eq!(warning(&mut counts, at(6120), 0, 20), None, "said of late");
        assert_eq!(warning(&mut counts, at(6660), 20, 0), None, "the last minute's don't count in this one");
        assert!(warning(&mut counts, at(6720), 0, 20).is_some());
    }
}
