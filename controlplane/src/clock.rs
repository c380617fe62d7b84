//! The control plane's time: ticks for decisions, Unix milliseconds for what is stored and shown.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use router_policy::tick::Tick;
use tokio::time::Instant;

/// A clock whose ticks count from its making. It follows tokio's time, so tests can pause it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    origin_unix_ms: u64,
}

impl Clock {
    /// Starts at tick 0.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), origin_unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Now. One read of the monotonic clock.
    pub fn now(&self) -> Tick {
        Tick(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The instant of a tick, for timers.
    pub fn instant(&self, tick: Tick) -> Instant {
        // A far deadline may not fit; a day is further than any timer here waits without being set anew.
        self.origin
            .checked_add(Duration::from_millis(tick.0))
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400))
    }

    /// A tick as Unix time.
    pub fn unix_ms(&self, tick: Tick) -> u64 {
        self.origin_unix_ms.saturating_add(tick.0)
    }

    /// Unix time as a tick; what lies before this clock's origin becomes tick 0.
    pub fn tick(&self, unix_ms: u64) -> Tick {
        Tick(unix_ms.saturating_sub(self.origin_unix_ms))
    }
}
