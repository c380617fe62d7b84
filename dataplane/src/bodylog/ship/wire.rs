//! The connection to the collector. It says nothing, so what can be read from it is its end: a collector that stops ends its
//! side first and reads on until this one has ended too, so what is on its way then is not lost.
//!
//! A collector that reads nothing, as with a full disk, is waited for on the same connection: what the kernel holds of one that
//! is left behind would be lost, and counted nowhere.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::batch::Batch;
use crate::coordinate::backoff::Backoff;

/// For a connection.
const PATIENCE: Duration = Duration::from_secs(1);
/// When nothing is read for so long, another connection is tried, to see whether the collector is there at all. Then the time
/// doubles, up to the longest.
const FIRST_STALL: Duration = Duration::from_secs(1);
const LONGEST_STALL: Duration = Duration::from_secs(32);
/// What the kernel may hold, in bytes; it doubles this. Of what is in there, nobody knows whether a collector that was killed
/// has read it.
const SEND_BUFFER: usize = 64 << 10;
/// A frame that is not written by then is given up, or it would hold up all others.
const TRIES: u32 = 4;
/// One that ends sooner was of no use, whatever it took: the collector of the reference ends connections when its disk is
/// full. The next one is opened later and later.
const SETTLED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Wire {
    host: String,
    port: u16,
    stream: Option<TcpStream>,
    /// 1 while there is one.
    connected: Gauge,
    opened: Instant,
    /// No connection is opened before.
    not_before: Instant,
    backoff: Backoff,
    /// Of the frame that is first now.
    failures: u32,
    said: Said,
}

/// What the log has last said. Only changes go there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Connected,
    Unreachable,
    Broken,
    Stalled,
}

/// Why nothing more goes over a connection.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(io::Error),
    Broken(io::Error),
    /// It is not there any more: neither does it read, nor can it be reached.
    Gone,
}

impl Wire {
    pub(super) fn new(host: String, port: u16, connected: Gauge) -> Self {
        let (now, backoff) = (Instant::now(), Backoff::new());
        let said = Said::Nothing;
        Self { host, port, stream: None, connected, opened: now, not_before: now, backoff, failures: 0, said }
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
        self.end();
    }

    fn close(&mut self) {
        self.stream = None;
        self.connected.set(0);
    }

    /// The collector has ended the connection, between two frames.
    fn end(&mut self) {
        self.close();
        if self.opened.elapsed() < SETTLED {
            self.not_before = Instant::now() + self.backoff.next();
            self.say(Said::Broken, None);
        } else {
            self.backoff.reset();
        }
    }

    /// Writes all, over as many connections as that takes. Waits for as long as the collector is down.
    pub(super) async fn send(&mut self, batch: &mut Batch) {
        loop {
            self.look();
            if self.stream.is_none() {
                sleep_until(self.not_before).await;
            }
            let Err(failure) = self.try_send(batch).await else { break };
            match &failure {
                Failure::Connect(error) => self.say(Said::Unreachable, Some(error)),
                Failure::Broken(error) => self.say(Said::Broken, Some(error)),
                Failure::Gone => self.say(Said::Unreachable, None),
            }
            let pause = self.backoff.next();
            if matches!(failure, Failure::Broken(_)) {
                self.failures += 1;
                if self.failures >= TRIES {
                    batch.skip();
                    self.failures = 0;
                }
            }
            if batch.is_empty() {
                // The next one waits in its place.
                self.not_before = Instant::now() + pause;
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

    /// A connection that has ended takes no frame any more.
    fn look(&mut self) {
        if self.stream.as_ref().is_some_and(has_ended) {
            self.end();
        }
    }

    async fn write(&mut self, batch: &mut Batch) -> Result<(), Failure> {
        self.look();
        if self.stream.is_none() {
            self.stream = Some(self.connect().await.and_then(prepared).map_err(Failure::Connect)?);
            self.opened = Instant::now();
            self.connected.set(1);
            // After trouble it has to serve for a while before it counts.
            if self.said == Said::Nothing {
                self.say(Said::Connected, None);
            }
        }
        let mut patience = FIRST_STALL;
        while !batch.is_empty() {
            let Some(stream) = &self.stream else { return Ok(()) };
            let Ok(ready) = timeout(patience, stream.writable()).await else {
                if !self.is_there(stream).await {
                    return Err(Failure::Gone);
                }
                self.say(Said::Stalled, None);
                patience = (patience * 2).min(LONGEST_STALL);
                continue;
            };
            ready.map_err(Failure::Broken)?;
            match stream.try_write(batch.unwritten()) {
                Ok(count) => {
                    patience = FIRST_STALL;
                    if batch.wrote(count) {
                        self.failures = 0;
                        if self.opened.elapsed() >= SETTLED {
                            self.backoff.reset();
                            self.say(Said::Connected, None);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Failure::Broken(error)),
            }
        }
        Ok(())
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let opened = timeout(PATIENCE, TcpStream::connect((self.host.as_str(), self.port))).await;
        opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Whether the collector can still be reached where this connection goes. The kernel alone would take a quarter of an hour
    /// to find out that its host is gone.
    async fn is_there(&self, stream: &TcpStream) -> bool {
        let Ok(other) = self.connect().await else { return false };
        matches!((other.peer_addr(), stream.peer_addr()), (Ok(there), Ok(here)) if there == here)
    }

    fn say(&mut self, now: Said, error: Option<&io::Error>) {
        if std::mem::replace(&mut self.said, now) == now {
            return;
        }
        let error = error.map(tracing::field::display);
        match now {
            Said::Nothing => {}
            Said::Connected => {
                tracing::info!(host = self.host, port = self.port, "body log: connected to the collector");
            }
            Said::Unreachable => {
                tracing::warn!(error, "body log: no connection to the collector; records wait in the buffer");
            }
            Said::Broken => {
                tracing::warn!(error, "body log: the collector ends its connections; records wait in the buffer");
            }
            Said::Stalled => {
                tracing::warn!("body log: the collector does not read; records wait in the buffer");
            }
        }
    }
}

/// Whether the collector has ended its side. The kernel is asked: the runtime may not know yet.
fn has_ended(stream: &TcpStream) -> bool {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)?;
    Ok(stream)
}
