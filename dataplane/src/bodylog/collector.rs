//! The collector: a process of its own that takes what replicas captured, keeps it in files, and answers questions about it
//! (payloads.md §7, §8, rulings §7). It never talks to the control plane, and replicas never wait for it.
//!
//! | module | is |
//! | --- | --- |
//! | [`config`] | the settings, checked whole |
//! | `listen`, `slots`, `memory` | who is let in, and how much at a time |
//! | `connection` | one replica's frames, one at a time |
//! | `record`, `extract`, `details` | a frame as a line of the full log and as a row without bodies |
//! | `write`, `files` | the one writer, and files that only grow by whole lines |
//! | [`find`] | one full record, for who has the files |
//! | `minutes` | sums by minute and backend |
//! | `housekeep` | past days: packed, removed |
//! | `query`, `summary`, `http` | questions |
//! | `prometheus` | metrics |

pub mod config;
mod connection;
mod details;
mod extract;
mod files;
pub mod find;
mod housekeep;
mod http;
mod json;
mod listen;
mod memory;
mod minutes;
mod prometheus;
mod query;
mod record;
mod slots;
mod summary;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use config::{CollectorArgs, Config};
use files::Places;
use http::Asked;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use listen::{Intake, Limits};
use minutes::Minutes;
use parking_lot::Mutex;
use prometheus::CollectorMetrics;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use write::{Job, Writer};

/// Records that wait for the writer. Each belongs to a connection that reads no further meanwhile.
const QUEUE: usize = 64;
/// How often settled minutes are written, and the day is looked at.
const ROUND: Duration = Duration::from_secs(60);
/// How often past days are looked at within a day.
const HOUSEKEEPING: SignedDuration = SignedDuration::from_hours(6);
/// At a stop: time for frames that are on their way or being written. Longer than [`Limits::last_reads`].
const GRACE: Duration = Duration::from_secs(5);

/// Bound sockets.
#[derive(Debug)]
pub struct Listeners {
    /// For replicas.
    pub frames: TcpListener,
    /// For questions.
    pub http: TcpListener,
    /// For Prometheus alone.
    pub exporter: Option<TcpListener>,
}

/// Why a collector can't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder can't be made or is another collector's.
    #[error("take the folder {0}")]
    Folder(String, #[source] io::Error),
    /// Files of minutes that can't be read.
    #[error("read the minutes in {0}")]
    Minutes(String, #[source] io::Error),
}

/// Runs a collector until `shutdown`. `on_ready` is called once, when the files of earlier runs have been read.
pub async fn run(
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send,
    on_ready: impl FnOnce() + Send,
) -> Result<(), Error> {
    run_within(Limits::default(), config, listeners, shutdown, on_ready).await
}

async fn run_within(
    limits: Limits,
    config: Config,
    listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send,
    on_ready: impl FnOnce() + Send,
) -> Result<(), Error> {
    let dir = config.dir.display().to_string();
    // Held until the end: the lock goes with the file.
    let _lock = files::take_folder(&config.dir).map_err(|error| Error::Folder(dir.clone(), error))?;
    let places = Places::new(&config.dir, config.zone.clone());
    let minutes = Minutes::load(&places, Timestamp::now()).map_err(|error| Error::Minutes(dir, error))?;
    let (minutes, metrics) = (Arc::new(Mutex::new(minutes)), Arc::new(CollectorMetrics::new()));
    let stop = CancellationToken::new();
    let (jobs, waiting) = mpsc::channel(QUEUE);

    let writer = TaskTracker::new();
    let files = Writer::new(places.clone(), config.with_details, Arc::clone(&minutes), Arc::clone(&metrics));
    // Ends when the last sender of jobs is gone.
    writer.spawn_blocking(move || files.run(waiting, Timestamp::now));
    writer.close();

    let background = TaskTracker::new();
    let asked = Asked::new(places.clone(), config.with_details, config.token, minutes, Arc::clone(&metrics));
    background.spawn(http::serve(listeners.http, Arc::new(asked), stop.clone()));
    if let Some(exporter) = listeners.exporter {
        background.spawn(http::serve_exporter(exporter, Arc::clone(&metrics), stop.clone()));
    }
    let upkeep = Upkeep { places, keep: config.keep, metrics: Arc::clone(&metrics), stop: stop.clone() };
    background.spawn(upkeep.run(jobs.clone()));

    let connections = TaskTracker::new();
    let intake = Intake::new(config.zone, Arc::clone(&metrics), limits);
    background.spawn(listen::accept(listeners.frames, intake, jobs, connections.clone(), stop.clone()));

    on_ready();
    shutdown.await;
    stop.cancel();
    background.close();
    background.wait().await;
    connections.close();
    if tokio::time::timeout(GRACE, async { tokio::join!(connections.wait(), writer.wait()) }).await.is_err() {
        tracing::warn!("the disk is slow: what is being written is given up");
    }
    let lost = metrics.lost_records();
    if lost > 0 {
        tracing::error!(lost, "records were lost: they could not be written before the stop");
    }
    Ok(())
}

/// What happens by the clock: minutes are written, past days packed and removed.
struct Upkeep {
    places: Places,
    keep: housekeep::Keep,
    metrics: Arc<CollectorMetrics>,
    stop: CancellationToken,
}

impl Upkeep {
    async fn run(self, jobs: mpsc::Sender<Job>) {
        let mut last: Option<(Date, Timestamp)> = None;
        loop {
            let now = Timestamp::now();
            let today = self.places.day(now);
            if is_due(last, today, now) {
                last = Some((today, now));
                let (done, closed) = oneshot::channel();
                let asked = jobs.send(Job::ClosePastDays(done)).await;
                if asked.is_ok() && closed.await.is_ok() {
                    self.housekeep(today).await;
                }
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(ROUND)).await.is_none()
                || jobs.send(Job::SaveMinutes).await.is_err()
            {
                return;
            }
        }
    }

    async fn housekeep(&self, today: Date) {
        let (places, keep, stop) = (self.places.clone(), self.keep, self.stop.clone());
        // Awaited here, and ended by the token.
        let round =
            tokio::task::spawn_blocking(move || housekeep::housekeep(&places, today, keep, &|| stop.is_cancelled()));
        let Ok(report) = round.await else { return };
        for (path, error) in &report.failed {
            tracing::warn!(path = %path.display(), %error, "a past day could not be packed or removed");
        }
        self.metrics.housekeeping_failed(report.failed.len());
        if !report.packed.is_empty() || !report.removed.is_empty() {
            let (packed, removed) = (report.packed.len(), report.removed.len());
            tracing::info!(packed, removed, "past days were packed and removed");
        }
    }
}

/// At the start, on a new day, and every few hours.
fn is_due(last: Option<(Date, Timestamp)>, today: Date, now: Timestamp) -> bool {
    last.is_none_or(|(day, at)| day != today || now.duration_since(at) >= HOUSEKEEPING)
}
