//! Time as a number, so that decisions need no clock and property tests can make any moment.

use std::ops::Add;
use std::time::Duration;

/// Milliseconds since an origin that the caller chose; only comparable with ticks of the same origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Tick) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, span: Duration) -> Tick {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Tick(self.0.saturating_add(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_saturate() {
        assert_eq!(Tick(5) + Duration::from_secs(1), Tick(1005));
        assert_eq!(Tick(u64::MAX) + Duration::from_secs(1), Tick(u64::MAX));
        assert_eq!(Tick(5).since(Tick(9)), Duration::ZERO);
        assert_eq!(Tick(9).since(Tick(5)), Duration::from_millis(4));
    }
}
