//! Client connections: HTTP/1.1, and HTTP/2 with prior knowledge, on one port. Bounds their number, the time that a
//! head may take, and the time that a connection may do nothing before its first request.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::reader;
use super::stall::Stall;
use crate::config::Config;
use crate::request::handle::{Proxy, handle};

/// After an accept error that will not go away by itself (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at a connection's first bytes.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// An HTTP/2 client that does not answer pings is gone.
const H2_PING_EVERY: Duration = Duration::from_secs(20);
const H2_PING_TIMEOUT: Duration = Duration::from_secs(20);
const H2_STREAMS: u32 = 1024;
/// What a client may send ahead on one stream, in bytes. The connection has as much for every stream: bodies that wait
/// for a slot are not read, and must not take the room of those that have one.
const H2_STREAM_WINDOW: u32 = 256 << 10;

/// What tells connections to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// Accept no more, close what idles, finish what runs.
    pub(crate) stop: CancellationToken,
    /// End now.
    pub(crate) kill: CancellationToken,
}

/// Runs HTTP/2 streams where shutdown waits for them, and for no longer than their client reads.
#[derive(Debug, Clone)]
struct Tracked {
    tasks: TaskTracker,
    read_timeout: Duration,
}

impl<F> Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks.spawn(reader::attended(future, self.read_timeout));
    }
}

/// Accepts until `signals.stop`. Each connection is a task of `connections`.
pub(crate) async fn accept(listener: TcpListener, proxy: Arc<Proxy>, connections: TaskTracker, signals: Signals) {
    let slots = Arc::new(Semaphore::new(proxy.config.max_connections.min(Semaphore::MAX_PERMITS)));
    let servers = Arc::new(Servers::new(&connections, &proxy.config));
    loop {
        // Without a slot the backlog holds new connections; nobody is refused.
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await.map_err(io::Error::other)?;
            let (socket, from) = listener.accept().await?;
            Ok::<_, io::Error>((slot, socket, from))
        };
        match signals.stop.run_until_cancelled(next).await {
            None => return,
            Some(Ok((slot, socket, from))) => {
                let connection = serve(Arc::clone(&servers), socket, from, slot, Arc::clone(&proxy), signals.clone());
                connections.spawn(connection);
            }
            Some(Err(error)) => {
                // One that the client took back before it was accepted is no news.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// One for each protocol. Which one a client speaks is looked up before hyper reads: hyper's own detection puts a
/// copying layer under every connection, which doubles its read buffer.
struct Servers {
    http1: Builder<Tracked>,
    http2: Builder<Tracked>,
}

impl Servers {
    fn new(connections: &TaskTracker, config: &Config) -> Self {
        let streams = Tracked { tasks: connections.clone(), read_timeout: config.read_timeout };
        let mut http1 = Builder::new(streams.clone()).http1_only();
        http1
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout)
            .keep_alive(true)
            .half_close(false);
        let mut http2 = Builder::new(streams).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(H2_PING_EVERY)
            .keep_alive_timeout(H2_PING_TIMEOUT)
            .max_concurrent_streams(H2_STREAMS)
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_STREAMS * H2_STREAM_WINDOW);
        Self { http1, http2 }
    }
}

/// HTTP/2 with prior knowledge starts with `PRI`, which no method of HTTP/1.1 does (RFC 9113 §3.4). Takes nothing out
/// of the socket.
async fn speaks_http2(socket: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI";
    let mut start = [0; PREFACE.len()];
    loop {
        let count = socket.peek(&mut start).await?;
        let seen = start.get(..count).unwrap_or_default();
        if seen.is_empty() || !PREFACE.starts_with(seen) {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        // One or two bytes that could be either; rare enough to just look again.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn serve(
    servers: Arc<Servers>,
    socket: TcpStream,
    from: SocketAddr,
    slot: OwnedSemaphorePermit,
    proxy: Arc<Proxy>,
    signals: Signals,
) {
    let open = Open::new(&proxy, slot);
    // Chunks of an event stream must not wait for each other.
    if socket.set_nodelay(true).is_err() {
        return;
    }
    // An address is always a header value.
    let client_ip =
        HeaderValue::try_from(from.ip().to_canonical().to_string()).unwrap_or(HeaderValue::from_static("unknown"));
    let first_bytes = tokio::time::timeout(proxy.config.header_timeout, speaks_http2(&socket));
    let server = match signals.stop.run_until_cancelled(first_bytes).await {
        Some(Ok(Ok(true))) => &servers.http2,
        Some(Ok(Ok(false))) => &servers.http1,
        // Gone, silent for too long, or silent while the replica stops.
        Some(Ok(Err(_)) | Err(_)) | None => return,
    };
    let has_asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        handle(Arc::clone(&proxy), from.ip(), client_ip.clone(), request)
    });
    let mut connection =
        pin!(server.serve_connection(TokioIo::new(Stall::new(socket, proxy.config.read_timeout)), service));
    // HTTP/1.1 has hyper's own timeout; an HTTP/2 client that never asks for anything is caught here.
    let mut first_request = pin!(tokio::time::sleep(proxy.config.header_timeout));
    let mut is_waiting = true;
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    // Clients leave, answers break off: counted where it happens, no news here.
                    tracing::trace!(%error, "client connection ended");
                }
                break;
            }
            () = signals.kill.cancelled() => break,
            () = signals.stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = first_request.as_mut(), if is_waiting => {
                is_waiting = false;
                if !has_asked.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }
    drop(open);
}

/// Counts an open connection and holds its slot.
struct Open<'a> {
    proxy: &'a Proxy,
    _slot: OwnedSemaphorePermit,
}

impl<'a> Open<'a> {
    fn new(proxy: &'a Proxy, slot: OwnedSemaphorePermit) -> Self {
        proxy.metrics.connections.inc();
        Self { proxy, _slot: slot }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.proxy.metrics.connections.dec();
    }
}
