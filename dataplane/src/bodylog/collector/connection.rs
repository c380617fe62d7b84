//! One connection of a replica: a frame is read, made into a record, written, and only then is the next one read. So a slow
//! or full disk makes the senders wait, who drop and count.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{SemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::listen::{Intake, Limits};
use super::memory::{LONG, Memory};
use super::record::Record;
use super::slots::Slot;
use super::write::{Job, Unkept};
use crate::bodylog::frame::{self, DecodeError, PREFIX};

/// What is read at once, in bytes.
const CHUNK: usize = 64 << 10;

/// Why a connection ends before its sender ends it.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error(transparent)]
    Frame(#[from] DecodeError),
    #[error("cut off inside a frame")]
    Cut(#[source] io::Error),
    #[error("silent inside a frame for {} s", .0.silence.as_secs())]
    Silent(Limits),
    #[error("a frame took more than {} s", .0.frame_time.as_secs())]
    Slow(Limits),
    #[error("the collector stops, and the sender goes on; what is on its way is lost")]
    Stopped,
}

impl Closed {
    /// The metric's label; `None` for what is no fault of the sender.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Frame(_) => Some("lengths"),
            Self::Cut(_) => Some("cut"),
            Self::Silent(_) => Some("silent"),
            Self::Slow(_) => Some("slow"),
            Self::Stopped => None,
        }
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    slot: Slot,
    intake: Arc<Intake>,
    jobs: mpsc::Sender<Job>,
) {
    let _connected = intake.metrics.connected();
    let overdue = async {
        intake.slots.stopping().cancelled().await;
        sleep(intake.limits.last_reads).await;
    };
    let mut connection = Connection { stream, peer, intake: &intake, jobs };
    let ended = tokio::select! {
        ended = connection.frames(&slot) => ended,
        () = overdue => Err(Closed::Stopped),
    };
    if let Err(closed) = ended {
        if let Some(reason) = closed.reason() {
            intake.metrics.bad_frame(reason);
        }
        tracing::warn!(%peer, %closed, "a replica's connection is closed");
    }
}

struct Connection<'a> {
    stream: TcpStream,
    peer: SocketAddr,
    intake: &'a Arc<Intake>,
    jobs: mpsc::Sender<Job>,
}

/// Without its prefix, with its share of the memory.
struct Frame<'a> {
    bytes: Vec<u8>,
    long: Option<SemaphorePermit<'a>>,
}

impl<'a> Connection<'a> {
    async fn frames(&mut self, slot: &Slot) -> Result<(), Closed> {
        while let Some(first) = self.first_byte(slot).await {
            let frame = self.frame(first).await?;
            self.keep(frame).await?;
        }
        Ok(())
    }

    /// Of the next frame, for which a sender may take as long as it likes; `None` at the end of the connection. A connection
    /// that has to leave ends its own side first: the sender sees that, and ends the other one behind what is on its way.
    async fn first_byte(&mut self, slot: &Slot) -> Option<u8> {
        let mut byte = [0];
        let read = {
            let _silent = slot.silent();
            tokio::select! {
                read = self.stream.read(&mut byte) => Some(read),
                () = slot.leave().cancelled() => None,
            }
        };
        let read = if let Some(read) = read {
            read
        } else {
            // A connection that is gone can't be ended; reading tells the same.
            let _ = self.stream.shutdown().await;
            // Senders that don't look: what they have sent by now is read.
            timeout(self.intake.limits.quiet, self.stream.read(&mut byte)).await.unwrap_or(Ok(0))
        };
        matches!(read, Ok(1..)).then_some(byte[0])
    }

    /// Reads one frame to its end. Memory grows with the bytes that came, not with those that were announced.
    async fn frame(&mut self, first: u8) -> Result<Frame<'a>, Closed> {
        let limits = self.intake.limits;
        let mut until = Instant::now() + limits.frame_time;
        let mut prefix = [0; PREFIX];
        prefix[0] = first;
        within(limits, until, self.stream.read_exact(&mut prefix[1..])).await?;
        let total = frame::total(prefix)?;
        let mut bytes = Vec::new();
        let mut long = None;
        while bytes.len() < total {
            if bytes.len() >= LONG && long.is_none() {
                long = self.intake.memory.long(total).await;
                // The wait was not the sender's fault.
                until = Instant::now() + limits.frame_time;
            }
            let more = room(total, bytes.len(), long.is_some());
            bytes.reserve_exact(more);
            if within(limits, until, (&mut self.stream).take(more as u64).read_buf(&mut bytes)).await? == 0 {
                return Err(Closed::Cut(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(Frame { bytes, long })
    }

    /// Makes a frame into a record and waits until that is written. While the files can't be written, nothing more is read:
    /// the sender's buffer fills, and what does not fit there is counted there. (payloads.md §7.1 closes the connection
    /// instead; then what is on its way would be counted nowhere.)
    async fn keep(&mut self, frame: Frame<'a>) -> Result<(), Closed> {
        let Intake { zone, metrics, memory, built, retrying, limits, .. } = &**self.intake;
        metrics.frame();
        let received = (self.intake.clock)();
        let Frame { bytes, long } = frame;
        let mut share = memory.record(bytes.len()).await;
        let record = {
            let _built = built.acquire().await;
            let (zone, source) = (zone.clone(), self.peer.ip());
            // Reading an answer takes milliseconds for each megabyte: too long for the threads that serve sockets.
            let building = tokio::task::spawn_blocking(move || {
                frame::decode(&bytes).map(|contents| Record::new(&contents, source, received, &zone))
            });
            building.await.map_err(|_| Closed::Stopped)??
        };
        drop(long);
        let Some(record) = record else {
            metrics.bad_frame("meta");
            return Ok(());
        };
        Memory::made(&mut share, record.line.capacity());
        let mut unkept = Unkept::new(record, Arc::clone(metrics));
        // One at a time tries again; the others wait for it.
        let mut turn = None;
        loop {
            let (done, written) = oneshot::channel();
            self.jobs.send(Job::Keep(unkept, done)).await.map_err(|_| Closed::Stopped)?;
            match written.await.map_err(|_| Closed::Stopped)? {
                None => return Ok(()),
                Some(back) => unkept = back,
            }
            match turn {
                None => turn = Some(retrying.lock().await),
                Some(_) => sleep(limits.retry).await,
            }
        }
    }
}

/// How many more bytes to make room for: no more than came already, and no more than one chunk at first.
fn room(total: usize, came: usize, has_permit: bool) -> usize {
    let bound = if has_permit { total } else { total.min(LONG) };
    bound.saturating_sub(came).min(came.max(CHUNK))
}

/// A sender may be silent for a while, and slow for a while: it must not hold memory for as long as it likes.
async fn within<T>(limits: Limits, until: Instant, read: impl Future<Output = io::Result<T>>) -> Result<T, Closed> {
    let silent = Instant::now() + limits.silence;
    let late = |_| if until < silent { Closed::Slow(limits) } else { Closed::Silent(limits) };
    timeout_at(until.min(silent), read).await.map_err(late)?.map_err(Closed::Cut)
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
