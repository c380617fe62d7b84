//! One request, as a list of steps (design.md §3). Called by the server for each request of each connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use router_policy::header::context_window;
use tokio::sync::Semaphore;

use self::attempts::Answer;
use self::content::Content;
use super::body::Intake;
use super::error::Error;
use super::error_response::{self, Shape};
use super::id::RequestIds;
use super::page::{self, Page, Port};
use super::routed::{PEER, Routed};
use super::tally::Tally;
use super::{auth, body, health, host, models, route, session, upload};
use crate::bodylog::BodyLog;
use crate::bodylog::record::{Begun, Record};
use crate::config::Config;
use crate::coordinate::lease::Outcome;
use crate::coordinate::{Admission, Ask, Client, Reservation};
use crate::metrics::Metrics;
use crate::server::readiness::Readiness;
use crate::snapshot::SnapshotStore;
use crate::upstream::client::Pool;
use crate::upstream::forward::Outbound;
use crate::upstream::headers::{self, REQUEST_ID};
use crate::upstream::rewrite::{Rewriting, Wanted};
use crate::upstream::stream::{Parts, StreamError, UpstreamBody};

mod attempts;
mod content;

/// How long a request waits in a replica that has just started. A load balancer that finds replicas by name sends to a new
/// one at once, and takes it out only when its first checks have failed.
const FIRST_SNAPSHOT_WITHIN: Duration = Duration::from_secs(5);

/// Everything that requests share.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) config: Config,
    pub(crate) snapshots: Arc<SnapshotStore>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) request_ids: RequestIds,
    pub(crate) model_turns: models::Turns,
    /// For what is asked one by one.
    pub(crate) control_plane: Client,
    /// Whose turn it is to have its body read for a page.
    pub(crate) inspections: Semaphore,
    /// `None`: off.
    pub(crate) body_log: Option<Arc<BodyLog>>,
    /// The traffic listener's address is loopback.
    pub(crate) is_loopback: bool,
}

/// What a client is sent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the server boxes the body; the large variant is the frequent one")]
pub(crate) enum ResponseBody {
    /// Made here.
    Own(Full<Bytes>),
    /// A backend's.
    Upstream(UpstreamBody),
}

/// Answers one request. There is always an answer.
pub(crate) async fn handle(
    proxy: Arc<Proxy>,
    peer: IpAddr,
    client_ip: HeaderValue,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let has_host = host::check(request.version(), request.headers()).is_ok();
    if has_host && let Some(answer) = health::answer(request.uri().path(), || proxy.readiness.check()) {
        return Ok(answer.map(ResponseBody::Own));
    }
    if has_host && proxy.config.debug_endpoints && Page::of(request.uri().path()).is_some() {
        let caller = page::Caller::of(Port::Traffic, peer, request.method(), request.uri(), request.headers());
        if caller.is_local {
            return Ok(Box::pin(page::answer(&proxy, caller, request)).await.map(ResponseBody::Own));
        }
    }
    let request_id = proxy.request_ids.of(request.headers());
    let is_head = request.method() == Method::HEAD;
    let mut exchange = Exchange {
        proxy: &proxy,
        routed: Routed::default(),
        tally: Tally::new(Arc::clone(&proxy.metrics)),
        shape: Shape::OpenAi,
        has_left: Arc::default(),
        record: None,
    };
    // In a box of its own, so that a stream does not hold on to the room that was needed before its head.
    let answered = Box::pin(exchange.run(request, &client_ip, &request_id)).await;
    let Exchange { routed, mut tally, shape, has_left, mut record, .. } = exchange;
    let mut response = match answered {
        Ok(Reply::Backend(Answer { response, conn, mut lease, silence, sampler, rewriting })) => {
            tally.answered(response.status());
            if let Some(lease) = &mut lease {
                lease.answered(response.status());
            }
            let (mut head, incoming) = response.into_parts();
            if let Some(record) = &mut record {
                record.answered(head.status, head.headers.get(PEER));
            }
            headers::for_client(&mut head.headers);
            // The router's own; hyper lowers it for a client of HTTP/1.0. A backend's 1.0 would end the client's connection,
            // and with it the difference between an answer's end and its break.
            head.version = Version::HTTP_11;
            let outcome = if head.status.is_server_error() { Outcome::BackendError } else { Outcome::Complete };
            let pool = Arc::clone(&proxy.pool);
            let mut parts =
                Some(Parts { incoming, conn, pool, lease, silence, tally, sampler, record, rewriting, outcome });
            let body =
                poll_fn(|cx| parts.take().map_or(Poll::Pending, |parts| Poll::Ready(UpstreamBody::new(parts, cx))));
            Response::from_parts(head, ResponseBody::Upstream(body.await))
        }
        Ok(Reply::Own(response)) => {
            tally.answered(response.status());
            own(response, is_head, record)
        }
        Err(error) => {
            if let Error::Refused(refused) = &error {
                tally.route.refused(refused.gate);
            }
            if let Some(record) = &mut record {
                record.failed(&error);
            }
            let response = error_response::render(&error, shape);
            // A client that broke off its upload is not there to read this, and is counted as one that left.
            if error != Error::BodyBroken || !has_left.load(Ordering::Relaxed) {
                tally.answered(response.status());
            } else {
                // Logged as it is counted.
                drop(record.take());
            }
            own(response, is_head, record)
        }
    };
    routed.write(response.headers_mut());
    response.headers_mut().insert(REQUEST_ID, request_id);
    Ok(response)
}

/// An answer made here. For HEAD only its head is sent, the length of the rest stated; not every version of HTTP sees to
/// that by itself.
fn own(mut response: Response<Full<Bytes>>, is_head: bool, record: Option<Record>) -> Response<ResponseBody> {
    if is_head {
        let length = response.body().size_hint().lower();
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        *response.body_mut() = Full::default();
    }
    if let Some(mut record) = record {
        record.answered_here(&response);
    }
    response.map(ResponseBody::Own)
}

/// One request on its way; what it leaves behind goes into the answer's headers.
struct Exchange<'a> {
    proxy: &'a Proxy,
    routed: Routed,
    tally: Tally,
    shape: Shape,
    /// The client broke off its upload.
    has_left: Arc<AtomicBool>,
    /// What the body log gets.
    record: Option<Record>,
}

/// Who answers.
#[expect(clippy::large_enum_variant, reason = "moved once, and the large variant is the frequent one")]
enum Reply {
    Backend(Answer),
    Own(Response<Full<Bytes>>),
}

impl Exchange<'_> {
    async fn run(
        &mut self,
        request: Request<Incoming>,
        client_ip: &HeaderValue,
        request_id: &HeaderValue,
    ) -> Result<Reply, Error> {
        let (mut head, incoming) = request.into_parts();
        let incoming = upload::watched(incoming, Arc::clone(&self.has_left));
        // 1. Which route.
        let parsed = route::parse(head.uri.path());
        self.shape = parsed.as_ref().map_or(Shape::OpenAi, |parsed| Shape::of(parsed.inner));
        host::check(head.version, &head.headers)?;
        let parsed = parsed?;
        let snapshot = self.proxy.snapshots.first_within(FIRST_SNAPSHOT_WITHIN).await.ok_or(Error::NotReady)?;
        let route = parsed.find(&snapshot)?;
        self.tally.route = Arc::clone(&route.metrics);
        self.routed.is_exposed = route.options.expose_routed;
        let uri = parsed.upstream_uri(&head.uri)?;
        // 2. May it come in.
        let limit = route.options.max_body_size.min(self.proxy.config.max_body_size);
        body::check_stated_length(&head.headers, limit)?;
        let key_id = auth::check(route.options.auth, &snapshot, &head.headers, self.proxy.is_loopback)?;
        let key_id = key_id.as_deref().unwrap_or_default();
        let turn = session::turn_of(&route, &head.headers);
        let reader = session::Reader { route: &route, snapshot: &snapshot, key_id, turn: turn.as_ref() };
        let context_window = context_window(&head.headers);
        let wanted = models::Wanted::of(&head.method, parsed.inner, route.models.is_some());
        if let Some(log) = self.proxy.body_log.as_ref().filter(|_| wanted.is_none()) {
            let (has_body, started) = (!incoming.is_end_stream(), self.tally.started());
            self.record = log.begin(&route, Begun { head: &head, has_body, client_ip, request_id, key_id, started });
        }
        if context_window.is_err() || wanted.is_some() {
            // No body is read, so the session is what the headers say.
            self.routed.session = self.identify(&reader, &head.headers, &[]).session;
        }
        let context_window = context_window?;
        if let Some(wanted) = wanted {
            // Nobody reads a body that comes all the same.
            drop((snapshot, incoming));
            if let Some(models) = &route.models {
                return models::stated(models, &wanted).map(Reply::Own);
            }
            headers::for_backend(&mut head.headers, &route, &head.method, client_ip, request_id, 0);
            let question = models::Question::new(wanted, context_window, &uri, head.headers);
            return models::answer(self.proxy, &route, &question).await.map(Reply::Own);
        }
        let mut ask = Ask {
            turn: turn.as_ref().map_or(0, |turn| turn.turn),
            context_tokens: context_window.unwrap_or(0),
            ..Ask::new(route.name.clone(), key_id, route.options.queue_timeout)
        };
        // 3. Whose turn it is. A body that takes time occupies a slot for that time.
        let intake = Intake::new(incoming, limit, self.proxy.config.body_timeout);
        let taken_in = self.take_in(intake, &mut ask).await;
        if taken_in.is_err() {
            self.routed.session = self.identify(&reader, &head.headers, &[]).session;
        }
        let (body, reservation) = taken_in?;
        // 4. Who it is, may what it holds come in, and what is changed in it.
        let Content { identity, body, changes } =
            self.read_content(&route, &reader, parsed.inner, &head.headers, body)?;
        drop((snapshot, turn));
        ask.model = identity.model;
        ask.fingerprint = identity.session.as_ref().and_then(|session| session.fingerprint);
        ask.placement = identity.placement;
        ask.body_bytes = body.len() as u64;
        ask.stream = identity.stream;
        self.routed.session = identity.session;
        // 5. To a backend.
        headers::for_backend(&mut head.headers, &route, &head.method, client_ip, request_id, body.len());
        let outbound = Outbound { method: head.method, uri, headers: head.headers, body };
        let mut answer = self.proxy_to_backend(&route, ask, reservation, &outbound).await?;
        // 6. What the client sees of its answer.
        if route.options.answer_501_for.contains(&answer.response.status().as_u16()) {
            return Err(answer.discard(&self.proxy.pool));
        }
        let wanted = Wanted {
            handler: route.options.payload.postprocess,
            hides_usage: changes.usage_asked && route.options.payload.include_usage_hide,
            is_head: outbound.method == Method::HEAD,
        };
        answer.rewriting = Rewriting::of(&mut answer.response, wanted, &route.name);
        Ok(Reply::Backend(answer))
    }

    /// Reads the body, with a slot taken unless it is in at once (gateway.md §1).
    async fn take_in(
        &mut self,
        mut intake: Intake<impl Body<Data = Bytes> + Unpin>,
        ask: &mut Ask,
    ) -> Result<(Bytes, Option<Reservation>), Error> {
        if intake.is_in_at_once().await? {
            return Ok((intake.into_bytes(), None));
        }
        let started = tokio::time::Instant::now();
        let answer = tokio::select! {
            answer = self.proxy.admission.reserve(ask) => answer,
            error = intake.broken() => {
                self.tally.route.waited(started.elapsed());
                return Err(error);
            }
        };
        match answer {
            Ok(reservation) => {
                ask.waited = reservation.queued();
                Ok((intake.finish().await?, Some(reservation)))
            }
            Err(refused) => {
                self.tally.route.waited(started.elapsed());
                intake.discard().await;
                Err(Error::Refused(refused))
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Upstream(body) => body.size_hint(),
        }
    }
}
