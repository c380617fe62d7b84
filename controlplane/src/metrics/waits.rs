//! How long requests waited for their slot: a histogram for Prometheus, and what status pages show of it.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

/// The mean is over this long at least, and less than twice that.
const SPAN: Duration = Duration::from_secs(300);

/// One route's waits.
#[derive(Debug)]
pub struct Waits {
    /// Over the whole life of the process.
    histogram: Histogram,
    /// The histogram tells its sum to nobody but Prometheus, and a mean since the start would tell nothing of now.
    recent: Mutex<Recent>,
}

#[derive(Debug)]
struct Recent {
    began: Instant,
    now: Sum,
    before: Sum,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    seconds: f64,
    count: u32,
}

impl Waits {
    /// None yet.
    pub fn new(histogram: Histogram) -> Self {
        let recent = Recent { began: Instant::now(), now: Sum::default(), before: Sum::default() };
        Self { histogram, recent: Mutex::new(recent) }
    }

    /// Takes one in.
    pub fn observe(&self, seconds: f64) {
        self.histogram.observe(seconds);
        let mut recent = self.recent.lock();
        recent.turn();
        recent.now.seconds += seconds;
        recent.now.count = recent.now.count.saturating_add(1);
    }

    /// The mean of the last five to ten minutes; `None` without any.
    pub fn recent_mean(&self) -> Option<Duration> {
        let mut recent = self.recent.lock();
        recent.turn();
        let count = f64::from(recent.now.count) + f64::from(recent.before.count);
        let mean = (recent.now.seconds + recent.before.seconds) / count;
        // Without any, no number: 0 by 0.
        Duration::try_from_secs_f64(mean).ok()
    }
}

impl Recent {
    /// Begins a new span when one is over.
    fn turn(&mut self) {
        let elapsed = self.began.elapsed();
        if elapsed < SPAN {
            return;
        }
        self.before = if elapsed < 2 * SPAN { self.now } else { Sum::default() };
        self.now = Sum::default();
        self.began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_mean_is_of_the_last_minutes() {
        let waits = Waits::new(Histogram::new([1.0]));
        assert_eq!(waits.recent_mean(), None);
        waits.observe(1.0);
        waits.observe(3.0);
        assert_eq!(waits.recent_mean(), Some(Duration::from_secs(2)));
        tokio::time::advance(SPAN).await;
        waits.observe(5.0);
        assert_eq!(waits.recent_mean(), Some(Duration::from_secs(3)), "those of before count still");
        tokio::time::advance(SPAN).await;
        assert_eq!(waits.recent_mean(), Some(Duration::from_secs(5)));
        tokio::time::advance(2 * SPAN).await;
        assert_eq!(waits.recent_mean(), None);
    }
}
