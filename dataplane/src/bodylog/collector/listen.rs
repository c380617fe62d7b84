//! Accepts connections of replicas over TCP (payloads.md §7.1); `connection` serves each. At a stop nothing that a replica
//! has sent is thrown away: what the kernel has accepted is accepted here too, then every connection is read to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::memory::Memory;
use super::prometheus::CollectorMetrics;
use super::slots::{Slot, Slots};
use super::write::Job;
use super::{Clock, connection};

/// Frames that are made into records at the same time.
const BUILT_AT_ONCE: usize = 8;
/// Pause after a failed `accept`, so that a lack of file descriptors does not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What the kernel may hold of a connection, in bytes; it doubles this. A process that is killed loses what is in there.
const RECEIVE_BUFFER: usize = 64 << 10;
/// A peer that is silent for so long is asked whether it is there, and again each [`KEEPALIVE_EVERY`].
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// Bounds of the intake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at the same time. For one more the longest idle one leaves.
    pub(crate) connections: usize,
    /// Longest silence inside a frame. Between frames a connection may be silent for as long as there is room.
    pub(crate) silence: Duration,
    /// Longest time for a frame of any length: 64 MiB at about 1 MiB/s. Waits for memory don't count.
    pub(crate) frame_time: Duration,
    /// How long a connection that has to leave may be silent: a sender that looks at it ends it sooner.
    pub(crate) quiet: Duration,
    /// At a stop, for what is on its way.
    pub(crate) last_reads: Duration,
    /// Between two tries to write.
    pub(crate) retry: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            silence: Duration::from_secs(30),
            frame_time: Duration::from_secs(60),
            quiet: Duration::from_millis(500),
            last_reads: Duration::from_secs(3),
            retry: Duration::from_secs(1),
        }
    }
}

/// What connections share.
pub(crate) struct Intake {
    pub(super) zone: TimeZone,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<CollectorMetrics>,
    pub(super) limits: Limits,
    pub(super) slots: Arc<Slots>,
    pub(super) memory: Memory,
    pub(super) built: Semaphore,
    /// Held by the one that tries again to write.
    pub(super) retrying: Mutex<()>,
}

impl Intake {
    pub(crate) fn new(zone: TimeZone, metrics: Arc<CollectorMetrics>, limits: Limits, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            zone,
            clock,
            metrics,
            limits,
            slots: Slots::new(limits.connections),
            memory: Memory::new(),
            built: Semaphore::new(BUILT_AT_ONCE),
            retrying: Mutex::new(()),
        })
    }
}

/// Accepts until `stop`. The tasks of connections are in `tasks`; after `stop` each ends when its sender has, or is silent.
pub(crate) async fn accept(
    listener: TcpListener,
    intake: Arc<Intake>,
    jobs: mpsc::Sender<Job>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    // Connections have it from here. Without it more is lost at a kill, nothing else.
    if let Err(error) = SockRef::from(&listener).set_recv_buffer_size(RECEIVE_BUFFER) {
        tracing::warn!(%error, "the receive buffer keeps its size");
    }
    let serve = |stream: TcpStream, peer: SocketAddr, slot: Slot| {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
        // A connection that can't have it is served all the same.
        let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
        tasks.spawn(connection::serve(stream, peer, slot, Arc::clone(&intake), jobs.clone()));
    };
    let mut is_failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                if std::mem::replace(&mut is_failing, false) {
                    tracing::info!("replicas' connections are accepted again");
                }
                let slot = tokio::select! {
                    slot = intake.slots.room() => slot,
                    () = stop.cancelled() => intake.slots.beyond(),
                };
                serve(stream, peer, slot);
            }
            Err(error) => {
                intake.metrics.accept_failed();
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "replicas' connections can't be accepted; they wait");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    match accepted_by_the_kernel(listener, intake.limits.connections) {
        Ok(streams) => streams.into_iter().for_each(|(stream, peer)| serve(stream, peer, intake.slots.beyond())),
        Err(error) => tracing::warn!(%error, "connections that waited at the stop are not served"),
    }
    // The port is closed by now: a sender whose connection ends does not come back to be cut off.
    intake.slots.stop();
}

/// The kernel is asked itself: the runtime may not know yet of those that came last.
fn accepted_by_the_kernel(listener: TcpListener, most: usize) -> io::Result<Vec<(TcpStream, SocketAddr)>> {
    let listener = listener.into_std()?;
    let waiting = std::iter::from_fn(|| listener.accept().ok()).take(most);
    let served = waiting.map(|(stream, peer)| {
        stream.set_nonblocking(true)?;
        Ok((TcpStream::from_std(stream)?, peer))
    });
    served.collect()
}
