//! The one Coordinate stream of the replica: connect, `Hello`, `Welcome`, then operations both ways, heartbeats, and the
//! same again with backoff when it is lost, for ever. Run once by [`crate::run`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use router_policy::refusal::Gate;
use router_proto::v1;
use router_proto::v1::client_op::Kind;
use router_proto::v1::server_op::Kind as ServerKind;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use super::backoff::Backoff;
use super::batch::{CountsWaiting, Outgoing};
use super::lease::Said;
use super::pending::{Answer, Pending, Taken, Waiter};
use super::{Admission, Client, Refused, counts};
use crate::metrics::Metrics;

/// How long after its queue timeout a waiter trusts a control plane that says nothing.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Time for connecting, `Hello` and `Welcome` together.
const WELCOME_WITHIN: Duration = Duration::from_secs(5);
/// Time for `Goodbye` to be taken.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
/// Tries without success after which a human should look.
const WARN_AFTER_TRIES: u32 = 10;

/// A stream that was welcomed.
#[derive(Debug)]
pub(crate) struct Link {
    ops: UnboundedSender<v1::ClientOp>,
    pending: Pending,
    next_op: AtomicU64,
    counts: Arc<CountsWaiting>,
}

impl Link {
    pub(super) fn new(ops: UnboundedSender<v1::ClientOp>, counts: Arc<CountsWaiting>) -> Self {
        // 1 is Hello's.
        Self { ops, pending: Pending::default(), next_op: AtomicU64::new(2), counts }
    }

    /// A place to wait for an answer; `None` when the link is gone.
    pub(super) fn enter(self: &Arc<Self>, waiter: impl FnOnce(oneshot::Sender<Answer>) -> Waiter) -> Option<Ticket> {
        let (sender, answer) = oneshot::channel();
        let op = self.next_op.fetch_add(1, Ordering::Relaxed);
        self.pending.insert(op, waiter(sender)).then(|| Ticket {
            link: Arc::clone(self),
            op,
            answer,
            is_answered: false,
        })
    }

    /// Sends an operation. On a dead link it is lost, as it would be on the wire.
    pub(super) fn send(&self, op: u64, kind: Kind) {
        let _ = self.ops.send(v1::ClientOp { op, kind: Some(kind) });
    }

    /// Sends counts. False: the link is dead, they are not sent.
    pub(super) fn send_counts(&self, counted: v1::Counted) -> bool {
        self.counts.one_more();
        self.ops.send(v1::ClientOp { op: 0, kind: Some(Kind::Counted(counted)) }).is_ok()
    }

    /// Whether counts wait to leave: the control plane does not read.
    pub(super) fn has_counts_waiting(&self) -> bool {
        self.counts.is_any()
    }

    pub(super) fn sends_to(&self, outbox: &UnboundedSender<v1::ClientOp>) -> bool {
        self.ops.same_channel(outbox)
    }
}

/// One operation's wait. Dropped unanswered, it takes the operation back (`Cancel`); an answer that comes all the same is
/// a lease that nobody owns and gives itself back.
#[derive(Debug)]
pub(super) struct Ticket {
    link: Arc<Link>,
    op: u64,
    answer: oneshot::Receiver<Answer>,
    is_answered: bool,
}

impl Ticket {
    pub(super) fn op(&self) -> u64 {
        self.op
    }

    /// `None`: the link was lost.
    pub(super) async fn answer(mut self) -> Option<Answer> {
        let answer = (&mut self.answer).await;
        self.is_answered = true;
        answer.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.is_answered && self.link.pending.cancel(self.op) {
            self.link.send(0, Kind::Cancel(v1::Cancel { target: self.op }));
        }
    }
}

/// Who the replica is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) replica_id: String,
    pub(crate) listen: String,
}

/// Why a stream ended.
#[derive(Debug)]
enum End {
    Goodbye,
    Lost { was_welcomed: bool, code: tonic::Code },
}

/// Keeps a link until `stop`, then says goodbye.
pub(crate) async fn keep(
    admission: Arc<Admission>,
    mut client: Client,
    identity: Identity,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new();
    loop {
        let end = run_one(&admission, &mut client, &identity, &metrics, &stop).await;
        match end {
            End::Goodbye => return,
            End::Lost { was_welcomed: true, code } => {
                backoff.reset();
                tracing::warn!(?code, held = admission.held(), "lost the control plane; connecting again");
            }
            End::Lost { was_welcomed: false, code } if backoff.tries() == WARN_AFTER_TRIES => {
                tracing::warn!(?code, "control plane still not reachable; trying on");
            }
            End::Lost { was_welcomed: false, code } => tracing::debug!(?code, "control plane not reachable; trying on"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(backoff.next())).await.is_none() {
            return;
        }
    }
}

async fn run_one(
    admission: &Arc<Admission>,
    client: &mut Client,
    identity: &Identity,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> End {
    let lost = |code| End::Lost { was_welcomed: false, code };
    let (ops, receiver) = mpsc::unbounded_channel();
    let (open, welcome) = oneshot::channel();
    let hello = v1::Hello {
        replica_id: identity.replica_id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        held: admission.held.attach(ops.clone()),
        provisional: Vec::new(),
        listen: identity.listen.clone(),
    };
    let counts = Arc::new(CountsWaiting::default());
    let outgoing = Outgoing::new(hello, welcome, receiver, Arc::clone(&counts));
    let detach = Detach { admission, link: Arc::new(Link::new(ops, counts)), metrics };
    let greeted = tokio::time::timeout(WELCOME_WITHIN, greet(client, outgoing));
    let (mut incoming, welcome) = match stop.run_until_cancelled(greeted).await {
        None => return End::Goodbye,
        Some(Err(_elapsed)) => return lost(tonic::Code::DeadlineExceeded),
        Some(Ok(Err(status))) => return lost(status.code()),
        Some(Ok(Ok(greeted))) => greeted,
    };
    if open.send(()).is_err() {
        return lost(tonic::Code::Unavailable);
    }
    tracing::info!(epoch = welcome.epoch, "linked to the control plane");
    admission.link.send_replace(Some(Arc::clone(&detach.link)));
    metrics.link_up.set(1);
    serve(admission, &detach.link, metrics, &mut incoming, &welcome, stop).await
}

/// Undoes what a link had set up, on every way out.
struct Detach<'a> {
    admission: &'a Admission,
    link: Arc<Link>,
    metrics: &'a Metrics,
}

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        self.metrics.link_up.set(0);
        if self.admission.link.send_replace(None).is_some() {
            self.admission.lost();
        }
        self.admission.held.detach();
        self.link.pending.close();
    }
}

async fn greet(
    client: &mut Client,
    outgoing: Outgoing,
) -> Result<(Streaming<v1::ServerBatch>, v1::Welcome), tonic::Status> {
    let mut incoming = client.coordinate(outgoing).await?.into_inner();
    while let Some(batch) = incoming.message().await? {
        for op in batch.ops {
            if let Some(ServerKind::Welcome(welcome)) = op.kind {
                return Ok((incoming, welcome));
            }
        }
    }
    Err(tonic::Status::unavailable("ended before Welcome"))
}

async fn serve(
    admission: &Admission,
    link: &Link,
    metrics: &Metrics,
    incoming: &mut Streaming<v1::ServerBatch>,
    welcome: &v1::Welcome,
    stop: &CancellationToken,
) -> End {
    let lost = |code| End::Lost { was_welcomed: true, code };
    // 0 would be a peer's mistake; a third of the TTL is always often enough.
    let every = if welcome.heartbeat_ms == 0 { welcome.lease_ttl_ms / 3 } else { welcome.heartbeat_ms };
    let mut heartbeat = tokio::time::interval(Duration::from_millis(u64::from(every.max(50))));
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counting = tokio::time::interval(counts::EVERY);
    counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = heartbeat.tick() => {
                link.send(0, Kind::Heartbeat(v1::Heartbeat {}));
                for target in link.pending.expire(Instant::now()) {
                    link.send(0, Kind::Cancel(v1::Cancel { target }));
                }
            }
            _ = counting.tick() => counts::tell_when_read(link, metrics),
            message = incoming.message() => match message {
                Ok(Some(batch)) => batch.ops.into_iter().for_each(|op| answer(admission, link, op)),
                Ok(None) => return lost(tonic::Code::Ok),
                Err(status) => return lost(status.code()),
            },
            () = stop.cancelled() => break,
        }
    }
    counts::tell(link, metrics);
    link.send(0, Kind::Goodbye(v1::Goodbye {}));
    // The stream ends after Goodbye; that the other side ends too says that it was taken.
    let drained = async { while let Ok(Some(_)) = incoming.message().await {} };
    if tokio::time::timeout(GOODBYE_WITHIN, drained).await.is_err() {
        tracing::debug!("control plane did not answer Goodbye in time");
    }
    End::Goodbye
}

/// Hands an answer to whoever waits for it. A grant is registered before anybody can see it, so none is ever lost.
fn answer(admission: &Admission, link: &Link, op: v1::ServerOp) {
    let (waiter, answer) = match op.kind {
        Some(ServerKind::Granted(granted)) => match link.pending.take(op.op) {
            Taken::Waiting(mut waiter) => {
                let said = std::mem::take(&mut waiter.said);
                let lease = admission.held.granted(&granted, waiter.route.clone(), waiter.fingerprint, said);
                (waiter, Ok(lease))
            }
            // Granted before the Cancel arrived: nobody waits, so it goes back at once.
            Taken::Cancelled(route) => return drop(admission.held.granted(&granted, route, None, Said::default())),
            Taken::Unknown => {
                tracing::warn!("grant for an operation that was never sent; the lease ends with its TTL");
                return;
            }
        },
        Some(ServerKind::Refused(refused)) => match link.pending.take(op.op) {
            Taken::Waiting(waiter) => (waiter, Err(Refused::from(refused))),
            Taken::Cancelled(_) | Taken::Unknown => return,
        },
        Some(ServerKind::Unsupported(_)) => match link.pending.take(op.op) {
            Taken::Waiting(waiter) => (waiter, Err(Refused::by(Gate::ControlPlaneUnavailable))),
            Taken::Cancelled(_) | Taken::Unknown => return,
        },
        // Welcome, or an operation of a newer peer.
        Some(ServerKind::Welcome(_)) | None => return,
    };
    // A waiter that has just gone drops the answer, and a lease in it gives itself back.
    let _ = waiter.answer.send(answer);
}
