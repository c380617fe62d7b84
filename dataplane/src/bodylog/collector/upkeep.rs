//! What happens by the clock: minutes are written, and past days packed and removed. Two loops, so that packing a long day
//! holds up no minutes.

use std::time::Duration;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Clock;
use super::files::Places;
use super::housekeep::{self, Keep, housekeep};
use super::prometheus::CollectorMetrics;
use super::write::Job;

/// How often settled minutes are written, and the day is looked at.
pub(crate) const ROUND: Duration = Duration::from_secs(60);
/// How often past days are looked at within a day.
const HOUSEKEEPING: SignedDuration = SignedDuration::from_hours(6);

/// Asks for the settled minutes to be written, until `stop`.
pub(crate) async fn save_minutes(jobs: mpsc::Sender<Job>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(ROUND)).await.is_some() {
        if jobs.send(Job::SaveMinutes).await.is_err() {
            return;
        }
    }
}

/// Looks after past days.
pub(crate) struct Upkeep {
    pub(crate) places: Places,
    pub(crate) keep: Keep,
    pub(crate) metrics: std::sync::Arc<CollectorMetrics>,
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
}

impl Upkeep {
    /// Works until `stop`.
    pub(crate) async fn run(self, jobs: mpsc::Sender<Job>) {
        let mut last: Option<(Date, Timestamp)> = None;
        loop {
            let now = (self.clock)();
            let today = self.places.day(now);
            if is_due(last, today, now) {
                last = Some((today, now));
                let (done, closed) = oneshot::channel();
                let asked = jobs.send(Job::ClosePastDays(now, done)).await;
                if asked.is_ok() && closed.await.is_ok() {
                    self.housekeep(today).await;
                }
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(ROUND)).await.is_none() || jobs.is_closed() {
                return;
            }
        }
    }

    async fn housekeep(&self, today: Date) {
        let (places, keep, stop) = (self.places.clone(), self.keep, self.stop.clone());
        // Awaited here, and ended by the token.
        let round = tokio::task::spawn_blocking(move || housekeep(&places, today, keep, &|| stop.is_cancelled()));
        let Ok(housekeep::Report { packed, removed, failed }) = round.await else { return };
        for (path, error) in &failed {
            tracing::warn!(path = %path.display(), %error, "a past day could not be packed or removed");
        }
        self.metrics.housekeeping_failed(failed.len());
        if !packed.is_empty() || !removed.is_empty() {
            tracing::info!(packed = packed.len(), removed = removed.len(), "past days were packed and removed");
        }
    }
}

/// At the start, on a new day, and every few hours.
fn is_due(last: Option<(Date, Timestamp)>, today: Date, now: Timestamp) -> bool {
    last.is_none_or(|(day, at)| day != today || now.duration_since(at) >= HOUSEKEEPING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_days_are_looked_at_at_the_start_on_a_new_day_and_every_six_hours() {
        let at = |text: &str| format!("2026-06-{text}Z").parse::<Timestamp>().unwrap();
        let day = |text: &str| format!("2026-06-{text}").parse::<Date>().unwrap();
        assert!(is_due(None, day("18"), at("18T04:00:00")));
        let last = Some((day("18"), at("18T04:00:00")));
        assert!(!is_due(last, day("18"), at("18T09:59:59")));
        assert!(is_due(last, day("18"), at("18T10:00:00")));
        assert!(is_due(Some((day("18"), at("18T23:59:00"))), day("19"), at("19T00:00:00")));
    }
}
