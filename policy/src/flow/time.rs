//! The time of flow control. It outlives the process (a pool's state is stored), so it counts from the epoch, and
//! windows are aligned to it.

use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: UnixMs) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The number of the window of this length that holds `self`. A length below a millisecond is taken for one.
    #[must_use]
    pub fn window(self, length: Duration) -> u64 {
        self.0 / whole_ms(length)
    }

    /// Whether something made at `self` to last for `ttl` is gone at `now`. It still counts at its last moment.
    ///
    /// What was made more than `ttl` ahead of `now` is gone too: the clock has been set back since, and it must not
    /// stay until the clock gets there again.
    #[must_use]
    pub fn is_expired(self, now: UnixMs, ttl: Duration) -> bool {
        now > self + ttl || self > now + ttl
    }
}

/// A length in milliseconds, at least one, so that it can divide.
pub(super) fn whole_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)
}

impl Add<Duration> for UnixMs {
    type Output = UnixMs;

    fn add(self, span: Duration) -> UnixMs {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        UnixMs(self.0.saturating_add(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_aligned_to_the_epoch() {
        let length = Duration::from_secs(20);
        assert_eq!(UnixMs(19_999).window(length), 0);
        assert_eq!(UnixMs(20_000).window(length), 1);
        assert_eq!(UnixMs(7).window(Duration::ZERO), 7);
        assert_eq!(UnixMs(u64::MAX).window(Duration::MAX), 1);
    }

    #[test]
    fn what_expires_does_so_at_its_end_and_after_a_clock_was_set_back() {
        let ttl = Duration::from_secs(60);
        let made = UnixMs(100_000);
        assert!(!made.is_expired(UnixMs(160_000), ttl));
        assert!(made.is_expired(UnixMs(160_001), ttl));
        assert!(!made.is_expired(UnixMs(40_000), ttl), "a little ahead");
        assert!(made.is_expired(UnixMs(39_999), ttl), "far ahead");
        assert!(!UnixMs(5).is_expired(UnixMs(u64::MAX - 1), Duration::MAX), "sums saturate");
    }
}
