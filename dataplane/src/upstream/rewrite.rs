//! Which answers are rewritten on their way to the client, and what their heads may still say then (payloads.md §5.1,
//! rulings §7). What is done to their bytes is [`router_policy::sse`]'s.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG};
use http::{HeaderName, Response};
use http_body::Body;
use router_policy::ids::RouteName;
use router_policy::sse::rewrite::{Handler, Output, Rewriter};

use super::headers::{is_media_type, is_plain};

/// What states something of the very bytes.
const OF_BYTES: [HeaderName; 6] = [
    CONTENT_LENGTH,
    ETAG,
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
];

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
    route: RouteName,
    is_logged: bool,
}

impl Rewriting {
    /// `None`: the answer passes as it is. Else its head no longer states anything of its bytes.
    pub(crate) fn of<B: Body>(answer: &mut Response<B>, wanted: Wanted, route: &RouteName) -> Option<Box<Self>> {
        let has_bytes = wanted.is_head || !answer.body().is_end_stream();
        if !answer.status().is_success() || !has_bytes || !is_plain(answer.headers()) {
            return None;
        }
        let rewriter = if is_media_type(answer.headers(), b"text/event-stream") {
            (wanted.handler.is_some() || wanted.hides_usage)
                .then(|| Rewriter::events(wanted.handler, wanted.hides_usage))?
        } else if is_media_type(answer.headers(), b"application/json") {
            Rewriter::json(wanted.handler?)
        } else {
            return None;
        };
        for name in &OF_BYTES {
            answer.headers_mut().remove(name);
        }
        Some(Box::new(Self { rewriter, route: route.clone(), is_logged: false }))
    }

    /// What the client is sent for a chunk; `None`: nothing yet.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Option<Bytes> {
        let output = self.rewriter.push(&chunk);
        if self.rewriter.gave_up() && !self.is_logged {
            self.is_logged = true;
            tracing::warn!(route = %self.route, "an answer or a line of it is too large to be rewritten and passes as it is");
        }
        match output {
            Output::Same => Some(chunk),
            Output::Changed(changed) => some(changed),
        }
    }

    /// The answer is complete.
    pub(crate) fn end(mut self) -> Option<Bytes> {
        some(self.rewriter.end())
    }
}

fn some(bytes: Vec<u8>) -> Option<Bytes> {
    (!bytes.is_empty()).then(|| Bytes::from(bytes))
}
