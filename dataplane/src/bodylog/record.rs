//! One request as it is captured, from the moment that it may come in to its end, whatever that is: whole, broken off, or
//! left by the client. It goes to the sender when it is dropped. Nothing here waits, and nothing fails: a record that finds
//! no room is given up and counted, and the request goes on.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::Full;
use jiff::{SignedDuration, Timestamp};
use router_proto::v1::Mode;
use tokio::time::Instant;

use super::BodyLog;
use super::budget::Share;
use super::capture::Capture;
use super::meta::Headers;
use super::redact;
use crate::metrics::RouteMetrics;
use crate::request::error::Error;
use crate::request::tally::CLIENT_LEFT;
use crate::snapshot::RouteEntry;

/// What is kept of a request's body, in bytes: 2 MiB.
const REQUEST_MAX: usize = 2 << 20;
/// Bodies up to this size are copied, as they may be slices of a much larger read buffer.
const COPIED_MAX: usize = 64 << 10;
/// What a record takes up beside its texts and bodies, in bytes; generous.
const BASE_COST: usize = 1 << 10;

/// A record in the making.
#[derive(Debug)]
pub(crate) struct Record {
    log: Arc<BodyLog>,
    /// `None`: given up.
    filled: Option<Box<Finished>>,
}

/// A record that nothing is added to any more.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(super) facts: Facts,
    pub(super) request: Bytes,
    pub(super) response: Capture,
    pub(super) metrics: Arc<RouteMetrics>,
    pub(super) share: Share,
}

/// What is known beside the bodies. Texts are copies: a slice of the request's head would keep its read buffer alive.
#[derive(Debug)]
pub(super) struct Facts {
    /// When the request came, by the wall clock.
    pub(super) at: Timestamp,
    started: Instant,
    /// Not in the reference's meta; the collector labels its metrics by it.
    pub(super) route: String,
    pub(super) request_id: String,
    pub(super) client_ip: String,
    pub(super) method: Method,
    pub(super) uri: String,
    pub(super) headers: Headers,
    pub(super) request_truncated: bool,
    /// The backend asked last, and how many failed before.
    pub(super) peer: Option<(Arc<str>, u32)>,
    pub(super) forwarded_to: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) session_source: HeaderValue,
    pub(super) mode: Option<Mode>,
    /// Whose key it is, by its id. The secret is not kept.
    pub(super) key_id: Option<String>,
    /// What the router refused it for.
    pub(super) refused: Option<String>,
    /// The backend's status, when the route answers 501 in place of it.
    pub(super) hidden_status: Option<u16>,
    pub(super) status: Option<u16>,
    /// From the request's start to the answer's first body byte.
    pub(super) first_chunk: Option<Duration>,
    /// From the request's start to the answer's end, when that was seen.
    pub(super) last_chunk: Option<Duration>,
    /// From the request's start to its end, however it ended.
    pub(super) took: Duration,
}

/// A request as it came in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) has_body: bool,
    pub(crate) client_ip: &'a HeaderValue,
    pub(crate) request_id: &'a HeaderValue,
    /// Blank without a key.
    pub(crate) key_id: &'a str,
    pub(crate) started: Instant,
}

impl BodyLog {
    /// Begins a record when the request is one of those that are captured.
    pub(crate) fn begin(self: &Arc<Self>, route: &RouteEntry, begun: Begun<'_>) -> Option<Record> {
        if !Self::is_sampled(route.bodylog_pct, || rand::random_range(1..=100)) {
            return None;
        }
        let facts = Facts::new(route.name.to_string(), begun);
        let mut share = self.share();
        if !share.grow(BASE_COST + facts.uri.len() + facts.headers.cost()) {
            self.drop_one(&route.metrics);
            return None;
        }
        let metrics = Arc::clone(&route.metrics);
        let filled = Finished { facts, request: Bytes::new(), response: Capture::default(), metrics, share };
        Some(Record { log: Arc::clone(self), filled: Some(Box::new(filled)) })
    }
}

impl Facts {
    fn new(route: String, begun: Begun<'_>) -> Self {
        let Begun { head, has_body, client_ip, request_id, key_id, started } = begun;
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let elapsed = SignedDuration::try_from(started.elapsed()).unwrap_or_default();
        let now = Timestamp::now();
        let is_bodiless =
            matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE | Method::TRACE);
        Self {
            at: now.checked_sub(elapsed).unwrap_or(now),
            started,
            route,
            request_id: text(request_id),
            client_ip: text(client_ip),
            method: head.method.clone(),
            uri: head.uri.path_and_query().map_or_else(String::new, |uri| redact::uri(uri.as_str()).into_owned()),
            headers: Headers::without_secrets(&head.headers),
            // Until the body is known.
            request_truncated: has_body && !is_bodiless,
            peer: None,
            forwarded_to: None,
            session_id: None,
            session_source: HeaderValue::from_static("none"),
            mode: None,
            key_id: Some(key_id).filter(|id| !id.is_empty()).map(str::to_owned),
            refused: None,
            hidden_status: None,
            status: None,
            first_chunk: None,
            last_chunk: None,
            took: Duration::ZERO,
        }
    }
}

impl Record {
    /// The client's body, before anything is changed in it.
    pub(crate) fn request(&mut self, body: &Bytes) {
        let Some(filled) = &mut self.filled else { return };
        filled.facts.request_truncated = body.len() > REQUEST_MAX;
        let kept = body.get(..REQUEST_MAX).unwrap_or(body);
        if !filled.share.grow(kept.len()) {
            return self.give_up();
        }
        // Between the two sizes a body is a buffer of its own, and is shared. The start of a longer one is copied, or all of
        // it would stay in memory for as long as the answer takes.
        let is_shared = body.len() > COPIED_MAX && body.len() <= REQUEST_MAX;
        filled.request = if is_shared { body.clone() } else { Bytes::copy_from_slice(kept) };
    }

    /// Whose turn it is. The id is told to the collector only.
    pub(crate) fn session(&mut self, source: &HeaderValue, id: Option<Vec<u8>>) {
        let Some(filled) = &mut self.filled else { return };
        filled.facts.session_source = source.clone();
        filled.facts.session_id = id.map(|id| String::from_utf8_lossy(&id).into_owned());
    }

    /// This backend (`host:port`) is asked now, after so many that failed.
    pub(crate) fn chosen(&mut self, mode: Mode, backend: &Arc<str>, failed: u32) {
        let Some(filled) = &mut self.filled else { return };
        filled.facts.mode = Some(mode);
        filled.facts.peer = Some((Arc::clone(backend), failed));
    }

    /// A backend's head is here. `forwarded_to`: its `X-Routed-Peer`.
    pub(crate) fn answered(&mut self, status: StatusCode, forwarded_to: Option<&HeaderValue>) {
        let Some(filled) = &mut self.filled else { return };
        filled.facts.status = Some(status.as_u16());
        filled.facts.forwarded_to = forwarded_to.and_then(|value| value.to_str().ok()).map(str::to_owned);
    }

    /// No backend's answer goes to the client. Of a refusal the gate's code is kept, or `rule:` and the rule's name.
    pub(crate) fn failed(&mut self, error: &Error) {
        let Some(filled) = &mut self.filled else { return };
        match error {
            Error::HiddenStatus { status } => filled.facts.hidden_status = Some(*status),
            Error::Refused(refused) => filled.facts.refused = Some(refused.gate.code().to_owned()),
            Error::RejectedByRule(rejected) => filled.facts.refused = Some(format!("rule:{}", rejected.rule)),
            _ => {}
        }
    }

    /// The router itself answers.
    pub(crate) fn answered_here(&mut self, response: &Response<Full<Bytes>>) {
        self.answered(response.status(), None);
        // Such a body is there at once.
        let mut body = response.body().clone();
        let frame = std::pin::Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(Some(Ok(frame))) = frame
            && let Ok(chunk) = frame.into_data()
        {
            self.saw(&chunk);
        }
        self.is_whole();
    }

    /// A chunk of the answer passes, as the backend sent it.
    pub(crate) fn saw(&mut self, chunk: &[u8]) {
        let Some(filled) = &mut self.filled else { return };
        if chunk.is_empty() {
            return;
        }
        let Finished { facts, response, share, .. } = &mut **filled;
        let more = response.push(chunk);
        if facts.first_chunk.is_none() {
            facts.first_chunk = Some(facts.started.elapsed());
        }
        if more > 0 && !share.grow(more) {
            self.give_up();
        }
    }

    /// The answer has ended as it should.
    pub(crate) fn is_whole(&mut self) {
        if let Some(filled) = &mut self.filled {
            filled.facts.last_chunk = Some(filled.facts.started.elapsed());
        }
    }

    /// The request is none of those that are logged.
    fn give_up(&mut self) {
        if let Some(filled) = self.filled.take() {
            self.log.drop_one(&filled.metrics);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(mut filled) = self.filled.take() {
            // As it is counted (conventions §1).
            filled.facts.status.get_or_insert(CLIENT_LEFT);
            filled.facts.took = filled.facts.started.elapsed();
            self.log.take(filled);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
