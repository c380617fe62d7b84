//! The response body on its way to the client. It owns the lease, the upstream connection and the request's tally, so
//! that every way in which an answer can end is one of its ends: whole, broken off, too silent, or dropped because the
//! client left. Chunks pass as they arrive; nothing is allocated for one, unless the answer is rewritten and it is changed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::client::{Conn, Pool};
use super::rewrite::Rewriting;
use super::sample::Sampler;
use crate::bodylog::record::Record;
use crate::coordinate::Lease;
use crate::coordinate::lease::Outcome;
use crate::request::tally::Tally;
use crate::server::reader::Reader;

/// Chunks that the rewriting may keep in one go before other tasks have their turn.
const KEPT_AT_ONCE: u32 = 64;

/// Why an answer stops before its end. The server aborts the client's connection: a broken answer never looks whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    #[error("the backend's answer broke off")]
    Broken,
    #[error("the backend was silent for too long")]
    Silent,
}

/// Watches for a backend's silence with one timer for the whole request. A chunk only clears a field; the timer is set
/// anew when it fires and finds that the silence is younger than it thought.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    /// Since when the router waits for the backend. Time in which the client does not read doesn't count.
    since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, since: None, timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// The backend said something.
    pub(crate) fn broken(&mut self) {
        self.since = None;
    }

    /// Called when there is nothing to pass on. Ready when the silence has lasted too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        while self.timer.as_mut().poll(cx).is_ready() {
            let until = since + self.limit;
            if until <= Instant::now() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
        Poll::Pending
    }
}

/// What an answer's stream is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) incoming: Incoming,
    pub(crate) conn: Box<Conn>,
    pub(crate) pool: Arc<Pool>,
    /// `None` for an answer that is passed on after its lease has ended.
    pub(crate) lease: Option<Lease>,
    pub(crate) silence: Silence,
    pub(crate) tally: Tally,
    pub(crate) sampler: Option<Sampler>,
    /// For the body log; goes there when it is dropped.
    pub(crate) record: Option<Record>,
    /// `None`: the client is sent what the backend sends.
    pub(crate) rewriting: Option<Box<Rewriting>>,
    /// [`Outcome::Complete`], or what a backend's error that is passed on counts as.
    pub(crate) outcome: Outcome,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    /// `Some` until the end.
    open: Option<Open>,
    pool: Arc<Pool>,
    silence: Silence,
    first_byte: Option<FirstByte>,
    /// Bytes still to come, when the backend stated a length.
    remaining: Option<u64>,
    /// `Some` until its last bytes have left. What it holds when an answer breaks off is not sent.
    rewriting: Option<Box<Rewriting>>,
    /// Told whether the client or the backend is waited for.
    reader: Option<Reader>,
}

#[derive(Debug)]
struct Open {
    conn: Box<Conn>,
    lease: Option<Lease>,
    tally: Tally,
    sampler: Option<Sampler>,
    record: Option<Record>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy)]
struct FirstByte {
    at: Instant,
    /// Since the request's head, queue time left out.
    ttft: Duration,
}

impl Open {
    fn first_byte(&mut self) -> FirstByte {
        let ttft = self.tally.first_byte();
        if let Some(lease) = &mut self.lease {
            lease.first_byte_after(ttft);
        }
        if let Some(sampler) = &self.sampler {
            sampler.begins(ttft, self.lease.as_ref());
        }
        FirstByte { at: Instant::now(), ttft }
    }
}

impl UpstreamBody {
    /// An answer without a body has ended by now.
    pub(crate) fn new(parts: Parts, cx: &mut Context<'_>) -> Self {
        let remaining = parts.incoming.size_hint().exact();
        let has_ended = parts.incoming.is_end_stream();
        let mut body = Self {
            incoming: parts.incoming,
            open: Some(Open {
                conn: parts.conn,
                lease: parts.lease,
                tally: parts.tally,
                sampler: parts.sampler,
                record: parts.record,
                outcome: parts.outcome,
            }),
            pool: parts.pool,
            silence: parts.silence,
            first_byte: None,
            remaining,
            rewriting: parts.rewriting.filter(|_| !has_ended),
            reader: Reader::current(),
        };
        if has_ended {
            body.complete(cx);
        }
        body
    }

    fn complete(&mut self, cx: &mut Context<'_>) {
        if let Some(mut open) = self.open.take() {
            let times = self.first_byte.map(|first| (first.ttft, first.at.elapsed()));
            // Before the lease, whose end carries the counts; the slot is all the same free before the client can know
            // that the answer is whole.
            let sample = open.sampler.take().map(Sampler::end);
            if let Some(mut lease) = open.lease.take() {
                if let Some((_, decode)) = times {
                    lease.decoded_for(decode);
                }
                if let Some(sample) = &sample {
                    lease.used(sample.usage);
                }
                lease.end(open.outcome);
            }
            if let Some(record) = &mut open.record {
                record.is_whole();
            }
            self.pool.give(open.conn, cx);
            if let (Some(sample), Some((ttft, decode))) = (sample, times) {
                sample.count(ttft, decode);
            }
        }
    }

    /// Dropping the connection closes its socket.
    fn fail(&mut self, outcome: Outcome) {
        self.rewriting = None;
        if let Some(mut open) = self.open.take()
            && let Some(lease) = open.lease.take()
        {
            lease.end(outcome);
        }
    }

    /// What the client is sent for a chunk; `None`: nothing yet.
    fn rewritten(&mut self, chunk: Bytes) -> Option<Bytes> {
        match &mut self.rewriting {
            Some(rewriting) => rewriting.push(chunk),
            None => Some(chunk),
        }
    }

    /// What is left to be sent once the backend's answer is complete.
    fn rest(&mut self) -> Option<Result<Frame<Bytes>, StreamError>> {
        let rest = self.rewriting.take()?.end()?;
        self.awaits_client(true);
        Some(Ok(Frame::data(rest)))
    }

    fn awaits_client(&self, is_awaited: bool) {
        if let Some(reader) = &self.reader {
            reader.is_awaited(is_awaited);
        }
    }

    fn passed(&mut self, chunk: &Bytes, cx: &mut Context<'_>) {
        self.silence.broken();
        self.awaits_client(true);
        if let Some(open) = &mut self.open {
            if self.first_byte.is_none() && !chunk.is_empty() {
                self.first_byte = Some(open.first_byte());
            }
            if let Some(record) = &mut open.record {
                record.saw(chunk);
            }
            if let Some(sampler) = &mut open.sampler {
                sampler.saw(chunk);
            }
        }
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(chunk.len() as u64);
            // The server may not ask again after the last byte of a stated length.
            if *remaining == 0 {
                self.complete(cx);
            }
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let this = &mut *self;
        let (mut asked, mut kept) = (0, 0);
        // Asking the body for a frame is what lets hyper read on, so a body that has none is asked again after that.
        while asked < 2 {
            let Some(open) = &mut this.open else { return Poll::Ready(this.rest()) };
            open.conn.drive(cx);
            match Pin::new(&mut this.incoming).poll_frame(cx) {
                Poll::Pending => asked += 1,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => {
                        this.passed(&chunk, cx);
                        if let Some(chunk) = this.rewritten(chunk) {
                            return Poll::Ready(Some(Ok(Frame::data(chunk))));
                        }
                        (asked, kept) = (0, kept + 1);
                        if kept == KEPT_AT_ONCE {
                            this.awaits_client(false);
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                    }
                    // Trailers end here: they are hop-by-hop for this router.
                    Err(_trailers) => {
                        this.complete(cx);
                        return Poll::Ready(this.rest());
                    }
                },
                Poll::Ready(None) => {
                    this.complete(cx);
                    return Poll::Ready(this.rest());
                }
                Poll::Ready(Some(Err(_))) => {
                    this.fail(Outcome::StreamBroken);
                    return Poll::Ready(Some(Err(StreamError::Broken)));
                }
            }
        }
        this.awaits_client(false);
        if this.silence.poll(cx).is_ready() {
            this.fail(Outcome::Timeout);
            return Poll::Ready(Some(Err(StreamError::Silent)));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.open.is_none() && self.rewriting.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Some(remaining) if self.rewriting.is_none() => SizeHint::with_exact(remaining),
            _ => SizeHint::default(),
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        // Still open: the client left. The lease says so by itself, and the connection closes with it.
        if let Some(open) = &mut self.open {
            open.tally.client_left();
        }
    }
}
