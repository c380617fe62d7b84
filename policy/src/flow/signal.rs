//! A signal: samples gathered by window, finished windows folded into one EWMA per metric (limits.md §5.3).
//!
//! A window counts once a later sample comes. Nothing decays: an EWMA stands until its time is over and is then absent, and
//! what reads it lets traffic through.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exact::Exact;
use super::metric::Metric;
use super::range::within;
use super::time::{UnixMs, whole_ms};
use super::window::{Counts, TPS_BOUNDS, TTFT_BOUNDS_MS, is_sample};

/// How one signal is measured and probed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignalOptions {
    /// Length of a window.
    pub window: Duration,
    /// Weight of a new window, 0 to 1.
    pub alpha: f64,
    /// How long an EWMA, and a window that nothing followed, count.
    pub ttl: Duration,
    /// Length of a probe window.
    pub probe_window: Duration,
    /// How many requests pass a tripped gate in each.
    pub probes_per_window: u32,
}

impl SignalOptions {
    /// How many windows back a fold goes.
    pub(super) fn horizon(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX).div_ceil(whole_ms(self.window))
    }

    fn weight(&self) -> f64 {
        within(self.alpha, 0.0, 1.0)
    }
}

/// What a signal measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// The time to first token, in milliseconds.
    #[default]
    Ttft,
    /// Throughput, in tokens per second.
    Tps,
}

impl SignalKind {
    /// The upper bounds of its buckets.
    pub fn bounds(self) -> &'static [f64] {
        match self {
            Self::Ttft => &TTFT_BOUNDS_MS,
            Self::Tps => &TPS_BOUNDS,
        }
    }
}

/// One pool's signal. Holds one window, and one EWMA for each metric of the last fold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Signal {
    kind: SignalKind,
    /// Windows before this one are folded when a later sample comes, so there is never more than one.
    in_progress: Option<Window>,
    ewmas: BTreeMap<String, Ewma>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Window {
    id: u64,
    last_sample: UnixMs,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Ewma {
    value: Exact,
    folded: UnixMs,
}

impl Signal {
    /// Without samples.
    pub fn new(kind: SignalKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Takes a sample in: finished windows are folded first, then it is counted. Anything but a number from 0 is no sample.
    pub fn record(&mut self, now: UnixMs, value: f64, options: &SignalOptions, metrics: &[Metric]) {
        if !is_sample(value) {
            return;
        }
        let id = now.window(options.window);
        let mut window = self.in_progress.take().filter(|window| !window.last_sample.is_expired(now, options.ttl));
        if let Some(finished) = window.take_if(|window| window.id < id)
            && windows_to_fold(finished.id, id, options.horizon()).contains(&finished.id)
        {
            self.fold(now, &finished.counts, options, metrics);
        }
        // A sample of a moment before the window in progress (a clock set back a little) counts in it.
        let mut window = window.unwrap_or_else(|| Window { id, last_sample: now, counts: Counts::default() });
        window.counts.add(value, self.kind.bounds());
        window.last_sample = window.last_sample.max(now);
        self.in_progress = Some(window);
    }

    fn fold(&mut self, now: UnixMs, counts: &Counts, options: &SignalOptions, metrics: &[Metric]) {
        let alpha = options.weight();
        // Made anew from the old ones: names that nobody asks for any more go, and one listed twice is moved once.
        let mut ewmas = BTreeMap::new();
        for metric in metrics {
            let ewma = match counts.value(metric.statistic, self.kind.bounds()) {
                None => self.ewmas.get(&metric.name).copied(),
                Some(value) => {
                    let old = self.ewma(&metric.name, now, options);
                    let value = old.map_or(value, |old| alpha * value + (1.0 - alpha) * old);
                    Some(Ewma { value: Exact(value), folded: now })
                }
            };
            if let Some(ewma) = ewma {
                ewmas.insert(metric.name.clone(), ewma);
            }
        }
        self.ewmas = ewmas;
    }

    /// A metric's EWMA; `None` before its first fold and once `ttl` has passed since the last.
    pub fn ewma(&self, name: &str, now: UnixMs, options: &SignalOptions) -> Option<f64> {
        let ewma = self.ewmas.get(name)?;
        (!ewma.folded.is_expired(now, options.ttl)).then_some(ewma.value.0)
    }

    /// The first metric that has a threshold and an EWMA between which `is_over` holds.
    pub(super) fn first_over<'a>(
        &self,
        now: UnixMs,
        options: &SignalOptions,
        metrics: &'a [Metric],
        is_over: impl Fn(f64, f64) -> bool,
    ) -> Option<Over<'a>> {
        metrics.iter().find_map(|metric| {
            let threshold = metric.threshold?;
            let ewma = self.ewma(&metric.name, now, options)?;
            is_over(ewma, threshold).then_some(Over { metric, ewma, threshold })
        })
    }
}

/// A metric beyond its threshold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Over<'a> {
    pub(super) metric: &'a Metric,
    pub(super) ewma: f64,
    pub(super) threshold: f64,
}

/// The windows that a sample in window `current` folds, when `last` is the last one remembered.
pub(super) fn windows_to_fold(last: u64, current: u64, horizon: u64) -> Range<u64> {
    if current.saturating_sub(last) > horizon { current.saturating_sub(horizon)..current } else { last..current }
}

#[cfg(test)]
mod tests;
