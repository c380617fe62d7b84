//! The average number of requests in flight over about five minutes (limits.md §12.5). It is shown and limits nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::UnixMs;

/// How many intervals are kept.
pub const SLOTS: usize = 10;

/// How long a slot counts.
pub const TTL: Duration = Duration::from_secs(360);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    at: UnixMs,
    in_flight: u32,
}

/// The last intervals' counts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterAvg {
    slots: [Option<Slot>; SLOTS],
}

/// What is known of them at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterAvgView {
    /// The slots, in the order of their numbers, not of time.
    pub buckets: [Option<u32>; SLOTS],
    /// How many of them are present.
    pub samples: u32,
    /// The mean of those; 0 without any.
    pub avg: f64,
    /// The slot of the current interval.
    pub cur_index: usize,
}

impl ClusterAvg {
    /// Stores the count of the current interval. Called once in each.
    pub fn record(&mut self, now: UnixMs, interval: Duration, in_flight: u32) {
        if let Some(slot) = self.slots.get_mut(index(now, interval)) {
            *slot = Some(Slot { at: now, in_flight });
        }
    }

    /// The slots that still count.
    pub fn read(&self, now: UnixMs, interval: Duration) -> ClusterAvgView {
        let buckets =
            self.slots.map(|slot| slot.filter(|slot| !slot.at.is_expired(now, TTL)).map(|slot| slot.in_flight));
        let mut samples = 0_u32;
        let mut sum = 0.0;
        for in_flight in buckets.into_iter().flatten() {
            samples += 1;
            sum += f64::from(in_flight);
        }
        let avg = if samples == 0 { 0.0 } else { sum / f64::from(samples) };
        ClusterAvgView { buckets, samples, avg, cur_index: index(now, interval) }
    }
}

fn index(now: UnixMs, interval: Duration) -> usize {
    usize::try_from(now.window(interval) % SLOTS as u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn limits_12_5_ten_slots_that_live_for_six_minutes() {
        let mut avg = ClusterAvg::default();
        let view = avg.read(UnixMs(0), INTERVAL);
        assert_eq!((view.samples, view.cur_index), (0, 0));
        assert!(view.avg.abs() < 1e-9, "none is 0, not a division by none");
        for slot in 0..11_u32 {
            avg.record(UnixMs(u64::from(slot) * 30_000), INTERVAL, slot);
        }
        let view = avg.read(UnixMs(300_000), INTERVAL);
        assert_eq!((view.samples, view.cur_index), (10, 0), "the eleventh overwrote the first");
        assert_eq!(view.buckets[0], Some(10));
        assert_eq!(view.buckets[9], Some(9));
        let view = avg.read(UnixMs(30_000 + 360_000), INTERVAL);
        assert_eq!(view.buckets[1], Some(1));
        let view = avg.read(UnixMs(30_000 + 360_001), INTERVAL);
        assert_eq!((view.buckets[1], view.buckets[2], view.samples), (None, Some(2), 9));
    }
}
