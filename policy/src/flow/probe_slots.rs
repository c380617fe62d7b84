//! The few requests that pass a tripped gate, to see whether it still should be (limits.md §7).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time::UnixMs;

/// The slots taken in one window, aligned to the epoch. Earlier windows don't matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeSlots {
    window: u64,
    used: u32,
}

impl ProbeSlots {
    /// How many were taken in the window of `now`; above zero, somebody has probed in it.
    pub fn used(&self, now: UnixMs, length: Duration) -> u32 {
        if self.window == now.window(length) { self.used } else { 0 }
    }

    /// Whether one of `slots` is left.
    pub fn has_free(&self, now: UnixMs, length: Duration, slots: u32) -> bool {
        self.used(now, length) < slots
    }

    /// Takes one of `slots`; `false` when none is left.
    pub fn take(&mut self, now: UnixMs, length: Duration, slots: u32) -> bool {
        let used = self.used(now, length);
        if used >= slots {
            return false;
        }
        *self = Self { window: now.window(length), used: used.saturating_add(1) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH: Duration = Duration::from_secs(10);

    #[test]
    fn limits_7_a_burst_of_12_with_5_slots() {
        let mut slots = ProbeSlots::default();
        let admitted = (0..12).filter(|_| slots.take(UnixMs(1000), LENGTH, 5)).count();
        assert_eq!(admitted, 5);
        assert_eq!(slots.used(UnixMs(9999), LENGTH), 5);
        assert_eq!(slots.used(UnixMs(10_000), LENGTH), 0, "nobody has probed in the next window");
        assert!(slots.has_free(UnixMs(10_000), LENGTH, 5) && !slots.has_free(UnixMs(9999), LENGTH, 5));
        assert!(!slots.take(UnixMs(10_000), LENGTH, 0), "no slots at all");
        assert_eq!(slots.used(UnixMs(10_000), LENGTH), 0);
    }

    proptest! {
        #[test]
        fn a_window_never_admits_more_than_its_slots(
            steps in proptest::collection::vec(0_u64..4000, 1..200), slots in 0_u32..8,
        ) {
            let mut state = ProbeSlots::default();
            let mut admitted = std::collections::BTreeMap::<u64, u32>::new();
            let mut now = UnixMs(0);
            for step in steps {
                now = now + Duration::from_millis(step);
                let count = admitted.entry(now.0 / 10_000).or_default();
                let is_taken = state.take(now, LENGTH, slots);
                prop_assert_eq!(is_taken, *count < slots, "all of them are admitted, and no more");
                *count += u32::from(is_taken);
            }
        }
    }
}
