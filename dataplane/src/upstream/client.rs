//! Connections to backends and the pool of idle ones.
//!
//! A connection is driven by whoever uses it, not by a task of its own: a request costs no wake-up across tasks, and
//! dropping the connection closes its socket at that moment. Idle connections lie still until taken or too old.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Engines close idle connections after 5 s (uvicorn); a younger one is likely alive (conventions §2).
const IDLE_MAX: Duration = Duration::from_millis(3500);
/// Idle connections kept per backend. More than a burst needs only cost file descriptors.
const IDLE_PER_BACKEND: usize = 256;
/// Read from a backend at once, in bytes. Half of hyper's own choice: a slow stream holds one for as long as it lasts.
const READ_BUFFER: usize = 4096;
const SWEEP_EVERY: Duration = Duration::from_secs(1);

type Driver = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// One HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Conn {
    backend: Arc<str>,
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<Driver>,
    idle_since: Instant,
    is_reused: bool,
}

/// The connection gave no response head.
#[derive(Debug)]
pub(crate) struct NoHead {
    /// The connection had served before: the backend may just have closed it for idleness.
    pub(crate) was_stale: bool,
}

impl Conn {
    async fn open(backend: &Arc<str>, connect_timeout: Duration) -> io::Result<Box<Self>> {
        let socket = tokio::time::timeout(connect_timeout, TcpStream::connect(backend.as_ref())).await??;
        socket.set_nodelay(true)?;
        let handshake =
            http1::Builder::new().read_buf_exact_size(Some(READ_BUFFER)).handshake(TokioIo::new(socket)).await;
        let (sender, driver) = handshake.map_err(io::Error::other)?;
        Ok(Box::new(Self {
            backend: Arc::clone(backend),
            sender,
            driver: Some(driver),
            idle_since: Instant::now(),
            is_reused: false,
        }))
    }

    /// Lets reads and writes that are possible now happen.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // Ended, well or badly; whoever waits on it (head or body) hears of it from hyper.
            self.driver = None;
        }
    }

    /// Sends a request and waits for the response's head.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NoHead> {
        let mut head = std::pin::pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            self.drive(cx);
            head.as_mut().poll(cx)
        });
        // What can't be parsed was a byte all the same: that connection was alive.
        answered.await.map_err(|error| NoHead { was_stale: self.is_reused && !error.error().is_parse() })
    }

    /// Whether another request can go out on it.
    fn is_reusable(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Idle connections, last in first out, per backend.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a connection is moved in its box, from the pool into the answer's body and back")]
pub(crate) struct Pool {
    /// Bounded: lists of [`IDLE_PER_BACKEND`], swept of what is too old; an empty one is removed.
    idle: Mutex<HashMap<Arc<str>, Vec<Box<Conn>>>>,
}

impl Pool {
    /// An idle connection that is young enough.
    pub(crate) fn take(&self, backend: &str) -> Option<Box<Conn>> {
        let mut conn = self.idle.lock().get_mut(backend)?.pop()?;
        conn.is_reused = true;
        // The last in is the youngest: if that is too old, so are all others, and the sweep gets them.
        (conn.idle_since.elapsed() < IDLE_MAX).then_some(conn)
    }

    /// A new connection.
    pub(crate) async fn open(&self, backend: &Arc<str>, connect_timeout: Duration) -> io::Result<Box<Conn>> {
        Conn::open(backend, connect_timeout).await
    }

    /// Takes a connection back whose response has been read whole. It is driven once more so that hyper can see that the
    /// exchange is over; one that isn't ready then is closed.
    pub(crate) fn give(&self, mut conn: Box<Conn>, cx: &mut Context<'_>) {
        conn.drive(cx);
        if !conn.is_reusable() {
            return;
        }
        conn.idle_since = Instant::now();
        let mut idle = self.idle.lock();
        if let Some(list) = idle.get_mut(&conn.backend) {
            if list.len() < IDLE_PER_BACKEND {
                list.push(conn);
            }
        } else {
            idle.insert(Arc::clone(&conn.backend), vec![conn]);
        }
    }

    fn sweep(&self) {
        let mut too_old = Vec::new();
        self.idle.lock().retain(|_, list| {
            // The oldest stand first.
            let young = list.iter().position(|conn| conn.idle_since.elapsed() < IDLE_MAX).unwrap_or(list.len());
            too_old.extend(list.drain(..young));
            !list.is_empty()
        });
        // Sockets close here, outside the lock.
        drop(too_old);
    }

    /// Closes what is too old, until `stop`; then everything.
    pub(crate) async fn keep_young(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            self.sweep();
        }
        self.idle.lock().clear();
    }
}
