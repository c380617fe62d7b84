//! Metrics for Prometheus: what passed (payloads.md §8.1), and how the collector itself fares. They begin at 0 with the
//! process, as Prometheus expects of a restart, so nothing about them is stored.
//!
//! Models and backends come out of bodies and from senders: only so many are told apart, the rest is `other`.

mod labels;

use std::sync::atomic::AtomicI64;

use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::details::Details;
use labels::{Base, FinishReason, Known, Prompted, Requests, Streamed};

/// Seconds: from a cached token to an answer of an hour.
const RT_BUCKETS: [f64; 17] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// Seconds to the first token: from a warm cache to a long prefill behind a queue.
const TTFT_BUCKETS: [f64; 18] =
    [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, 180.0, 300.0, 600.0];
/// Tokens per second of one answer: from a crowded backend to small models that guess tokens ahead.
const TPS_BUCKETS: [f64; 18] =
    [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 70.0, 100.0, 150.0, 250.0, 500.0, 1000.0, 2000.0, 5000.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Everything that the collector counts.
pub(crate) struct CollectorMetrics {
    registry: Registry,
    known: parking_lot::Mutex<Known>,
    requests: Family<Requests, Counter>,
    tokens: [Family<Base, Counter>; 5],
    bytes: [Family<Base, Counter>; 2],
    finish_reasons: Family<FinishReason, Counter>,
    rt: Histograms<Streamed>,
    ttft: Histograms<Prompted>,
    output: Histograms<Prompted>,
    overall: Histograms<Base>,
    decode: Histograms<Base>,
    lines: Counter,
    last_ts: Gauge<f64, std::sync::atomic::AtomicU64>,
    offset: Gauge<i64, AtomicI64>,
    recoveries: Counter,
    connections: Gauge<i64, AtomicI64>,
    frames: Counter,
    bad_frames: Family<Reason, Counter>,
    lost_records: Counter,
    accept_errors: Counter,
    write_errors: Counter,
    writable: Gauge<i64, AtomicI64>,
    housekeeping_errors: Counter,
}

/// Why a frame was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

impl Default for CollectorMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl CollectorMetrics {
    pub(crate) fn new() -> Self {
        let rt: fn() -> Histogram = || Histogram::new(RT_BUCKETS);
        let ttft: fn() -> Histogram = || Histogram::new(TTFT_BUCKETS);
        let tps: fn() -> Histogram = || Histogram::new(TPS_BUCKETS);
        let mut metrics = Self {
            registry: Registry::default(),
            known: parking_lot::Mutex::default(),
            requests: Family::default(),
            tokens: Default::default(),
            bytes: Default::default(),
            finish_reasons: Family::default(),
            rt: Family::new_with_constructor(rt),
            ttft: Family::new_with_constructor(ttft),
            output: Family::new_with_constructor(tps),
            overall: Family::new_with_constructor(tps),
            decode: Family::new_with_constructor(tps),
            lines: Counter::default(),
            last_ts: Gauge::default(),
            offset: Gauge::default(),
            recoveries: Counter::default(),
            connections: Gauge::default(),
            frames: Counter::default(),
            bad_frames: Family::default(),
            lost_records: Counter::default(),
            accept_errors: Counter::default(),
            write_errors: Counter::default(),
            writable: Gauge::default(),
            housekeeping_errors: Counter::default(),
        };
        metrics.writable.set(1);
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("bodylog_requests", "Requests kept", self.requests.clone());
        for (name, family) in ["prompt", "completion", "cached", "reasoning", "total"].iter().zip(&self.tokens) {
            r.register(format!("bodylog_{name}_tokens"), format!("Tokens by usage: {name}"), family.clone());
        }
        let [request, response] = &self.bytes;
        r.register("bodylog_req_bytes", "Bytes of the stored request bodies", request.clone());
        r.register("bodylog_resp_bytes", "Bytes that backends sent", response.clone());
        let help = "Ends of answers; none: status 200 without one, as a cut stream has";
        r.register("bodylog_finish_reason", help, self.finish_reasons.clone());
        r.register("bodylog_rt_seconds", "Time of whole requests; classic buckets up to 3600 s", self.rt.clone());
        let help = "Time to the first chunk of a stream; classic buckets up to 600 s";
        r.register("bodylog_ttft_seconds", help, self.ttft.clone());
        let help =
            "Answer tokens per second of the whole request, from 16 tokens and 0.5 s on; classic buckets up to 5000";
        r.register("bodylog_output_tok_per_second", help, self.output.clone());
        let help = "Answer tokens per second of the whole request, of 2xx; classic buckets up to 5000";
        r.register("bodylog_overall_output_tok_per_second", help, self.overall.clone());
        let help = "Answer tokens per second from the first chunk to the last, of 2xx; classic buckets up to 5000";
        r.register("bodylog_decode_output_tok_per_second", help, self.decode.clone());
        r.register("bodylog_exporter_lines", "Requests counted", self.lines.clone());
        let help = "End of the request that was counted last, in Unix seconds";
        r.register("bodylog_exporter_last_ts_seconds", help, self.last_ts.clone());
        let help = "Length of the details file that is being written";
        r.register("bodylog_exporter_offset_bytes", help, self.offset.clone());
        let help = "Files whose half last line, as a kill leaves it, was cut off";
        r.register("bodylog_exporter_recovery", help, self.recoveries.clone());
        r.register("bodylog_collector_connections", "Replicas' connections", self.connections.clone());
        r.register("bodylog_collector_frames", "Frames received", self.frames.clone());
        r.register("bodylog_collector_bad_frames", "Frames that were no records", self.bad_frames.clone());
        let help = "Records that were given up, because the collector stopped before they could be written";
        r.register("bodylog_collector_lost_records", help, self.lost_records.clone());
        let help = "Failed tries to accept a replica, as for want of file descriptors; it waits meanwhile";
        r.register("bodylog_collector_accept_errors", help, self.accept_errors.clone());
        let help = "Failed writes, each try; the senders of records wait meanwhile";
        r.register("bodylog_collector_write_errors", help, self.write_errors.clone());
        r.register("bodylog_collector_writable", "Whether the last write worked", self.writable.clone());
        let help = "Past days that could not be packed or removed, at each try";
        r.register("bodylog_collector_housekeeping_errors", help, self.housekeeping_errors.clone());
    }

    /// Counts a request that was kept.
    pub(crate) fn observe(&self, details: &Details, end: Timestamp) {
        let d = details;
        // What clients ask for may be anything; only what answers name is told apart.
        let model = if d.model_is_asked { "" } else { d.model.as_str() };
        let base = self.known.lock().base(&d.route, &d.backend, model);
        let stream = d.stream.map_or("unknown", |stream| if stream { "true" } else { "false" });
        let status_class = match d.status / 100 {
            2 => "2xx",
            4 => "4xx",
            5 => "5xx",
            _ => "other",
        };
        self.requests.get_or_create_owned(&Requests { base: base.clone(), status_class, stream }).inc();
        let tokens = [d.prompt_tokens, d.completion_tokens, d.cached_tokens, d.reasoning_tokens, d.total_tokens];
        let sums = self.tokens.iter().zip(tokens).chain(self.bytes.iter().zip([d.req_bytes, d.resp_bytes]));
        for (family, more) in sums.filter(|(_, more)| *more > 0) {
            family.get_or_create_owned(&base).inc_by(more);
        }
        let reason = if d.finish_reason.is_empty() && d.status == 200 { "none" } else { d.finish_reason.as_str() };
        if !reason.is_empty() {
            let finish_reason = self.known.lock().finish_reason(reason);
            self.finish_reasons.get_or_create_owned(&FinishReason { base: base.clone(), finish_reason }).inc();
        }
        self.observe_times(d, &base, stream);
        self.lines.inc();
        self.last_ts.set(end.as_duration().as_secs_f64());
    }

    fn observe_times(&self, d: &Details, base: &Base, stream: &'static str) {
        #[expect(clippy::cast_precision_loss, reason = "tokens are far below 2^52")]
        let completion = d.completion_tokens as f64;
        let prompted = || Prompted { base: base.clone(), prompt_bucket: labels::prompt_bucket(d.prompt_tokens) };
        let is_success = d.status / 100 == 2 && d.completion_tokens > 0;
        if d.rt > 0.0 {
            self.rt.get_or_create_owned(&Streamed { base: base.clone(), stream }).observe(d.rt);
        }
        if d.frt > 0.0 && d.stream == Some(true) {
            self.ttft.get_or_create_owned(&prompted()).observe(d.frt);
        }
        if d.completion_tokens >= 16 && d.rt >= 0.5 {
            self.output.get_or_create_owned(&prompted()).observe(completion / d.rt);
        }
        if is_success && d.rt > 0.0 {
            self.overall.get_or_create_owned(base).observe(completion / d.rt);
        }
        let decode = d.lct - d.frt;
        if is_success && decode > 0.3 {
            self.decode.get_or_create_owned(base).observe(completion / decode);
        }
    }

    /// A replica connected. The connection counts as long as the value lives.
    pub(crate) fn connected(&self) -> Connected {
        self.connections.inc();
        Connected(self.connections.clone())
    }

    pub(crate) fn frame(&self) {
        self.frames.inc();
    }

    /// A frame or what was to be one; `reason` is one of a few words.
    pub(crate) fn bad_frame(&self, reason: &'static str) {
        self.bad_frames.get_or_create_owned(&Reason { reason }).inc();
    }

    /// How long the details file is now, in bytes.
    pub(crate) fn set_offset(&self, bytes: u64) {
        self.offset.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Half a line was cut off a file.
    pub(crate) fn recovered(&self) {
        self.recoveries.inc();
    }

    pub(crate) fn write_failed(&self) {
        self.write_errors.inc();
    }

    /// A record is in no file, and never will be.
    pub(crate) fn lost(&self) {
        self.lost_records.inc();
    }

    /// How many records were lost.
    pub(crate) fn lost_records(&self) -> u64 {
        self.lost_records.get()
    }

    /// A connection could not be accepted.
    pub(crate) fn accept_failed(&self) {
        self.accept_errors.inc();
    }

    /// Whether the last write worked.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable.get() != 0
    }

    pub(crate) fn set_writable(&self, is_writable: bool) {
        self.writable.set(is_writable.into());
    }

    pub(crate) fn housekeeping_failed(&self, count: usize) {
        self.housekeeping_errors.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// The exposition text.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String can't fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

/// One open connection.
pub(crate) struct Connected(Gauge<i64, AtomicI64>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests;
