//! Every metric of a replica: name, unit and labels in one place. Labels are bounded: routes come from the configuration,
//! gates and modes from an enum, codes from a short list. Never a path, model, session or key.
//!
//! Counters are looked up once per route and kept in [`RouteMetrics`]; a request hashes no label set.

mod backend;
mod body_log;
mod payload;
mod route;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use router_policy::ids::RouteName;

pub(crate) use backend::BackendMetrics;
pub(crate) use body_log::BodyLogGauges;
pub(crate) use payload::PayloadCounts;
use payload::PayloadFamilies;
pub(crate) use route::RouteMetrics;

/// Seconds. A first token takes milliseconds from a warm cache and minutes from a long prefill.
const TTFT_BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0];
/// Seconds. A whole answer may take an hour.
const DURATION_BUCKETS: [f64; 13] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0, 3600.0];
/// Tokens per second of one answer.
const TPS_BUCKETS: [f64; 13] = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 200.0, 400.0];
/// Seconds. Far below a millisecond without a queue.
const WAIT_BUCKETS: [f64; 11] = [0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    route: String,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    route: String,
    gate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabels {
    route: String,
    mode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransformLabels {
    route: String,
    transform: &'static str,
}

/// Rules are named by the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    route: String,
    rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabels {
    route: String,
    backend: String,
}

type BackendHistograms = Family<BackendLabels, Histogram, fn() -> Histogram>;
type HistogramFamily = Family<RouteLabel, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone)]
struct Families {
    requests: Family<CodeLabels, Counter>,
    refused: Family<GateLabels, Counter>,
    granted: Family<ModeLabels, Counter>,
    retries: Family<RouteLabel, Counter>,
    client_disconnects: Family<RouteLabel, Counter>,
    keyless: Family<RouteLabel, Counter>,
    session_ids_too_long: Family<RouteLabel, Counter>,
    ttft: HistogramFamily,
    duration: HistogramFamily,
    acquire_wait: HistogramFamily,
    backend_ttft: BackendHistograms,
    backend_tps: BackendHistograms,
    prompt_tokens: Family<BackendLabels, Counter>,
    cached_tokens: Family<BackendLabels, Counter>,
    completion_tokens: Family<BackendLabels, Counter>,
    payload: PayloadFamilies,
}

/// All metrics of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    families: Families,
    /// Bounded by the routes that operators made.
    routes: Mutex<HashMap<RouteName, Arc<RouteMetrics>>>,
    /// Those of the snapshot in force.
    backends: Mutex<HashMap<(RouteName, String), Arc<BackendMetrics>>>,
    /// For requests that no route answers.
    pub(crate) unrouted: Arc<RouteMetrics>,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) link_up: Gauge,
    pub(crate) snapshot_version: Gauge,
    pub(crate) upstream_opened: Counter,
    pub(crate) upstream_reused: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let families = Families {
            requests: Family::default(),
            refused: Family::default(),
            granted: Family::default(),
            retries: Family::default(),
            client_disconnects: Family::default(),
            keyless: Family::default(),
            session_ids_too_long: Family::default(),
            ttft: Family::new_with_constructor(|| Histogram::new(TTFT_BUCKETS)),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            acquire_wait: Family::new_with_constructor(|| Histogram::new(WAIT_BUCKETS)),
            backend_ttft: Family::new_with_constructor(|| Histogram::new(TTFT_BUCKETS)),
            backend_tps: Family::new_with_constructor(|| Histogram::new(TPS_BUCKETS)),
            prompt_tokens: Family::default(),
            cached_tokens: Family::default(),
            completion_tokens: Family::default(),
            payload: PayloadFamilies::default(),
        };
        let metrics = Self {
            unrouted: Arc::new(RouteMetrics::new(&families, "-")),
            registry: Registry::with_prefix("router"),
            families,
            routes: Mutex::default(),
            backends: Mutex::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            link_up: Gauge::default(),
            snapshot_version: Gauge::default(),
            upstream_opened: Counter::default(),
            upstream_reused: Counter::default(),
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let r = &mut self.registry;
        let f = &self.families;
        r.register("requests", "Requests answered; 499 is a client that left before the answer", f.requests.clone());
        r.register("refused", "Requests that the control plane refused", f.refused.clone());
        r.register("granted", "Leases granted, by how the backend was chosen", f.granted.clone());
        r.register("retries", "Requests moved to another backend before the first byte", f.retries.clone());
        r.register("client_disconnects", "Clients that left before their answer's end", f.client_disconnects.clone());
        r.register("keyless_requests", "Requests without a session id; no affinity for them", f.keyless.clone());
        r.register(
            "session_ids_too_long",
            "Session ids over 256 characters; each was passed over for the next source",
            f.session_ids_too_long.clone(),
        );
        r.register_with_unit(
            "time_to_first_byte",
            "From the request's head to the answer's first body byte, queue time left out",
            Unit::Seconds,
            f.ttft.clone(),
        );
        r.register_with_unit(
            "request_duration",
            "From the request's head to the answer's end",
            Unit::Seconds,
            f.duration.clone(),
        );
        r.register_with_unit(
            "acquire_wait",
            "From asking the control plane for a slot to its answer",
            Unit::Seconds,
            f.acquire_wait.clone(),
        );
        r.register_with_unit(
            "ttft",
            "Streamed answers: from the request's head to the first body byte, queue time left out",
            Unit::Seconds,
            f.backend_ttft.clone(),
        );
        r.register(
            "tokens_per_second",
            "Throughput of an answer, as it steers the route's limits",
            f.backend_tps.clone(),
        );
        r.register("prompt_tokens", "Tokens of prompts, as engines counted them", f.prompt_tokens.clone());
        r.register("cached_tokens", "Of these, served from prefix caches", f.cached_tokens.clone());
        r.register("completion_tokens", "Tokens of answers, as engines counted them", f.completion_tokens.clone());
        f.payload.register(r);
        r.register("requests_in_flight", "Requests that have no whole answer yet", self.in_flight.clone());
        r.register("client_connections", "Open client connections", self.connections.clone());
        r.register("control_plane_link_up", "1 when this replica can acquire leases", self.link_up.clone());
        r.register("snapshot_version", "Version of the configuration in force", self.snapshot_version.clone());
        r.register("upstream_connections_opened", "Connections made to backends", self.upstream_opened.clone());
        r.register("upstream_connections_reused", "Requests sent on an idle connection", self.upstream_reused.clone());
        self
    }

    /// How the body log fares. Called once, and only where it is on: elsewhere nobody is to look for a collector.
    pub(crate) fn body_log(&mut self) -> BodyLogGauges {
        let gauges = BodyLogGauges::default();
        gauges.register(&mut self.registry);
        gauges
    }

    /// The handles of one route, made once.
    pub(crate) fn route(&self, name: &RouteName) -> Arc<RouteMetrics> {
        let mut routes = self.routes.lock();
        let made =
            routes.entry(name.clone()).or_insert_with(|| Arc::new(RouteMetrics::new(&self.families, name.as_str())));
        Arc::clone(made)
    }

    /// Those of every route that there was.
    pub(crate) fn all_routes(&self) -> Vec<Arc<RouteMetrics>> {
        self.routes.lock().values().cloned().collect()
    }

    /// Ends the series of the rules of other routes.
    pub(crate) fn keep_rules_of(&self, is_kept: impl Fn(&RouteName) -> bool) {
        let routes = self.routes.lock();
        routes.iter().filter(|(name, _)| !is_kept(name)).for_each(|(_, gone)| gone.payload.keep_rules([]));
    }

    /// The handles of one backend, made once.
    pub(crate) fn backend(&self, route: &RouteName, address: &str) -> Arc<BackendMetrics> {
        let mut backends = self.backends.lock();
        let made = backends
            .entry((route.clone(), address.to_owned()))
            .or_insert_with(|| Arc::new(BackendMetrics::new(&self.families, route, address)));
        Arc::clone(made)
    }

    /// Ends the series of the other backends. Whoever still holds their handles counts unseen.
    pub(crate) fn keep_backends(&self, is_kept: impl Fn(&RouteName, &str) -> bool) {
        self.backends.lock().retain(|(route, address), _| {
            let is_kept = is_kept(route, address);
            if !is_kept {
                let labels = BackendLabels { route: route.to_string(), backend: address.clone() };
                let f = &self.families;
                for histograms in [&f.backend_ttft, &f.backend_tps] {
                    histograms.remove(&labels);
                }
                for counters in [&f.prompt_tokens, &f.cached_tokens, &f.completion_tokens] {
                    counters.remove(&labels);
                }
            }
            is_kept
        });
    }

    /// The exposition text.
    pub(crate) fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String can't fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use router_policy::refusal::Gate;
    use router_proto::v1::Mode;

    use super::*;

    #[test]
    fn series_are_named_with_units_and_codes_are_bounded() {
        let metrics = Metrics::new();
        let route = metrics.route(&RouteName::new("chat").unwrap());
        route.count(200, Duration::from_millis(3));
        route.count(599, Duration::from_millis(3));
        route.count(999, Duration::from_millis(3));
        route.refused(Gate::QueueFull);
        route.granted(Mode::Bound);
        let text = metrics.encode();
        for line in [
            r#"router_requests_total{route="chat",code="200"} 1"#,
            r#"router_requests_total{route="chat",code="5xx"} 1"#,
            r#"router_requests_total{route="chat",code="other"} 1"#,
            r#"router_refused_total{route="chat",gate="queue_full"} 1"#,
            r#"router_granted_total{route="chat",mode="bound"} 1"#,
            r#"router_request_duration_seconds_count{route="chat"} 3"#,
            "router_control_plane_link_up 0",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(Arc::ptr_eq(&route, &metrics.route(&RouteName::new("chat").unwrap())));
    }
}
