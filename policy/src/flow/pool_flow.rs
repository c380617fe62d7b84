//! Flow control of one pool: the signals, the limit and the gates together. The control plane stores it as JSON about
//! once a second, so a failover starts from where the pool was.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::aimd;
use super::cluster_avg::{ClusterAvg, ClusterAvgView};
use super::controller::{Answers, Controller, ControllerView};
use super::latency_gate::{Effect, Gate, GateState};
pub use super::latency_gate::{LatencyGate, LatencyRefusal, Verdict};
use super::metric::Metric;
use super::options::FlowOptions;
use super::signal::{Signal, SignalKind};
use super::time::UnixMs;
use super::tokens::{self, AnswerTimes, Sample, TpsBasis};
use super::turn::{Bucket, PrioOptions};
use super::turn_counts::TurnCounts;

/// One pool's state. What is missing from a stored one is as in a new one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flow {
    ttft: Signal,
    tps: Signal,
    /// Throughput by the basis that does not steer; only shown.
    other_tps: Signal,
    ttft_gate: GateState,
    tps_gate: GateState,
    controller: Controller,
    no_usage: NoUsage,
    turns: TurnCounts,
    trips: Trips,
    cluster_avg: ClusterAvg,
}

/// How often each gate would have tripped while the master switch was off (limits.md §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trips {
    /// The concurrency gate.
    pub concurrency: u64,
    /// The TTFT gate.
    pub ttft: u64,
    /// The TPS gate.
    pub tps: u64,
}

/// A metric and where it stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricView<'a> {
    /// The metric.
    pub metric: &'a Metric,
    /// Its EWMA, if it has one now.
    pub ewma: Option<f64>,
}

/// Answers without a token count, since `since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct NoUsage {
    count: u32,
    since: UnixMs,
}

/// What judging a request changes.
#[derive(Default)]
struct Effects {
    ttft: Effect,
    tps: Effect,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            ttft: Signal::new(SignalKind::Ttft),
            tps: Signal::new(SignalKind::Tps),
            other_tps: Signal::new(SignalKind::Tps),
            ttft_gate: GateState::default(),
            tps_gate: GateState::default(),
            controller: Controller::default(),
            no_usage: NoUsage::default(),
            turns: TurnCounts::default(),
            trips: Trips::default(),
            cluster_avg: ClusterAvg::default(),
        }
    }
}

impl Flow {
    /// How many requests the pool may hold (limits.md §6.1). `pool_limit` is of the healthy backends, `static_max` of
    /// all.
    pub fn limit(&self, now: UnixMs, options: &FlowOptions, pool_limit: u32, static_max: u32) -> f64 {
        let pool_limit = f64::from(pool_limit);
        let Some(adaptive) = options.active_adaptive() else {
            return pool_limit;
        };
        let value = self.controller.value(now).unwrap_or_else(|| aimd::bounds(adaptive, static_max).init);
        value.min(pool_limit)
    }

    /// Notes how many were in flight when a request was judged, admitted or not.
    pub fn judged(&mut self, now: UnixMs, options: &FlowOptions, in_flight: u32) {
        self.follow_adaptive(now, options);
        if let Some(lasts) = pressure_lasts(options) {
            self.controller.judged(now, lasts, in_flight);
        }
    }

    /// Notes that a request of this bucket found the pool, or its share of it, full. With the master switch off it got
    /// in all the same.
    pub fn over(&mut self, now: UnixMs, options: &FlowOptions, bucket: Option<Bucket>) {
        if let Some(lasts) = pressure_lasts(options) {
            self.controller.over(now, lasts);
        }
        if !options.is_enforced {
            self.trips.concurrency = self.trips.concurrency.saturating_add(1);
        }
        if let Some(bucket) = bucket {
            self.turns.over(bucket);
        }
    }

    /// Judges a request by the TTFT gate and then, in a pool that is not adaptive, by the TPS gate. Takes the probe
    /// slot that it passes by. With the master switch off it only counts what would have tripped.
    pub fn judge(&mut self, now: UnixMs, options: &FlowOptions, bucket: Option<Bucket>) -> Verdict {
        let (verdict, effects) = self.decide(now, options, bucket);
        if options.is_enforced {
            self.release_hold(now, options);
            let prio = options.prio.as_ref();
            self.ttft_gate.apply(now, &options.ttft, prio, effects.ttft);
            self.tps_gate.apply(now, &options.tps, prio, effects.tps);
        } else {
            self.trips.ttft = self.trips.ttft.saturating_add(u64::from(verdict.would_trip_ttft));
            self.trips.tps = self.trips.tps.saturating_add(u64::from(verdict.would_trip_tps));
        }
        verdict
    }

    /// What [`Self::judge`] would say; nothing changes.
    pub fn peek(&self, now: UnixMs, options: &FlowOptions, bucket: Option<Bucket>) -> Verdict {
        self.decide(now, options, bucket).0
    }

    fn decide(&self, now: UnixMs, options: &FlowOptions, bucket: Option<Bucket>) -> (Verdict, Effects) {
        let graded = options.prio.as_ref().zip(bucket);
        let mut verdict = Verdict::default();
        let mut effects = Effects::default();
        if options.ttft_on && options.ttft_429 {
            let outcome = self.ttft_gate(options).judge(now, graded);
            verdict.would_trip_ttft = outcome.is_tripped;
            verdict.refusal = outcome.refusal;
            effects.ttft = outcome.effect;
        }
        if options.tps_on && options.adaptive.is_none() {
            let outcome = self.tps_gate(options).judge(now, graded);
            verdict.would_trip_tps = outcome.is_tripped;
            // A request that the first gate refused never reaches the second, and takes none of its slots.
            if verdict.refusal.is_none() {
                verdict.refusal = outcome.refusal;
                effects.tps = outcome.effect;
            }
        }
        if !options.is_enforced {
            verdict.refusal = None;
        }
        (verdict, effects)
    }

    /// Takes the time to first token of a successful stream in, in milliseconds, without the time in the queue.
    pub fn record_ttft(&mut self, now: UnixMs, options: &FlowOptions, ms: f64) {
        if !options.ttft_on {
            return;
        }
        // While the EWMA of before can still be seen: it may have gone below the release line or expired, with no
        // request since to notice.
        self.release_hold(now, options);
        self.ttft.record(now, ms, &options.ttft, &options.ttft_metrics);
    }

    /// Takes a successful answer in, streamed or not.
    pub fn record_answer(&mut self, now: UnixMs, options: &FlowOptions, answer: &AnswerTimes) {
        if !options.tps_on {
            return;
        }
        self.follow_adaptive(now, options);
        let other = match options.tps_basis {
            TpsBasis::Total => TpsBasis::Decode,
            TpsBasis::Decode => TpsBasis::Total,
        };
        if let Sample::Tps(value) = tokens::sample(answer, options.tps_min_tokens, options.tps_min_decode, other) {
            self.other_tps.record(now, value, &options.tps, &[Metric::tps_default(None)]);
        }
        match tokens::sample(answer, options.tps_min_tokens, options.tps_min_decode, options.tps_basis) {
            Sample::Tps(value) => self.tps.record(now, value, &options.tps, &options.tps_metrics),
            Sample::NoUsage => {
                let count = self.no_usage(now, options);
                let since = if count == 0 { now } else { self.no_usage.since };
                self.no_usage = NoUsage { count: count.saturating_add(1), since };
            }
            Sample::TooSmall => {}
        }
    }

    /// When the next step of the adaptive limit is due; `None` while the pool is not adaptive, or before its first
    /// request.
    pub fn next_step(&self, options: &FlowOptions) -> Option<UnixMs> {
        let adaptive = options.active_adaptive()?;
        self.controller.next_step(adaptive.interval)
    }

    /// Makes the step of the adaptive limit if one is due: never more than one, however late. `true` when the limit in
    /// force changed.
    pub fn step(&mut self, now: UnixMs, options: &FlowOptions, static_max: u32) -> bool {
        self.follow_adaptive(now, options);
        let Some(adaptive) = options.active_adaptive() else {
            return false;
        };
        if !self.controller.is_due(now, adaptive.interval) {
            return false;
        }
        // Without throughput nothing is known: no step, and refusals wait for the next.
        let is_alive =
            options.tps_metrics.first().is_some_and(|first| self.tps.ewma(&first.name, now, &options.tps).is_some());
        if !is_alive || static_max == 0 {
            return false;
        }
        let answers = self.answers(now, options, adaptive.use_ttft);
        self.controller.step(now, adaptive, &aimd::bounds(adaptive, static_max), answers)
    }

    fn answers(&self, now: UnixMs, options: &FlowOptions, use_ttft: bool) -> Answers {
        if options.tps_metrics.iter().all(|metric| metric.threshold.is_none()) {
            return Answers::Unjudged;
        }
        // Strictly beyond, unlike the gates (limits.md §6.4): at the threshold itself, the limit is kept.
        let is_slow = self.tps.first_over(now, &options.tps, &options.tps_metrics, |ewma, threshold| ewma < threshold);
        let is_late =
            self.ttft.first_over(now, &options.ttft, &options.ttft_metrics, |ewma, threshold| ewma > threshold);
        let is_late = is_late.is_some() && use_ttft && options.ttft_on;
        if is_slow.is_some() || is_late { Answers::Overloaded } else { Answers::Healthy }
    }

    /// Counts a request of a bucket that got a backend.
    pub fn admitted(&mut self, bucket: Option<Bucket>) {
        if let Some(bucket) = bucket {
            self.turns.admitted(bucket);
        }
    }

    /// Counts a request of a bucket that was refused by the concurrency, the TTFT or the TPS gate.
    pub fn refused(&mut self, bucket: Option<Bucket>) {
        if let Some(bucket) = bucket {
            self.turns.refused(bucket);
        }
    }

    /// Counts the prompt of a bucket's answer. Called while throughput is measured (limits.md §9.6).
    pub fn counted_tokens(&mut self, bucket: Option<Bucket>, prompt: u32, cached: u32) {
        if let Some(bucket) = bucket {
            self.turns.tokens(bucket, prompt, cached);
        }
    }

    /// Called at least once a minute. The fraction of the last minute's requests that named no turn, when it is time to
    /// warn.
    pub fn take_warning(&mut self, now: UnixMs, options: &PrioOptions) -> Option<f64> {
        self.turns.take_warning(now, options)
    }

    /// Keeps the in-flight count for the shown average. Called once in each `cluster_avg_interval`.
    pub fn record_in_flight(&mut self, now: UnixMs, options: &FlowOptions, in_flight: u32) {
        self.cluster_avg.record(now, options.cluster_avg_interval, in_flight);
    }

    fn follow_adaptive(&mut self, now: UnixMs, options: &FlowOptions) {
        if options.active_adaptive().is_some() {
            self.controller.begin(now);
        } else {
            self.controller.end();
        }
    }

    /// Ends the hold of cold requests once its reason is gone. Not while the master switch is off (limits.md §10).
    fn release_hold(&mut self, now: UnixMs, options: &FlowOptions) {
        if let Some(prio) = &options.prio
            && options.is_enforced
            && self.ttft_gate(options).held_by(now, prio).is_none()
        {
            self.ttft_gate.release();
        }
    }

    fn ttft_gate<'a>(&'a self, options: &'a FlowOptions) -> Gate<'a> {
        Gate {
            kind: LatencyGate::Ttft,
            signal: &self.ttft,
            options: &options.ttft,
            metrics: &options.ttft_metrics,
            state: &self.ttft_gate,
        }
    }

    fn tps_gate<'a>(&'a self, options: &'a FlowOptions) -> Gate<'a> {
        Gate {
            kind: LatencyGate::Tps,
            signal: &self.tps,
            options: &options.tps,
            metrics: &options.tps_metrics,
            state: &self.tps_gate,
        }
    }
}

/// What status pages show; nothing changes by reading.
impl Flow {
    /// The adaptive limit; `None` while the pool is not adaptive.
    pub fn adaptive(&self, now: UnixMs, options: &FlowOptions, static_max: u32) -> Option<ControllerView> {
        let adaptive = options.active_adaptive()?;
        Some(self.controller.view(now, adaptive, aimd::bounds(adaptive, static_max)))
    }

    /// The TTFT metrics in their order.
    pub fn ttft_metrics<'a>(&self, now: UnixMs, options: &'a FlowOptions) -> Vec<MetricView<'a>> {
        let view = |metric: &'a Metric| MetricView { metric, ewma: self.ttft.ewma(&metric.name, now, &options.ttft) };
        options.ttft_metrics.iter().map(view).collect()
    }

    /// The TPS metrics in their order.
    pub fn tps_metrics<'a>(&self, now: UnixMs, options: &'a FlowOptions) -> Vec<MetricView<'a>> {
        let view = |metric: &'a Metric| MetricView { metric, ewma: self.tps.ewma(&metric.name, now, &options.tps) };
        options.tps_metrics.iter().map(view).collect()
    }

    /// The smoothed slowest fifth by the basis that does not steer (rulings §3).
    pub fn other_tps(&self, now: UnixMs, options: &FlowOptions) -> Option<f64> {
        self.other_tps.ewma(&Metric::tps_default(None).name, now, &options.tps)
    }

    /// Answers without a token count; starts from 0 again `tps.ttl` after its first.
    pub fn no_usage(&self, now: UnixMs, options: &FlowOptions) -> u32 {
        if self.no_usage.since.is_expired(now, options.tps.ttl) { 0 } else { self.no_usage.count }
    }

    /// Probe slots taken in the current window: of a gate's normal budget, and of turn 1's own.
    pub fn probes_used(&self, now: UnixMs, options: &FlowOptions, gate: LatencyGate) -> (u32, u32) {
        let (state, length) = match gate {
            LatencyGate::Ttft => (&self.ttft_gate, options.ttft.probe_window),
            LatencyGate::Tps => (&self.tps_gate, options.tps.probe_window),
        };
        (state.probes.used(now, length), state.cold_probes.used(now, length))
    }

    /// Whether turn-1 requests are held back though the gate may no longer be tripped.
    pub fn is_held(&self, now: UnixMs, options: &FlowOptions) -> bool {
        options.prio.as_ref().is_some_and(|prio| self.ttft_gate(options).held_by(now, prio).is_some())
    }

    /// The counters by bucket.
    pub fn turn_counts(&self) -> &TurnCounts {
        &self.turns
    }

    /// What would have tripped while the master switch was off.
    pub fn trips(&self) -> Trips {
        self.trips
    }

    /// The five-minute average of requests in flight.
    pub fn cluster_avg(&self, now: UnixMs, options: &FlowOptions) -> ClusterAvgView {
        self.cluster_avg.read(now, options.cluster_avg_interval)
    }
}

/// How long what the adaptive limit notes between steps counts; `None` while the pool is not adaptive.
fn pressure_lasts(options: &FlowOptions) -> Option<Duration> {
    let adaptive = options.active_adaptive()?;
    Some(options.tps.ttl.max(adaptive.interval.saturating_mul(3)))
}

#[cfg(test)]
mod priority_tests;
#[cfg(test)]
mod step_tests;
#[cfg(test)]
mod tests;
