//! What an answer says about its backend as it passes: when it began, and what its engine counted (limits.md §3, §4).
//! Looks at 2xx answers only; costs a chunk the copy of its last bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use router_policy::body::usage::{Tail, Usage};
use router_policy::flow::tokens::sample;
use router_policy::flow::{AnswerTimes, Sample, TpsBasis};
use router_policy::option::RouteOptions;

use super::headers::{is_kind, is_plain};
use crate::coordinate::Lease;
use crate::metrics::BackendMetrics;

/// Follows one answer.
#[derive(Debug)]
pub(crate) struct Sampler {
    metrics: Arc<BackendMetrics>,
    rule: Rule,
    is_stream: bool,
    seen: Seen,
}

/// What is kept of the answer's last bytes.
#[derive(Debug)]
enum Seen {
    /// No count can be read from it.
    Unread,
    Nothing,
    /// Most answers that are no streams come in one piece: it is only held, not copied.
    One(Bytes),
    More(Tail),
}

/// Which answers count for throughput.
#[derive(Debug, Clone, Copy)]
struct Rule {
    min_tokens: u32,
    min_decode: Duration,
    basis: TpsBasis,
}

/// An answer that is whole.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) usage: Usage,
    sampler: Sampler,
}

impl Sampler {
    /// `None` when the answer is no sample of anything.
    pub(crate) fn of<B>(answer: &Response<B>, options: &RouteOptions, metrics: &Arc<BackendMetrics>) -> Option<Self> {
        if !answer.status().is_success() {
            return None;
        }
        let is_stream = is_kind(answer.headers(), b"event-stream");
        let is_text = is_stream || is_kind(answer.headers(), b"json");
        let flow = &options.flow;
        let rule = Rule { min_tokens: flow.tps_min_tokens, min_decode: flow.tps_min_decode, basis: flow.tps_basis };
        let seen = if is_text && is_plain(answer.headers()) { Seen::Nothing } else { Seen::Unread };
        Some(Self { metrics: Arc::clone(metrics), rule, is_stream, seen })
    }

    /// The body's first byte is here.
    pub(crate) fn begins(&self, ttft: Duration, lease: Option<&Lease>) {
        if self.is_stream {
            self.metrics.ttft(ttft);
            if let Some(lease) = lease {
                lease.has_begun_to_stream(ttft);
            }
        }
    }

    /// A chunk passes.
    pub(crate) fn saw(&mut self, chunk: &Bytes) {
        match &mut self.seen {
            Seen::Unread => {}
            Seen::Nothing => self.seen = Seen::One(chunk.clone()),
            Seen::One(first) => {
                let mut tail = Tail::default();
                tail.push(first);
                tail.push(chunk);
                self.seen = Seen::More(tail);
            }
            Seen::More(tail) => tail.push(chunk),
        }
    }

    /// All has passed.
    pub(crate) fn end(mut self) -> Ended {
        let usage = match std::mem::replace(&mut self.seen, Seen::Unread) {
            Seen::Unread | Seen::Nothing => Usage::default(),
            Seen::One(chunk) => Usage::read_end(&chunk),
            Seen::More(tail) => tail.usage(),
        };
        Ended { usage, sampler: self }
    }
}

impl Ended {
    /// Counts it. An answer that came whole has no decode phase of its own.
    pub(crate) fn count(&self, ttft: Duration, decode: Duration) {
        let Sampler { metrics, rule, is_stream, .. } = &self.sampler;
        metrics.used(self.usage);
        let times = AnswerTimes {
            tokens: self.usage.completion,
            total: ttft + decode,
            ttft: if *is_stream { ttft } else { Duration::ZERO },
        };
        if let Sample::Tps(tps) = sample(&times, rule.min_tokens, rule.min_decode, rule.basis) {
            metrics.tokens_per_second(tps);
        }
    }
}
