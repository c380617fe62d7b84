//! The replica's side of the control plane. [`Admission`] is the one thing that the request path asks; behind it are the
//! link ([`link`]), what waits for an answer ([`pending`]) and what is held ([`lease`]).
//!
//! Promises: a lease that was granted is given back exactly once, whatever happens to the request, its waiter or the link.
//! Held leases outlive the link. Nothing here knows HTTP.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use router_policy::ids::{Fingerprint, RouteName};
use router_policy::refusal::Gate;
use router_policy::retry::Failure;
use router_proto::v1;
use router_proto::v1::client_op::Kind;
use router_proto::v1::coordinator_client::CoordinatorClient;
use serde_json::{Map, Value as Json};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

pub(crate) mod backoff;
mod batch;
mod counts;
pub(crate) mod lease;
pub(crate) mod link;
mod pending;

use crate::config::Config;
use lease::{Held, Said};
pub(crate) use lease::{Lease, Reservation};
use link::Link;
use pending::{Answer, Waiter};

/// The gRPC client, with the token on each call. Watch and Coordinate share its channel.
pub(crate) type Client = CoordinatorClient<InterceptedService<Channel, Token>>;

/// Largest message from the control plane: a snapshot of very many keys.
const MESSAGE_MAX: usize = 256 << 20;

/// A client that connects when first used.
pub(crate) fn client(config: &Config) -> Client {
    let token = Token(config.token.clone());
    // A connector that is passed in is under the endpoint's connect timeout as a whole; in tonic's own the look-up of the
    // name is not. While the control plane's container is away, a name server may think about its name for seconds, and a
    // try that waits for it would outlast the restart.
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    CoordinatorClient::with_interceptor(config.control_plane.connect_with_connector_lazy(connector), token)
        .max_decoding_message_size(MESSAGE_MAX)
}

/// Adds `authorization` to each call.
#[derive(Debug, Clone)]
pub(crate) struct Token(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for Token {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// One request's wish for a slot.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) route: RouteName,
    pub(crate) model: String,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) placement: Placement,
    /// The turn's number within its session; 0 when unknown or not ranked.
    pub(crate) turn: u32,
    pub(crate) key_id: String,
    pub(crate) body_bytes: u64,
    pub(crate) stream: bool,
    /// Total tokens that must fit; 0 when the client does not say.
    pub(crate) context_tokens: u64,
    /// Backends that failed already.
    pub(crate) tried: Vec<String>,
    /// How long it may wait, the time of a lost link included.
    pub(crate) queue_timeout: Duration,
    /// How much of that has passed.
    pub(crate) waited: Duration,
}

/// Where a session belongs by its id alone (rulings §1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Placement {
    /// No session, or one that the control plane finds the backend of.
    #[default]
    Unstated,
    /// `affinity: hash`
    Crc32(u32),
    /// `affinity: rendezvous`: the pool's backends, the highest weight first.
    Ranked(Vec<String>),
}

/// What ends with a request for a slot.
enum Ends {
    /// A lease whose backend has failed.
    Failed(Lease, Failure),
    /// The slot that was taken before the body was in.
    Reserved(Reservation),
}

/// Why there is no slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) gate: Gate,
    /// 4xx or 5xx.
    pub(crate) http_status: u16,
    pub(crate) retry_after_s: Option<u32>,
    pub(crate) detail: Cow<'static, str>,
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    /// More for the client.
    pub(crate) details: Map<String, Json>,
}

impl Refused {
    /// With what the gate's table says.
    pub(crate) fn by(gate: Gate) -> Self {
        Self {
            gate,
            http_status: gate.http_status(),
            retry_after_s: gate.retry_after_s(),
            detail: Cow::Borrowed(gate.detail()),
            in_flight: 0,
            limit: 0,
            details: Map::new(),
        }
    }
}

impl From<v1::Refused> for Refused {
    fn from(message: v1::Refused) -> Self {
        let gate = Gate::from(message.gate());
        let status = u16::try_from(message.http_status).ok().filter(|status| (400..600).contains(status));
        Self {
            gate,
            http_status: status.unwrap_or_else(|| gate.http_status()),
            retry_after_s: (message.retry_after_s != 0).then_some(message.retry_after_s),
            detail: if message.detail.is_empty() { Cow::Borrowed(gate.detail()) } else { Cow::Owned(message.detail) },
            in_flight: message.in_flight,
            limit: message.limit,
            // Told beside the rest; a client can do without.
            details: serde_json::from_str(&message.details_json).unwrap_or_default(),
        }
    }
}

/// Answers acquires. Cheap to share; one per process.
#[derive(Debug)]
pub(crate) struct Admission {
    held: Arc<Held>,
    /// The link that takes acquires; `None` while there is none. Written by [`link::keep`].
    link: watch::Sender<Option<Arc<Link>>>,
    lost_at: Mutex<Option<Instant>>,
}

impl Admission {
    pub(crate) fn new() -> Self {
        Self { held: Arc::new(Held::new()), link: watch::Sender::new(None), lost_at: Mutex::new(None) }
    }

    /// Leases held now.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// There is a link, or it was lost less than `patience` ago.
    pub(crate) fn is_linked_within(&self, patience: Duration) -> bool {
        self.link.borrow().is_some() || self.lost_at.lock().is_some_and(|at| at.elapsed() < patience)
    }

    /// The link has just been lost.
    fn lost(&self) {
        *self.lost_at.lock() = Some(Instant::now());
    }

    /// Ends once there is a link.
    pub(crate) async fn linked(&self) {
        // The sender lives in `self`, so this can't fail.
        let _ = self.link.subscribe().wait_for(Option::is_some).await;
    }

    /// Takes a slot before the request's body is in, on no backend yet. Dropping the future takes the request out of the
    /// queue.
    pub(crate) async fn reserve(&self, ask: &Ask) -> Result<Reservation, Refused> {
        self.ask(ask, Wish::Reserve, None).await.map(Reservation)
    }

    /// Takes a slot on a backend, in place of the reservation if there is one. Dropping the future takes the request out of
    /// the queue.
    pub(crate) async fn acquire(&self, ask: &Ask, reservation: Option<Reservation>) -> Answer {
        self.ask(ask, Wish::Place, reservation.map(Ends::Reserved)).await
    }

    /// Gives a lease back because its backend failed, and takes another backend: one step on the wire. Whatever the answer,
    /// the old lease has ended.
    pub(crate) async fn transfer(&self, lease: Lease, failure: Failure, ask: &Ask) -> Answer {
        self.ask(ask, Wish::Place, Some(Ends::Failed(lease, failure))).await
    }

    /// Asks on this link, and again on the next one when it is lost, until the queue timeout has passed.
    async fn ask(&self, ask: &Ask, wish: Wish, mut ends: Option<Ends>) -> Answer {
        let started = Instant::now();
        let deadline = started + ask.queue_timeout.saturating_sub(ask.waited);
        let mut after: Option<Arc<Link>> = None;
        loop {
            let link = if let Some(link) = self.current_link(after.as_ref()) {
                link
            } else {
                // The failed lease does not wait for a link: it has ended, and the next Hello leaves it out.
                // A reservation does: it is in that Hello.
                if let Some(Ends::Failed(lease, failure)) = ends.take_if(|ends| matches!(ends, Ends::Failed(..))) {
                    lease.failed(failure);
                }
                let next = self.next_link(after.as_ref(), deadline).await;
                next.ok_or_else(|| Refused::by(Gate::ControlPlaneUnavailable))?
            };
            let waiter = |answer| Waiter {
                answer,
                route: ask.route.clone(),
                fingerprint: ask.fingerprint,
                said: Said::new(&ask.model, ask.turn, ask.context_tokens),
                // The control plane ends the wait itself; this is for one that is connected but stuck.
                give_up_at: deadline + link::STUCK_AFTER,
                queue_timeout: ask.queue_timeout,
            };
            if let Some(ticket) = link.enter(waiter) {
                let acquire = ask.message(wish, started);
                match ends.take() {
                    Some(Ends::Failed(lease, failure)) => lease.transfer(&link, ticket.op(), failure, acquire),
                    Some(Ends::Reserved(reservation)) => reservation.use_for(&link, ticket.op(), acquire),
                    None => link.send(ticket.op(), Kind::Acquire(acquire)),
                }
                if let Some(answer) = ticket.answer().await {
                    return answer;
                }
            }
            after = Some(link);
        }
    }

    /// The link, unless it is `after`, which is lost.
    fn current_link(&self, after: Option<&Arc<Link>>) -> Option<Arc<Link>> {
        self.link.borrow().clone().filter(|link| is_other(link, after))
    }

    /// The first link that is not `after`, until the deadline.
    async fn next_link(&self, after: Option<&Arc<Link>>, deadline: Instant) -> Option<Arc<Link>> {
        let mut changes = self.link.subscribe();
        let found = changes.wait_for(|link| link.as_ref().is_some_and(|link| is_other(link, after)));
        tokio::time::timeout_at(deadline, found).await.ok()?.ok()?.clone()
    }
}

fn is_other(link: &Arc<Link>, after: Option<&Arc<Link>>) -> bool {
    after.is_none_or(|after| !Arc::ptr_eq(link, after))
}

/// What kind of slot is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// One of the pool, on no backend yet.
    Reserve,
    /// One on a backend.
    Place,
}

impl Ask {
    /// For a request of which nothing else is known yet.
    pub(crate) fn new(route: RouteName, key_id: &str, queue_timeout: Duration) -> Self {
        Self {
            route,
            model: String::new(),
            fingerprint: None,
            placement: Placement::Unstated,
            turn: 0,
            key_id: key_id.to_owned(),
            body_bytes: 0,
            stream: false,
            context_tokens: 0,
            tried: Vec::new(),
            queue_timeout,
            waited: Duration::ZERO,
        }
    }

    /// The request for a slot on a backend, for the control plane to say what it would do.
    pub(crate) fn as_question(&self) -> v1::Acquire {
        self.message(Wish::Place, Instant::now())
    }

    fn message(&self, wish: Wish, started: Instant) -> v1::Acquire {
        let (crc32, ranked) = match &self.placement {
            Placement::Unstated => (None, Vec::new()),
            Placement::Crc32(crc32) => (Some(*crc32), Vec::new()),
            Placement::Ranked(ranked) => (None, ranked.clone()),
        };
        v1::Acquire {
            route: self.route.to_string(),
            model: self.model.clone(),
            fingerprint: self.fingerprint.map(|f| Bytes::copy_from_slice(&f.0)).unwrap_or_default(),
            key_id: self.key_id.clone(),
            turn: self.turn,
            context_tokens: self.context_tokens,
            tried: self.tried.clone(),
            hints: Some(v1::PromptHints { body_bytes: self.body_bytes, stream: self.stream }),
            waited_ms: whole_ms(self.waited + started.elapsed()),
            reserve: wish == Wish::Reserve,
            reservation: 0,
            crc32,
            ranked,
        }
    }
}

/// Milliseconds for the wire.
pub(crate) fn whole_ms(span: Duration) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}
