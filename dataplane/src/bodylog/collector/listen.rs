//! Takes frames from replicas over TCP (payloads.md §7.1). A connection has one frame at a time: it is read, made into a
//! record, written, and only then is the next one read. So a slow disk makes the senders wait, who drop and count, and
//! memory is bounded by the number of connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Clock;
use super::prometheus::CollectorMetrics;
use super::record::Record;
use super::write::Job;
use crate::bodylog::frame::{self, DecodeError, PREFIX};

/// Connections at the same time. More wait to be accepted.
const CONNECTIONS: usize = 512;
/// A longer frame, in bytes, needs one of [`LONG_AT_ONCE`] permits before it is read on.
const LONG: usize = 1 << 20;
/// With these, 512 connections hold at most 512 × 1 MiB + 8 × 64 MiB of frames.
const LONG_AT_ONCE: usize = 8;
/// Frames that are made into records at the same time; records are as large again.
const BUILT_AT_ONCE: usize = 8;
/// Longest silence inside a frame. Between frames a connection may be silent for as long as it likes.
const SILENCE: Duration = Duration::from_secs(30);
/// Pause after a failed `accept`, so that a lack of file descriptors does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What is read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// What connections share.
pub(crate) struct Intake {
    pub(crate) zone: TimeZone,
    pub(crate) metrics: Arc<CollectorMetrics>,
    clock: Clock,
    connections: Arc<Semaphore>,
    long: Semaphore,
    built: Semaphore,
}

impl Intake {
    pub(crate) fn new(zone: TimeZone, metrics: Arc<CollectorMetrics>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            zone,
            metrics,
            clock,
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            long: Semaphore::new(LONG_AT_ONCE),
            built: Semaphore::new(BUILT_AT_ONCE),
        })
    }
}

/// Why a connection ends before its sender ends it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Closed {
    #[error(transparent)]
    Frame(#[from] DecodeError),
    #[error("cut off inside a frame")]
    Cut(#[source] io::Error),
    #[error("silent inside a frame for {} s", SILENCE.as_secs())]
    Silent,
    #[error("the record was not written")]
    NotWritten,
    #[error("the collector stops")]
    Stopped,
}

impl Closed {
    /// The metric's label; `None` for what is counted elsewhere or no fault.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Frame(_) => Some("lengths"),
            Self::Cut(_) => Some("cut"),
            Self::Silent => Some("silent"),
            Self::NotWritten | Self::Stopped => None,
        }
    }
}

/// Accepts until `stop`. The tasks of connections are in `tasks`; each ends after the frame that it writes.
pub(crate) async fn accept(
    listener: TcpListener,
    intake: Arc<Intake>,
    jobs: mpsc::Sender<Job>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    loop {
        let permit = tokio::select! {
            permit = Arc::clone(&intake.connections).acquire_owned() => permit,
            () = stop.cancelled() => return,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (intake, jobs, stop) = (Arc::clone(&intake), jobs.clone(), stop.clone());
                tasks.spawn(async move {
                    let _permit = permit;
                    connection(stream, peer, &intake, &jobs, &stop).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "accept a replica");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    mut stream: TcpStream,
    peer: SocketAddr,
    intake: &Arc<Intake>,
    jobs: &mpsc::Sender<Job>,
    stop: &CancellationToken,
) {
    let _connected = intake.metrics.connected();
    let closed = loop {
        let next = tokio::select! {
            next = next_frame(&mut stream, &intake.long) => next,
            // A frame that is half here is read again by the next process only if its sender sends it again.
            () = stop.cancelled() => Err(Closed::Stopped),
        };
        let kept = match next {
            Ok(Some((frame, _long))) => keep(frame, peer, intake, jobs).await,
            Ok(None) => return,
            Err(closed) => Err(closed),
        };
        if let Err(closed) = kept {
            break closed;
        }
    };
    if let Some(reason) = closed.reason() {
        intake.metrics.bad_frame(reason);
        tracing::warn!(%peer, %closed, "a replica's connection is closed");
    }
}

/// Reads one frame, without its prefix; `None` at the end of the connection. Memory grows with the bytes that came, not
/// with those that were announced.
async fn next_frame<'a>(
    stream: &mut TcpStream,
    long: &'a Semaphore,
) -> Result<Option<(Vec<u8>, Option<tokio::sync::SemaphorePermit<'a>>)>, Closed> {
    let mut prefix = [0; PREFIX];
    // The first byte may take as long as it likes.
    match stream.read(&mut prefix[..1]).await {
        Ok(0) | Err(_) => return Ok(None),
        Ok(_) => within(stream.read_exact(&mut prefix[1..])).await?,
    };
    let total = frame::total(prefix)?;
    let mut frame = Vec::new();
    let mut permit = None;
    while frame.len() < total {
        if frame.len() >= LONG && permit.is_none() {
            permit = long.acquire().await.ok();
        }
        let more = room(total, frame.len(), permit.is_some());
        frame.reserve_exact(more);
        if within((&mut *stream).take(more as u64).read_buf(&mut frame)).await? == 0 {
            return Err(Closed::Cut(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(Some((frame, permit)))
}

/// How many more bytes to make room for: no more than came already, and no more than one chunk at first.
fn room(total: usize, came: usize, has_permit: bool) -> usize {
    let bound = if has_permit { total } else { total.min(LONG) };
    bound.saturating_sub(came).min(came.max(CHUNK))
}

async fn within<T>(read: impl Future<Output = io::Result<T>>) -> Result<T, Closed> {
    tokio::time::timeout(SILENCE, read).await.map_err(|_| Closed::Silent)?.map_err(Closed::Cut)
}

/// Makes a frame into a record and waits until that is written.
async fn keep(frame: Vec<u8>, peer: SocketAddr, intake: &Arc<Intake>, jobs: &mpsc::Sender<Job>) -> Result<(), Closed> {
    intake.metrics.frame();
    let received = (intake.clock)();
    let _built = intake.built.acquire().await;
    let zone = intake.zone.clone();
    // Reading an answer takes milliseconds for each megabyte: too long for the threads that serve sockets.
    let building = tokio::task::spawn_blocking(move || {
        frame::decode(&frame).map(|contents| Record::new(&contents, peer.ip(), received, &zone))
    });
    let Ok(record) = building.await else { return Err(Closed::Stopped) };
    let Some(record) = record? else {
        intake.metrics.bad_frame("meta");
        return Ok(());
    };
    let (done, written) = oneshot::channel();
    if jobs.send(Job::Keep(Box::new(record), done)).await.is_err() {
        return Err(Closed::Stopped);
    }
    if written.await.unwrap_or(false) { Ok(()) } else { Err(Closed::NotWritten) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_bytes_get_no_room_before_they_come() {
        let most = frame::MAX_TOTAL;
        assert_eq!((room(most, 0, false), room(most, 1000, false)), (CHUNK, CHUNK));
        assert_eq!(room(most, LONG - 1, false), 1);
        assert_eq!(room(most, LONG, false), 0, "a permit comes first");
        assert_eq!((room(most, LONG, true), room(most, most - 7, true), room(100, 0, false)), (LONG, 7, 100));
        // Whatever comes, room is at most double of it; and the frame is read to its end.
        let (mut came, mut rounds) = (0, 0);
        while came < most {
            let more = room(most, came, came >= LONG);
            assert!(more > 0 && came + more <= (2 * came).max(CHUNK));
            (came, rounds) = (came + more, rounds + 1);
        }
        assert!(rounds < 20, "{rounds}");
    }
}
