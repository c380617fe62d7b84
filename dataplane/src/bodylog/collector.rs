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
//! | `upkeep`, `housekeep`, `names` | what happens by the clock; past days: packed, removed |
//! | `query`, `summary`, `http`, `port` | questions |
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
mod names;
mod port;
mod prometheus;
mod query;
mod record;
mod slots;
mod summary;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use config::{CollectorArgs, Config};
use files::Places;
use http::Asked;
use jiff::Timestamp;
use listen::{Intake, Limits};
use minutes::Minutes;
use parking_lot::Mutex;
use prometheus::CollectorMetrics;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use upkeep::Upkeep;
use write::Writer;

/// Records that wait for the writer. Each belongs to a connection that reads no further meanwhile.
const QUEUE: usize = 64;
/// At a stop: time for frames that are on their way or being written. Longer than [`Limits::last_reads`].
const GRACE: Duration = Duration::from_secs(5);

/// Tells the time. Passed in, so that tests choose it.
type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

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
    run_by(Arc::new(Timestamp::now), Limits::default(), config, listeners, shutdown, on_ready).await
}

async fn run_by(
    clock: Clock,
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
    let minutes = Minutes::load(&places, clock()).map_err(|error| Error::Minutes(dir.clone(), error))?;
    let (minutes, metrics) = (Arc::new(Mutex::new(minutes)), Arc::new(CollectorMetrics::new()));
    let stop = CancellationToken::new();
    let (jobs, waiting) = mpsc::channel(QUEUE);

    let writer = TaskTracker::new();
    let files = Writer::new(places.clone(), config.with_details, Arc::clone(&minutes), Arc::clone(&metrics));
    let files = files.after_packed_days().map_err(|error| Error::Folder(dir, error))?;
    let time = Arc::clone(&clock);
    // Ends when the last sender of jobs is gone.
    writer.spawn_blocking(move || files.run(waiting, &*time));
    writer.close();

    let background = TaskTracker::new();
    let asked = Asked::new(places.clone(), config.with_details, config.token, minutes, Arc::clone(&metrics));
    background.spawn(http::serve(listeners.http, Arc::new(asked), Arc::clone(&clock), stop.clone()));
    if let Some(exporter) = listeners.exporter {
        background.spawn(http::serve_exporter(exporter, Arc::clone(&metrics), stop.clone()));
    }
    background.spawn(upkeep::save_minutes(jobs.clone(), stop.clone()));
    let upkeep = Upkeep {
        places,
        keep: config.keep,
        metrics: Arc::clone(&metrics),
        clock: Arc::clone(&clock),
        stop: stop.clone(),
    };
    background.spawn(upkeep.run(jobs.clone()));

    let connections = TaskTracker::new();
    let intake = Intake::new(config.zone, Arc::clone(&metrics), limits, clock);
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
