//! Which answers are rewritten on their way to the client, and what their heads may still say then (payloads.md §5.1,
//! rulings §7). What is done to their bytes is [`router_policy::sse`]'s.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use router_policy::sse::rewrite::{HELD_MAX, Handler, Output, Rewriter};

use super::headers::{forget_digests, is_media_type, is_plain};
use crate::budget::{Budget, Share};
use crate::metrics::RouteMetrics;

/// What all JSON answers together may take up that are held at the same time, in bytes. What is over it passes as it is.
pub(crate) const HELD_IN_ALL: usize = 256 << 20;

/// What is done to a route's answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// `postprocess`
    pub(crate) handler: Option<Handler>,
    /// The client did not ask for the usage frame that the router asked for.
    pub(crate) hides_usage: bool,
    /// An answer to HEAD has no bytes, but its head is that of one which has.
    pub(crate) is_head: bool,
}

/// Rewrites one answer.
#[derive(Debug)]
pub(crate) struct Rewriting {
    rewriter: Rewriter,
    /// Of a JSON answer: what it may take up, and what it takes up so far.
    held: Option<(Share, usize)>,
    metrics: Arc<RouteMetrics>,
    is_told: bool,
}

impl Rewriting {
    /// `None`: the answer passes as it is. Else its head no longer states anything of its bytes.
    pub(crate) fn of<B: Body>(
        answer: &mut Response<B>,
        wanted: Wanted,
        metrics: &Arc<RouteMetrics>,
        budget: &Arc<Budget>,
    ) -> Option<Box<Self>> {
        if wanted.handler.is_none() && !wanted.hides_usage {
            return None;
        }
        let has_bytes = wanted.is_head || !answer.body().is_end_stream();
        // A part of an answer is none of its lines or its document.
        let is_whole = answer.status().is_success() && answer.status() != StatusCode::PARTIAL_CONTENT;
        if !is_whole || !has_bytes || !is_plain(answer.headers()) {
            return None;
        }
        let (rewriter, held) = if is_media_type(answer.headers(), b"text/event-stream") {
            (Rewriter::events(wanted.handler, wanted.hides_usage), None)
        } else if is_media_type(answer.headers(), b"application/json") {
            let handler = wanted.handler?;
            let stated = stated_length(answer.headers()).unwrap_or(0);
            let mut share = Share::new(Arc::clone(budget));
            let reserved = if wanted.is_head { 0 } else { stated };
            if stated > HELD_MAX || !share.grow_to(reserved) {
                metrics.passed.answer();
                return None;
            }
            (Rewriter::json(handler), Some((share, 0)))
        } else {
            return None;
        };
        for name in [CONTENT_LENGTH, ETAG] {
            answer.headers_mut().remove(name);
        }
        forget_digests(answer.headers_mut());
        Some(Box::new(Self { rewriter, held, metrics: Arc::clone(metrics), is_told: false }))
    }

    /// What the client is sent for a chunk; `None`: nothing yet.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Option<Bytes> {
        if let Some((share, held)) = &mut self.held {
            *held = held.saturating_add(chunk.len());
            // More than any answer may have is not asked for: the rewriter gives up by itself.
            if !share.grow_to((*held).min(HELD_MAX)) {
                self.held = None;
                let mut passes = self.rewriter.give_up();
                self.tell();
                passes.extend_from_slice(&chunk);
                return some(passes.into());
            }
        }
        let output = self.rewriter.push(&chunk);
        if self.rewriter.gave_up() {
            self.held = None;
            self.tell();
        }
        match output {
            Output::Same => some(chunk),
            Output::First(bytes) => some(chunk.slice(..bytes.min(chunk.len()))),
            Output::Changed(changed) => some(changed.into()),
        }
    }

    /// The answer is complete.
    pub(crate) fn end(mut self) -> Option<Bytes> {
        some(self.rewriter.end().into())
    }

    /// Something passes as it is. Counted once for each answer.
    fn tell(&mut self) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.metrics.passed.answer();
        }
    }
}

fn stated_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn some(bytes: Bytes) -> Option<Bytes> {
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
#[path = "rewrite/tests.rs"]
mod tests;
