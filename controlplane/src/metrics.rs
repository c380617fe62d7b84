//! Every metric of the control plane, with its name and unit, in one place. Labels are bounded: routes, backends, gates and
//! modes; never a session, a key or a client's text.

mod flow;
mod waits;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use router_policy::refusal::Gate;
use router_proto::v1::{BackendState, Mode};

use crate::store::group_commit::CommitterCounts;

pub use flow::RouteFlow;
pub use waits::Waits;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabel {
    route: String,
    mode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabel {
    route: String,
    gate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabel {
    route: String,
    backend: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileLabel {
    flag: &'static str,
}

const QUEUE_WAIT_SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];
const MODES: [Mode; 8] = [
    Mode::Bound,
    Mode::New,
    Mode::Moved,
    Mode::LeastConn,
    Mode::Static,
    Mode::Hash,
    Mode::HashFallback,
    Mode::Rendezvous,
];

/// All families.
pub struct Metrics {
    registry: Registry,
    /// Held while the families that are filled on demand are filled and printed.
    rendering: Mutex<()>,
    flow: flow::FlowMetrics,
    granted: Family<ModeLabel, Counter>,
    refused: Family<GateLabel, Counter>,
    cancelled: Family<RouteLabel, Counter>,
    transfers: Family<RouteLabel, Counter>,
    bans: Family<RouteLabel, Counter>,
    in_flight: Family<RouteLabel, Gauge>,
    waiting: Family<RouteLabel, Gauge>,
    sessions: Family<RouteLabel, Gauge>,
    waited: Family<RouteLabel, Histogram, fn() -> Histogram>,
    backend_in_flight: Family<BackendLabel, Gauge>,
    backend_limit: Family<BackendLabel, Gauge>,
    backend_up: Family<BackendLabel, Gauge>,
    replicas: Gauge,
    database_up: Gauge,
    writes_waiting: Gauge,
    writes_dropped: Gauge,
    grants_provisional: Gauge,
    file_ok: Family<FileLabel, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers every family.
    pub fn new() -> Self {
        let mut metrics = Self::unregistered();
        let mut registry = Registry::with_prefix("router_control");
        registry.register("leases_granted", "Leases granted, by mode", metrics.granted.clone());
        registry.register("requests_refused", "Acquires refused, by gate", metrics.refused.clone());
        registry.register("waiters_cancelled", "Waiters whose client left", metrics.cancelled.clone());
        registry.register("transfers", "Requests moved to another backend", metrics.transfers.clone());
        registry.register("backend_bans", "Backends taken out for failures", metrics.bans.clone());
        registry.register("in_flight", "Leases now", metrics.in_flight.clone());
        registry.register("waiting", "Requests in the queue", metrics.waiting.clone());
        registry.register("sessions", "Sessions bound", metrics.sessions.clone());
        registry.register("queue_wait_seconds", "Time from acquire to grant", metrics.waited.clone());
        registry.register("backend_in_flight", "Leases now, by backend", metrics.backend_in_flight.clone());
        registry.register("backend_limit", "Leases that a backend may hold", metrics.backend_limit.clone());
        registry.register("backend_up", "1 when the backend is admitted", metrics.backend_up.clone());
        registry.register("replicas", "Dataplane replicas connected", metrics.replicas.clone());
        registry.register("database_up", "1 when the database answers", metrics.database_up.clone());
        registry.register("binding_writes_waiting", "Bindings not in the database yet", metrics.writes_waiting.clone());
        registry.register("binding_writes_dropped", "Bindings that could not be kept", metrics.writes_dropped.clone());
        let provisional = metrics.grants_provisional.clone();
        registry.register("grants_provisional", "Grants told before their binding was stored", provisional);
        let files = metrics.file_ok.clone();
        registry.register("file_ok", "1 while a followed or written file is as it should be, by flag", files);
        metrics.flow.register(&mut registry);
        metrics.registry = registry;
        metrics
    }

    fn unregistered() -> Self {
        Self {
            registry: Registry::default(),
            rendering: Mutex::default(),
            flow: flow::FlowMetrics::default(),
            granted: Family::default(),
            refused: Family::default(),
            cancelled: Family::default(),
            transfers: Family::default(),
            bans: Family::default(),
            in_flight: Family::default(),
            waiting: Family::default(),
            sessions: Family::default(),
            waited: Family::new_with_constructor(|| Histogram::new(QUEUE_WAIT_SECONDS)),
            backend_in_flight: Family::default(),
            backend_limit: Family::default(),
            backend_up: Family::default(),
            replicas: Gauge::default(),
            database_up: Gauge::default(),
            writes_waiting: Gauge::default(),
            writes_dropped: Gauge::default(),
            grants_provisional: Gauge::default(),
            file_ok: Family::default(),
        }
    }

    /// The metrics of one pool, resolved once so that the hot path looks nothing up.
    pub fn pool(&self, route: &str) -> PoolMetrics {
        let label = RouteLabel { route: route.to_owned() };
        let mode = |mode: Mode| ModeLabel { route: route.to_owned(), mode: mode.word() };
        let gate = |gate: Gate| GateLabel { route: route.to_owned(), gate: gate.code() };
        PoolMetrics {
            granted: MODES.map(|m| self.granted.get_or_create_owned(&mode(m))),
            refused: Gate::ALL.map(|g| self.refused.get_or_create_owned(&gate(g))),
            cancelled: self.cancelled.get_or_create_owned(&label),
            transfers: self.transfers.get_or_create_owned(&label),
            bans: self.bans.get_or_create_owned(&label),
            waited: Waits::new(self.waited.get_or_create_owned(&label)),
            in_flight: self.in_flight.get_or_create_owned(&label),
            waiting: self.waiting.get_or_create_owned(&label),
            sessions: self.sessions.get_or_create_owned(&label),
        }
    }

    /// Whether the file of a flag is as it should be.
    pub fn file(&self, flag: &'static str) -> Gauge {
        self.file_ok.get_or_create_owned(&FileLabel { flag })
    }

    /// The text that Prometheus reads, with the state that is only looked at now.
    pub fn render(
        &self,
        backends: &[BackendState],
        routes: &[RouteFlow],
        replicas: usize,
        is_database_up: bool,
        commits: CommitterCounts,
    ) -> String {
        let _alone = self.rendering.lock();
        self.flow.fill(routes);
        for family in [&self.backend_in_flight, &self.backend_limit, &self.backend_up] {
            family.clear();
        }
        for backend in backends {
            let label = BackendLabel { route: backend.route.clone(), backend: backend.address.clone() };
            let out = backend.condition.is_some_and(|c| c.unhealthy || c.draining || c.banned || c.removed);
            self.backend_in_flight.get_or_create(&label).set(i64::from(backend.in_flight));
            self.backend_limit.get_or_create(&label).set(i64::from(backend.limit));
            self.backend_up.get_or_create(&label).set(i64::from(!out));
        }
        self.replicas.set(i64::try_from(replicas).unwrap_or(i64::MAX));
        self.database_up.set(i64::from(is_database_up));
        let count = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        count(&self.writes_waiting, commits.queued_writes);
        count(&self.writes_dropped, commits.dropped);
        count(&self.grants_provisional, commits.provisional);
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// One pool's metrics.
pub struct PoolMetrics {
    granted: [Counter; MODES.len()],
    refused: [Counter; Gate::ALL.len()],
    /// Waiters whose client left.
    pub cancelled: Counter,
    /// Requests moved to another backend.
    pub transfers: Counter,
    /// Backends taken out for failures.
    pub bans: Counter,
    /// Time from acquire to grant.
    pub waited: Waits,
    in_flight: Gauge,
    waiting: Gauge,
    sessions: Gauge,
}

impl PoolMetrics {
    /// Counts a grant.
    pub fn granted(&self, mode: Mode) {
        if let Some((counter, _)) = self.granted.iter().zip(MODES).find(|(_, known)| *known == mode) {
            counter.inc();
        }
    }

    /// Counts a refusal.
    pub fn refused(&self, gate: Gate) {
        if let Some((counter, _)) = self.refused.iter().zip(Gate::ALL).find(|(_, known)| *known == gate) {
            counter.inc();
        }
    }

    /// Shows the load now.
    pub fn load(&self, in_flight: u32, waiting: usize) {
        self.in_flight.set(i64::from(in_flight));
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// Shows how many sessions are bound.
    pub fn sessions(&self, bound: u64) {
        self.sessions.set(i64::try_from(bound).unwrap_or(i64::MAX));
    }

    /// The route is gone: nothing of it is in flight any more for those who look.
    pub fn retire(&self) {
        self.load(0, 0);
        self.sessions(0);
    }
}
