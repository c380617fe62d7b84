//! One window of samples: counts by bucket, and the statistics of them (limits.md §5.1, §5.2).

use serde::{Deserialize, Serialize};

use super::exact::Exact;
use super::metric::Statistic;

/// Upper bounds of the buckets of the time to first token, in milliseconds.
pub const TTFT_BOUNDS_MS: [f64; 13] =
    [250.0, 500.0, 1000.0, 1500.0, 2000.0, 3000.0, 5000.0, 8000.0, 12_000.0, 20_000.0, 30_000.0, 50_000.0, 80_000.0];

/// Upper bounds of the buckets of the throughput, in tokens per second.
pub const TPS_BOUNDS: [f64; 13] = [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0];

/// No sample counts for more, so that a sum stays finite whatever comes.
const MAX_SAMPLE: f64 = 1e12;

/// The samples of one window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// One per bound, and one for what is above the last.
    buckets: Vec<u32>,
    sum: Exact,
    count: u32,
}

impl Counts {
    /// Adds a sample to the first bucket whose bound is at least it. Anything but a number from 0 is no sample.
    pub fn add(&mut self, value: f64, bounds: &[f64]) {
        if !is_sample(value) {
            return;
        }
        let value = value.min(MAX_SAMPLE);
        let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        // Counts that were stored when there were other bounds would be too few.
        self.buckets.resize(bounds.len() + 1, 0);
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = bucket.saturating_add(1);
        }
        self.sum.0 += value;
        self.count = self.count.saturating_add(1);
    }

    /// The upper bound of the bucket that holds quantile `q`; above the last bound, twice that. `None` without samples:
    /// a 0 would read as the slowest throughput of all.
    pub fn quantile(&self, q: f64, bounds: &[f64]) -> Option<f64> {
        let total = self.buckets.iter().fold(0_u32, |sum, count| sum.saturating_add(*count));
        if total == 0 || !(q > 0.0 && q < 1.0) {
            return None;
        }
        let target = f64::from(total) * q;
        let mut cumulative = 0_u32;
        for (count, bound) in self.buckets.iter().zip(bounds) {
            cumulative = cumulative.saturating_add(*count);
            if f64::from(cumulative) >= target {
                return Some(*bound);
            }
        }
        bounds.last().map(|last| 2.0 * last)
    }

    /// The mean of the raw values; `None` without samples.
    pub fn avg(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.0 / f64::from(self.count))
    }

    /// Either.
    pub fn value(&self, statistic: Statistic, bounds: &[f64]) -> Option<f64> {
        match statistic {
            Statistic::Avg => self.avg(),
            Statistic::Quantile(q) => self.quantile(q, bounds),
        }
    }
}

/// Whether a measured value can be one: a finite number, not below zero.
pub(super) fn is_sample(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
