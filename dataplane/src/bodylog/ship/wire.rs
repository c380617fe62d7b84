//! The connection to the collector. It says nothing, so what can be read from it is its end.

use std::io;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::batch::Batch;
use crate::coordinate::backoff::Backoff;

/// For a connection, and for each piece that the collector must take.
const PATIENCE: Duration = Duration::from_secs(1);
/// What the kernel may hold, in bytes: of what is in there, nobody knows whether a collector that was killed has read it.
const SEND_BUFFER: usize = 256 << 10;
/// A frame that is not written by then is given up, or it would hold up all others.
const TRIES: u32 = 4;
/// After a connection whose reader stood still: doubling, so that few of them are left behind at any time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(32);
/// A connection that served so long makes up for the stalls before it.
const CALM: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Wire {
    host: String,
    port: u16,
    stream: Option<TcpStream>,
    /// 1 while there is one.
    connected: Gauge,
    opened: Instant,
    backoff: Backoff,
    pause: Duration,
    /// Of the frame that is first now.
    failures: u32,
}

/// Why nothing more goes over a connection.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(io::Error),
    Broken(io::Error),
    /// The collector reads nothing.
    Stalled,
}

impl Wire {
    pub(super) fn new(host: String, port: u16, connected: Gauge) -> Self {
        let (opened, backoff) = (Instant::now(), Backoff::new());
        Self { host, port, connected, stream: None, opened, backoff, pause: FIRST_PAUSE, failures: 0 }
    }

    /// Ends when the collector has closed the connection; never while there is none.
    pub(super) async fn closed(&mut self) {
        let Some(stream) = &self.stream else { return std::future::pending().await };
        let mut word = [0; 64];
        loop {
            match stream.readable().await.and_then(|()| stream.try_read(&mut word)) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
            }
        }
        self.close();
    }

    fn close(&mut self) {
        self.stream = None;
        self.connected.set(0);
    }

    /// Writes all, over as many connections as that takes. Waits for as long as the collector is down.
    pub(super) async fn send(&mut self, batch: &mut Batch) {
        while let Err(failure) = self.try_send(batch).await {
            let is_first = self.backoff.tries() == 0;
            let pause = match &failure {
                Failure::Connect(error) => {
                    if is_first {
                        tracing::warn!(%error, "body log: no connection to the collector; records wait in the buffer");
                    }
                    self.backoff.next()
                }
                Failure::Broken(error) => {
                    tracing::info!(%error, "body log: the connection to the collector broke");
                    self.backoff.next()
                }
                Failure::Stalled => {
                    let calm = self.opened.elapsed() > CALM;
                    let pause = if calm { FIRST_PAUSE } else { self.pause };
                    self.pause = (pause * 2).min(LONGEST_PAUSE);
                    tracing::warn!(?pause, "body log: the collector does not read; records wait in the buffer");
                    pause
                }
            };
            if !matches!(failure, Failure::Connect(_)) {
                self.failures += 1;
                if self.failures >= TRIES {
                    batch.skip();
                    self.failures = 0;
                }
            }
            if batch.is_empty() {
                break;
            }
            sleep(pause).await;
        }
    }

    /// Writes all, over one connection; at the first failure that one is closed.
    pub(super) async fn try_send(&mut self, batch: &mut Batch) -> Result<(), Failure> {
        let sent = self.write(batch).await;
        if sent.is_err() {
            self.close();
            batch.rewind();
        }
        sent
    }

    async fn write(&mut self, batch: &mut Batch) -> Result<(), Failure> {
        if self.stream.is_none() {
            let opened = timeout(PATIENCE, TcpStream::connect((self.host.as_str(), self.port))).await;
            let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            self.stream = Some(opened.and_then(prepared).map_err(Failure::Connect)?);
            self.opened = Instant::now();
            self.connected.set(1);
            tracing::info!(host = self.host, port = self.port, "body log: connected to the collector");
        }
        let Some(stream) = &self.stream else { return Ok(()) };
        while !batch.is_empty() {
            match timeout(PATIENCE, stream.writable()).await {
                Err(_) => return Err(Failure::Stalled),
                Ok(ready) => ready.map_err(Failure::Broken)?,
            }
            match stream.try_write(batch.unwritten()) {
                Ok(count) => {
                    if batch.wrote(count) {
                        self.failures = 0;
                        self.backoff.reset();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Failure::Broken(error)),
            }
        }
        Ok(())
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
    Ok(stream)
}
