//! The pool as operators and replicas see it.

use std::sync::Arc;

use router_policy::flow::MetricView;
use router_policy::ids::{BackendId, Fingerprint, RouteName};
use router_policy::option::resolved::effective;
use router_policy::refusal::Gate;
use router_policy::route::RouteSpec;
use router_policy::tick::Tick;
use router_policy::toggle::{Switch, Toggle, ToggleKey, ToggleValue};
use router_proto::v1;

use super::backend::Backend;
use super::model_pool::ModelPool;
use super::state::State;
use super::{Asked, Place, Pool};

/// Which sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionFilter {
    /// Hexadecimal start of the fingerprint.
    pub prefix: String,
    /// On this backend.
    pub backend: Option<BackendId>,
}

impl SessionFilter {
    /// Whether it means this session.
    pub fn matches(&self, session: Fingerprint, backend: &BackendId) -> bool {
        self.backend.as_ref().is_none_or(|wanted| wanted == backend) && session.starts_with_hex(&self.prefix)
    }
}

impl Pool {
    /// The document in force.
    pub fn spec(&self) -> Arc<RouteSpec> {
        Arc::clone(&self.state.lock().spec)
    }

    /// The route for the snapshot.
    pub fn message(&self) -> v1::Route {
        let now = self.context.clock.now();
        let state = self.state.lock();
        let mut route = v1::Route::from(&*state.spec);
        let in_use = state.backends.iter().zip(&state.views).filter(|(backend, _)| !backend.is_removed);
        route.backends = in_use
            .map(|(backend, view)| v1::Backend {
                address: backend.spec.id.to_string(),
                name: backend.spec.name.clone().unwrap_or_default(),
                limit: view.limit,
                condition: Some(condition(backend, now)),
                context_limit: backend.spec.known_context(&state.options).unwrap_or(0),
                dp_size: backend.spec.dp_size.unwrap_or(0),
                priority_thousandths: backend.spec.priority.thousandths(),
                models: backend.spec.models.clone(),
            })
            .collect();
        let unix = self.context.unix(now);
        let switches = state.toggles.iter(unix).filter(|toggle| match &toggle.key {
            ToggleKey::Switch(_) => true,
            ToggleKey::Limit(limit, _) => limit.is_for_replicas(),
        });
        route.switches = switches.map(|toggle| (toggle.key.name().to_owned(), toggle.value.to_string())).collect();
        // A limit that is set may have TPS measured, which replicas do not hear of: they are told what follows from it.
        let asks = state.toggles.asks_for_usage(&state.spec, unix);
        if asks != Switch::IncludeUsage.by_default(&state.spec) {
            let word = ToggleValue::On(asks).to_string();
            route.switches.insert(Switch::IncludeUsage.name().to_owned(), word);
        }
        route
    }

    /// The route for operators.
    pub fn route_state(&self) -> v1::RouteState {
        let backends = self.backend_states();
        let state = self.state.lock();
        let options = effective(state.spec.preset, &state.spec.set).into_iter();
        let totals = &state.payload.totals;
        v1::RouteState {
            name: self.name.to_string(),
            is_default: state.spec.is_default,
            options: options
                .map(|(name, value, is_set)| v1::OptionState { name: name.to_owned(), value, is_set })
                .collect(),
            backends,
            waiting: u32::try_from(state.waiters.len()).unwrap_or(u32::MAX),
            sessions: state.bindings.len(),
            preset: state.spec.preset.name().to_owned(),
            reserved: state.reserved(),
            complaints: Vec::new(),
            toggles: self.toggles_in(&state),
            pools: self.pool_states(&state),
            payload_counts: totals.counts().map(|(name, sum)| (name.to_owned(), sum)).collect(),
            rule_hits: totals.hit_rules().map(|(rule, hits)| (rule.to_owned(), hits)).collect(),
        }
    }

    /// What is set at run time.
    pub fn toggle_states(&self) -> Vec<v1::ToggleState> {
        self.toggles_in(&self.state.lock())
    }

    fn toggles_in(&self, state: &State) -> Vec<v1::ToggleState> {
        let unix = self.context.unix(self.context.clock.now());
        let then = |toggle: &Toggle| toggle.until.and_then(|_| state.toggles.standing(&toggle.key));
        let message = |toggle: Toggle| v1::ToggleState {
            then: then(&toggle).map(|value| value.to_string()).unwrap_or_default(),
            name: toggle.key.name().to_owned(),
            model: toggle.key.model().to_owned(),
            value: toggle.value.to_string(),
            left_ms: toggle.until.map_or(0, |until| until.0.saturating_sub(unix.0)),
        };
        state.toggles.iter(unix).map(message).collect()
    }

    fn pool_states(&self, state: &State) -> Vec<v1::PoolState> {
        let unix = self.context.unix(self.context.clock.now());
        let message = |(at, pool): (usize, &ModelPool)| {
            let load = state.refusal(Place::Pool(at), &Asked::default(), Gate::QueueFull, unix);
            let first = |metrics: Vec<MetricView<'_>>| metrics.first().and_then(|metric| metric.ewma);
            v1::PoolState {
                model: pool.name().to_owned(),
                active_level: load.active.map(|level| level.to_string()).unwrap_or_default(),
                in_flight: load.in_flight,
                pool_limit: load.limit,
                limit: pool.flow.limit(unix, &pool.options, load.limit, pool.static_max),
                is_adaptive: pool.options.active_adaptive().is_some(),
                ttft_ewma_ms: first(pool.flow.ttft_metrics(unix, &pool.options)),
                tps_ewma: first(pool.flow.tps_metrics(unix, &pool.options)),
            }
        };
        state.pools.list.iter().enumerate().map(message).collect()
    }

    /// Each backend now, in the route's order; those that are removed and still hold leases at the end. Those of a removed
    /// route all are.
    pub fn backend_states(&self) -> Vec<v1::BackendState> {
        let now = self.context.clock.now();
        let state = self.state.lock();
        let mut states: Vec<(bool, v1::BackendState)> = state
            .backends
            .iter()
            .zip(&state.views)
            .map(|(backend, view)| {
                // A pool that is closed admits nobody, whatever its backends are.
                let is_removed = backend.is_removed || state.is_closed;
                let ban_until = backend.ban.as_ref().filter(|_| backend.is_banned(now)).and_then(|ban| ban.until);
                let message = v1::BackendState {
                    route: self.name.to_string(),
                    address: backend.spec.id.to_string(),
                    name: backend.spec.name.clone().unwrap_or_default(),
                    condition: Some(v1::Condition { removed: is_removed, ..condition(backend, now) }),
                    reason: reason(backend, now),
                    in_flight: view.in_flight,
                    limit: view.limit,
                    sessions: view.bound,
                    ban_left_ms: ban_until.map_or(0, |until| until.0.saturating_sub(now.0)),
                    granted_total: backend.granted_total,
                    failures_total: backend.failures_total,
                    max_concurrency: backend.spec.max_concurrency.unwrap_or(0),
                    health_path: backend.spec.health_path.clone().unwrap_or_default(),
                    context_limit: backend.spec.context_limit.unwrap_or(0),
                    dp_size: backend.spec.dp_size.unwrap_or(0),
                    priority_thousandths: backend.spec.priority.thousandths(),
                    models: backend.spec.models.clone(),
                };
                (backend.is_removed, message)
            })
            .collect();
        states.sort_by_key(|(is_removed, _)| *is_removed);
        states.into_iter().map(|(_, message)| message).collect()
    }

    /// The sessions that a filter means: the `limit` used last, and how many there are.
    pub fn sessions(&self, filter: &SessionFilter, limit: usize) -> (Vec<v1::SessionState>, u64) {
        let state = self.state.lock();
        let mut found: Vec<_> =
            state.bindings.iter().filter(|(session, binding)| filter.matches(*session, &binding.backend)).collect();
        let total = found.len() as u64;
        let order = |(session, binding): &(Fingerprint, &super::binding::Binding)| {
            (std::cmp::Reverse(binding.last_used_unix_ms), *session)
        };
        // Under the pool's lock: what is not shown is not sorted.
        if limit > 0 && limit < found.len() {
            found.select_nth_unstable_by_key(limit - 1, order);
            found.truncate(limit);
        }
        found.sort_unstable_by_key(order);
        found.truncate(limit);
        let message =
            |route: &RouteName, (session, binding): &(Fingerprint, &super::binding::Binding)| v1::SessionState {
                route: route.to_string(),
                fingerprint: session.to_string(),
                backend: binding.backend.to_string(),
                created_unix_ms: binding.created_unix_ms,
                last_used_unix_ms: binding.last_used_unix_ms,
                requests: binding.requests,
                moves: binding.moves,
                in_flight: binding.in_flight,
                dp_rank: binding.dp_rank,
            };
        (found.iter().map(|row| message(&self.name, row)).collect(), total)
    }

    /// Leases now, over all backends.
    pub fn in_flight(&self) -> u32 {
        self.state.lock().total_in_flight()
    }
}

fn condition(backend: &Backend, now: Tick) -> v1::Condition {
    v1::Condition {
        unhealthy: !backend.health.is_healthy(now),
        draining: backend.is_draining,
        banned: backend.is_banned(now),
        removed: backend.is_removed,
    }
}

fn reason(backend: &Backend, now: Tick) -> String {
    match &backend.ban {
        Some(ban) if backend.is_banned(now) => ban.reason.clone(),
        _ if backend.health_reason.is_empty() && backend.is_draining => backend.drain_reason.clone(),
        _ => backend.health_reason.clone(),
    }
}
