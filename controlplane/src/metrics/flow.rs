//! What is measured of pools' flow control, and counted for their backends. Filled when Prometheus asks: what is not in a
//! route any more is not in the text either.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use router_policy::flow::{BucketCounts, TpsBasis, UnixMs};

use super::BackendLabel;
use crate::pool::{FlowSeen, RouteSeen};

/// Empty on a route with one pool for all models; else a model of its document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    route: String,
    model: String,
}

/// The bucket's number, the coldest 0; `none` for requests that state no turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BucketLabel {
    route: String,
    model: String,
    bucket: String,
}

/// `decode` or `total`, whichever the route's limits do not go by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BasisLabel {
    route: String,
    model: String,
    basis: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TripLabel {
    route: String,
    model: String,
    gate: &'static str,
}

type Number = Gauge<f64, AtomicU64>;

/// A route when Prometheus asks.
pub struct RouteFlow {
    /// Its backends.
    pub seen: RouteSeen,
    /// Its pools.
    pub flows: Vec<FlowSeen>,
}

/// The families.
#[derive(Default)]
pub(super) struct FlowMetrics {
    pool_limit: Family<PoolLabel, Gauge>,
    pool_in_flight: Family<PoolLabel, Gauge>,
    adaptive_limit: Family<PoolLabel, Number>,
    ttft_seconds: Family<PoolLabel, Number>,
    tps: Family<PoolLabel, Number>,
    other_tps: Family<BasisLabel, Number>,
    held: Family<PoolLabel, Gauge>,
    would_trip: Family<TripLabel, Counter>,
    admitted: Family<BucketLabel, Counter>,
    refused: Family<BucketLabel, Counter>,
    prompt_tokens: Family<BucketLabel, Counter>,
    cached_tokens: Family<BucketLabel, Counter>,
    backend_granted: Family<BackendLabel, Counter>,
    backend_failures: Family<BackendLabel, Counter>,
    backend_banned: Family<BackendLabel, Counter>,
    backend_retries: Family<BackendLabel, Counter>,
    backend_moves: Family<BackendLabel, Counter>,
}

impl FlowMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("pool_limit", "Leases that a pool's candidates may hold together", self.pool_limit.clone());
        registry.register("pool_in_flight", "Leases on a pool's candidates", self.pool_in_flight.clone());
        registry.register("adaptive_limit", "Leases that an adaptive pool may hold", self.adaptive_limit.clone());
        registry.register("ttft_ewma_seconds", "Smoothed time to first token", self.ttft_seconds.clone());
        registry.register("tps_ewma", "Smoothed tokens per second", self.tps.clone());
        let other = "Smoothed tokens per second by the basis that no limit goes by";
        registry.register("tps_other_ewma", other, self.other_tps.clone());
        registry.register("new_sessions_held", "1 while first turns are held back for TTFT", self.held.clone());
        let would = "Requests that a gate would have stopped while load_rate_limit was off";
        registry.register("would_trip", would, self.would_trip.clone());
        registry.register("turns_admitted", "Requests that got a backend, by turn", self.admitted.clone());
        registry.register("turns_refused", "Requests refused, by turn", self.refused.clone());
        registry.register("turns_prompt_tokens", "Prompt tokens, by turn", self.prompt_tokens.clone());
        registry.register("turns_cached_tokens", "Prompt tokens found cached, by turn", self.cached_tokens.clone());
        registry.register("backend_granted", "Leases granted, by backend", self.backend_granted.clone());
        registry.register("backend_failures", "Failed requests, by backend", self.backend_failures.clone());
        let banned = "How often a backend was taken out for failures, by backend";
        registry.register("backend_banned", banned, self.backend_banned.clone());
        let retries = "Requests that went on to another backend, by the backend that had failed them";
        registry.register("backend_retries", retries, self.backend_retries.clone());
        let moves = "Sessions that moved, by the backend that they moved to";
        registry.register("backend_session_moves", moves, self.backend_moves.clone());
    }

    /// Makes the families what these routes are. Not by two at a time: counters are made anew and counted up.
    pub(super) fn fill(&self, routes: &[RouteFlow]) {
        self.clear();
        for RouteFlow { seen, flows } in routes {
            let route = seen.spec.name.as_str();
            for backend in &seen.backends {
                let label = BackendLabel { route: route.to_owned(), backend: backend.id.to_string() };
                self.backend_granted.get_or_create(&label).inc_by(backend.granted_total);
                self.backend_failures.get_or_create(&label).inc_by(backend.failures_total);
                self.backend_banned.get_or_create(&label).inc_by(backend.bans_total);
                self.backend_retries.get_or_create(&label).inc_by(backend.retries_total);
                self.backend_moves.get_or_create(&label).inc_by(backend.moves_total);
            }
            for pool in flows {
                self.fill_pool(route, pool, seen.unix);
            }
        }
    }

    fn clear(&self) {
        for family in [&self.pool_limit, &self.pool_in_flight, &self.held] {
            family.clear();
        }
        for family in [&self.adaptive_limit, &self.ttft_seconds, &self.tps] {
            family.clear();
        }
        for family in [&self.admitted, &self.refused, &self.prompt_tokens, &self.cached_tokens] {
            family.clear();
        }
        for family in [&self.backend_granted, &self.backend_failures, &self.backend_banned] {
            family.clear();
        }
        for family in [&self.backend_retries, &self.backend_moves] {
            family.clear();
        }
        self.would_trip.clear();
        self.other_tps.clear();
    }

    fn fill_pool(&self, route: &str, pool: &FlowSeen, unix: UnixMs) {
        let (flow, options) = (&pool.flow, &pool.options);
        let model = pool.model.clone().unwrap_or_default();
        let label = PoolLabel { route: route.to_owned(), model: model.clone() };
        self.pool_limit.get_or_create(&label).set(i64::from(pool.load.limit));
        self.pool_in_flight.get_or_create(&label).set(i64::from(pool.load.in_flight));
        if options.active_adaptive().is_some() {
            let limit = flow.limit(unix, options, pool.load.limit, pool.static_max);
            self.adaptive_limit.get_or_create(&label).set(limit);
        }
        if let Some(ms) = flow.ttft_metrics(unix, options).first().and_then(|metric| metric.ewma) {
            self.ttft_seconds.get_or_create(&label).set(ms / 1000.0);
        }
        if let Some(tps) = flow.tps_metrics(unix, options).first().and_then(|metric| metric.ewma) {
            self.tps.get_or_create(&label).set(tps);
        }
        if let Some(tps) = flow.other_tps(unix, options) {
            let basis = match options.tps_basis {
                TpsBasis::Total => "decode",
                TpsBasis::Decode => "total",
            };
            let label = BasisLabel { route: route.to_owned(), model: model.clone(), basis };
            self.other_tps.get_or_create(&label).set(tps);
        }
        let trips = flow.trips();
        for (gate, count) in [("concurrency", trips.concurrency), ("ttft", trips.ttft), ("tps", trips.tps)] {
            let label = TripLabel { route: route.to_owned(), model: model.clone(), gate };
            self.would_trip.get_or_create(&label).inc_by(count);
        }
        let Some(prio) = &options.prio else { return };
        self.held.get_or_create(&label).set(i64::from(flow.is_held(unix, options)));
        let counts = flow.turn_counts();
        // As many as the table has rows, whatever it had before.
        let known = counts.buckets().iter().take(prio.table.rows().len()).enumerate();
        for (at, counts) in known {
            self.fill_bucket(&label, at.to_string(), counts);
        }
        self.fill_bucket(&label, "none".to_owned(), counts.no_header());
    }

    fn fill_bucket(&self, of: &PoolLabel, bucket: String, counts: &BucketCounts) {
        let label = BucketLabel { route: of.route.clone(), model: of.model.clone(), bucket };
        self.admitted.get_or_create(&label).inc_by(counts.admitted);
        self.refused.get_or_create(&label).inc_by(counts.refused);
        self.prompt_tokens.get_or_create(&label).inc_by(counts.prompt_tokens);
        self.cached_tokens.get_or_create(&label).inc_by(counts.cached_tokens);
    }
}
