//! The TTFT and TPS gates: when one trips for a request, and whether the request passes all the same (limits.md §6.2, §6.3,
//! §7, §9.4, §9.5).

use serde::{Deserialize, Serialize};

use super::metric::Metric;
use super::probe_slots::ProbeSlots;
use super::signal::{Over, Signal, SignalOptions};
use super::time::UnixMs;
use super::turn::{Bucket, PrioOptions};

/// The gates that look at how answers went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatencyGate {
    /// Time to first token.
    Ttft,
    /// Throughput.
    Tps,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyRefusal {
    /// By which gate.
    pub gate: LatencyGate,
    /// The first metric of the list that is beyond its line.
    pub metric: String,
    /// Its EWMA, in milliseconds or tokens per second.
    pub ewma: f64,
    /// Its threshold, before any tolerance.
    pub threshold: f64,
}

/// What the latency gates say of a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    /// The refusal; never while the master switch is off.
    pub refusal: Option<LatencyRefusal>,
    /// Whether the TTFT gate is tripped, before probe slots and tolerance. Not while its refusals are switched off.
    pub would_trip_ttft: bool,
    /// Whether the TPS gate is, reached or not. An adaptive pool has none.
    pub would_trip_tps: bool,
}

/// What one gate keeps of earlier requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GateState {
    pub(super) probes: ProbeSlots,
    pub(super) cold_probes: ProbeSlots,
    /// When a cold request last tripped, while cold ones are held back for it. Of the TTFT gate alone.
    hold: Option<UnixMs>,
}

/// One gate at one moment.
#[derive(Clone, Copy)]
pub(super) struct Gate<'a> {
    pub(super) kind: LatencyGate,
    pub(super) signal: &'a Signal,
    pub(super) options: &'a SignalOptions,
    pub(super) metrics: &'a [Metric],
    pub(super) state: &'a GateState,
}

/// A session-priority request: the options, and its bucket.
pub(super) type Graded<'a> = Option<(&'a PrioOptions, Bucket)>;

/// What a gate makes of a request.
pub(super) struct Outcome {
    pub(super) is_tripped: bool,
    pub(super) refusal: Option<LatencyRefusal>,
    pub(super) effect: Effect,
}

/// What changes when the request is judged for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Effect {
    takes: Option<Slot>,
    sets_hold: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Warm,
    Cold,
}

impl Gate<'_> {
    /// Judges a request; nothing changes.
    pub(super) fn judge(&self, now: UnixMs, graded: Graded<'_>) -> Outcome {
        let is_cold = graded.is_some_and(|(prio, bucket)| prio.table.is_cold(bucket));
        let beyond = self.first_beyond(now, graded);
        let held = graded.filter(|_| is_cold).and_then(|(prio, _)| self.held_by(now, prio));
        // Wider than `beyond`: what only tolerance lets through counts as tripped.
        let is_tripped = held.is_some() || self.is_beyond_threshold(now, graded.is_some());
        let (refused, takes) = match (beyond, held) {
            (None, None) => (None, None),
            // Held and not tripped: there is nothing to find out, so there are no probes.
            (None, Some(over)) => (Some(over), None),
            (Some(over), _) => match self.free_slot(now, graded, is_cold) {
                None => (Some(over), None),
                slot => (None, slot),
            },
        };
        let sets_hold = is_cold && beyond.is_some() && self.kind == LatencyGate::Ttft;
        let refusal = refused.map(|over| LatencyRefusal {
            gate: self.kind,
            metric: over.metric.name.clone(),
            ewma: over.ewma,
            threshold: over.threshold,
        });
        Outcome { is_tripped, refusal, effect: Effect { takes, sets_hold } }
    }

    /// The slot that a request which tripped passes by.
    fn free_slot(&self, now: UnixMs, graded: Graded<'_>, is_cold: bool) -> Option<Slot> {
        let length = self.options.probe_window;
        let Some((prio, _)) = graded.filter(|_| is_cold) else {
            let is_free = self.state.probes.has_free(now, length, self.options.probes_per_window);
            return is_free.then_some(Slot::Warm);
        };
        // A warm probe tells as much, and costs the engines less.
        let is_needed = self.state.probes.used(now, length) == 0;
        let is_free = self.state.cold_probes.has_free(now, length, prio.t1_probes);
        (is_needed && is_free).then_some(Slot::Cold)
    }

    /// The first metric beyond the line of the request's bucket. The soft zone begins at its tolerance and the hard zone at
    /// `severe`; both refuse alike, so the line is the nearer of the two.
    fn first_beyond(&self, now: UnixMs, graded: Graded<'_>) -> Option<Over<'_>> {
        let line = graded.map(|(prio, bucket)| prio.table.tol(bucket).min(prio.severe()));
        self.signal.first_over(now, self.options, self.metrics, |ewma, threshold| match (self.kind, line) {
            (LatencyGate::Ttft, None) => ewma >= threshold,
            (LatencyGate::Ttft, Some(line)) => ewma >= threshold * line,
            (LatencyGate::Tps, None) => ewma <= threshold,
            (LatencyGate::Tps, Some(line)) => ewma < threshold / line,
        })
    }

    fn is_beyond_threshold(&self, now: UnixMs, is_graded: bool) -> bool {
        let over = self.signal.first_over(now, self.options, self.metrics, |ewma, threshold| match self.kind {
            LatencyGate::Ttft => ewma >= threshold,
            LatencyGate::Tps if is_graded => ewma < threshold,
            LatencyGate::Tps => ewma <= threshold,
        });
        over.is_some()
    }

    /// The metric for which cold requests are held back: the first that is not below its release line.
    pub(super) fn held_by(&self, now: UnixMs, prio: &PrioOptions) -> Option<Over<'_>> {
        self.state.hold.filter(|set| !set.is_expired(now, self.options.ttl))?;
        let release = prio.release();
        self.signal.first_over(now, self.options, self.metrics, |ewma, threshold| ewma >= threshold * release)
    }
}

impl GateState {
    pub(super) fn apply(&mut self, now: UnixMs, options: &SignalOptions, prio: Option<&PrioOptions>, effect: Effect) {
        let length = options.probe_window;
        match effect.takes {
            Some(Slot::Warm) => _ = self.probes.take(now, length, options.probes_per_window),
            Some(Slot::Cold) => _ = self.cold_probes.take(now, length, prio.map_or(0, |prio| prio.t1_probes)),
            None => {}
        }
        if effect.sets_hold {
            self.hold = Some(now);
        }
    }

    pub(super) fn release(&mut self) {
        self.hold = None;
    }
}
