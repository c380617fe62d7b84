//! One route's shared state: backends, leases, bindings and the queue behind one lock. Each operation decides
//! ([`router_policy::admit`]) and applies under that lock, so that a limit is never exceeded and a refusal changes nothing.
//!
//! No method waits. Answers go out through the caller's channel: at once, when a slot comes free, or when a new binding
//! is durable.

mod backend;
mod binding;
mod change;
mod explain;
mod flow;
mod foresee;
mod inspect;
mod lease;
mod model_pool;
mod payload;
mod queue;
mod reconcile;
mod refuse;
mod report;
mod state;
mod waiters;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::flow::UnixMs;
use router_policy::ids::{BackendId, Fingerprint, LeaseId, RouteName};
use router_policy::refusal::{Gate, Refusal};
use router_policy::route::RouteSpec;
use router_policy::tick::Tick;
use router_proto::v1;
use tokio::sync::{Notify, mpsc, watch};

pub use change::DrainReasons;
pub use explain::SessionAsked;
pub use flow::Answered;
pub use inspect::{BackendSeen, FlowSeen, PoolSeen, RouteSeen, RoutingSeen};
pub use model_pool::LoadRefusals;
pub use reconcile::Held;
pub use report::SessionFilter;
use state::State;

use crate::clock::Clock;
use crate::marks::MarkJournal;
use crate::metrics::PoolMetrics;
use crate::store::group_commit::Committer;
use crate::store::health::StoreHealth;
use crate::store::write_behind::Journal;

/// What all pools share.
pub struct Context {
    /// Time.
    pub clock: Clock,
    /// This start's number; the upper part of lease ids.
    pub epoch: u64,
    /// Leases granted so far, over all pools.
    pub lease_count: AtomicU64,
    /// Whether the database answers.
    pub store_health: Arc<StoreHealth>,
    /// Makes bindings durable.
    pub committer: Committer,
    /// Writes leases and uses behind.
    pub journal: Arc<Journal>,
    /// Writes bans and health behind.
    pub marks: Arc<MarkJournal>,
    /// Woken when a pool has something new for the snapshot.
    pub publish: Notify,
}

impl Context {
    /// A tick as flow control counts time.
    fn unix(&self, tick: Tick) -> UnixMs {
        UnixMs(self.clock.unix_ms(tick))
    }

    fn next_lease(&self) -> LeaseId {
        LeaseId::new(self.epoch, self.lease_count.fetch_add(1, Ordering::Relaxed))
    }
}

/// The stream that an operation came on, and where its answer goes.
#[derive(Debug)]
pub struct Caller {
    /// The replica's id.
    pub replica: Arc<str>,
    /// Tells this stream from others of the same replica.
    pub stream: u64,
    /// Answers; a closed channel means that the replica will say hello again.
    pub replies: mpsc::UnboundedSender<v1::ServerOp>,
}

impl Caller {
    /// Sends an answer. A stream that is gone needs none: its replica's next hello settles what it holds.
    fn answer(&self, op: u64, kind: v1::server_op::Kind) {
        let _ = self.replies.send(v1::ServerOp { op, kind: Some(kind) });
    }

    /// Answers with a refusal.
    pub fn refuse(&self, op: u64, refusal: Refusal) {
        self.answer(op, v1::server_op::Kind::Refused(refusal.into()));
    }
}

/// A request for a lease.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Its session.
    pub fingerprint: Option<Fingerprint>,
    /// The model that it asks for, or empty.
    pub model: String,
    /// Its turn within its session, when the client has said it.
    pub turn: Option<u32>,
    /// With `affinity: hash`: crc32 of its session id.
    pub crc32: Option<u32>,
    /// With `affinity: rendezvous`: backends by weight, the highest first.
    pub ranked: Vec<BackendId>,
    /// Backends that must not be chosen.
    pub tried: Vec<BackendId>,
    /// Total tokens that must fit; 0 when unstated.
    pub context_tokens: u64,
    /// How long it has waited already.
    pub waited: Duration,
    /// It wants a slot before its body is in.
    pub is_reserve: bool,
    /// The slot that it took before its body was in. It ends with this request for a backend, whatever comes of that.
    pub reservation: Option<LeaseId>,
}

/// Which pool of the route a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// One of the pools, by its place in the list.
    Pool(usize),
    /// Any of them: the model is not known yet.
    Everybody,
}

/// A failure that a transfer reports.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The lease on the failed backend.
    pub lease: LeaseId,
    /// The backend.
    pub backend: BackendId,
    /// It could not be connected to (else: it answered badly or not in time).
    pub is_connect: bool,
}

/// One route's pool.
pub struct Pool {
    name: RouteName,
    context: Arc<Context>,
    metrics: PoolMetrics,
    state: Mutex<State>,
    /// Something that replicas should know has changed.
    is_dirty: AtomicBool,
    /// The next deadline has come nearer.
    rearm: Notify,
    /// Marks each change of load, for those who watch it.
    activity: watch::Sender<()>,
}

impl Pool {
    /// A pool for a route, empty but for its backends.
    pub fn new(spec: Arc<RouteSpec>, context: Arc<Context>, metrics: PoolMetrics) -> Self {
        let name = spec.name.clone();
        let mut state = State::new(Arc::clone(&spec));
        let now = context.clock.now();
        state.install(spec, now, context.unix(now));
        Self {
            name,
            context,
            metrics,
            state: Mutex::new(state),
            is_dirty: AtomicBool::new(true),
            rearm: Notify::new(),
            activity: watch::Sender::new(()),
        }
    }

    /// The route's name.
    pub fn name(&self) -> &RouteName {
        &self.name
    }

    /// Asks for a lease; the answer goes to `caller`, perhaps after a wait in the queue.
    pub fn acquire(&self, op: u64, asked: Asked, caller: &Arc<Caller>) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        let reservation = asked.reservation;
        if let Some(lease) = reservation {
            self.end_lease_of(&mut state, lease, caller, now);
        }
        self.admit(&mut state, op, asked, caller, now);
        if reservation.is_some() {
            // It may have been refused for another reason than load: then its slot is free.
            self.serve_waiters(&mut state, now);
        }
    }

    /// Takes a waiter out of the queue. Nothing happens when it was answered already.
    pub fn cancel(&self, stream: u64, op: u64) {
        let mut state = self.state.lock();
        if state.waiters.cancel(stream, op).is_some() {
            self.metrics.cancelled.inc();
            self.after_load_change(&state);
        }
    }

    /// Gives a lease back, reports the failure, takes another backend: one step.
    pub fn transfer(&self, op: u64, failed: &Failed, asked: Asked, caller: &Arc<Caller>) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        self.end_lease_of(&mut state, failed.lease, caller, now);
        self.metrics.transfers.inc();
        state.count_retry(&failed.backend);
        if state.record_failure(&failed.backend, failed.is_connect, now) {
            self.after_condition_change(&mut state, &failed.backend, now);
        }
        self.admit(&mut state, op, asked, caller, now);
        // The slot that came free goes to whoever waits, after the one who gave it back has chosen elsewhere.
        self.serve_waiters(&mut state, now);
    }

    /// Gives a lease back. Unknown leases are passed over, for each is given back once; so are another replica's.
    pub fn release(&self, lease: LeaseId, caller: &Caller, answered: &Answered) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        if let Some(ended) = self.end_lease_of(&mut state, lease, caller, now) {
            self.record_answer(&mut state, &ended, answered, now);
            if let Some(backend) = ended.backend.filter(|_| answered.has_failed) {
                state.record_failure(&backend, false, now);
            }
            self.serve_waiters(&mut state, now);
        }
    }

    /// Answers whoever has waited too long, and lets returned backends serve. Returns when it must run again.
    pub fn tick(&self) -> Option<Tick> {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        if state.refresh(now) {
            self.mark_dirty();
        }
        let next_flow = self.run_flow(&mut state, now);
        self.serve_waiters(&mut state, now);
        while let Some(waiter) = state.waiters.pop_expired(now) {
            self.refuse_waiter(&mut state, &waiter, Gate::QueueTimeout, now);
        }
        state.next_event().into_iter().chain(next_flow).min()
    }

    /// Resolves when [`Self::tick`]'s next run may have to be earlier than it said.
    pub async fn rearmed(&self) {
        self.rearm.notified().await;
    }

    /// A receiver that sees each change of load.
    pub fn watch_activity(&self) -> watch::Receiver<()> {
        self.activity.subscribe()
    }

    /// Whether replicas should hear of this pool; asking clears it.
    pub fn take_dirty(&self) -> bool {
        self.is_dirty.swap(false, Ordering::AcqRel)
    }

    fn mark_dirty(&self) {
        self.is_dirty.store(true, Ordering::Release);
        self.context.publish.notify_one();
    }

    fn after_load_change(&self, state: &State) {
        self.metrics.load(state.total_in_flight(), state.waiters.len());
        if self.activity.receiver_count() > 0 {
            self.activity.send_replace(());
        }
    }
}
