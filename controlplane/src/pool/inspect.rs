//! The route as status pages and metrics want it: plain values, copied under the lock, so that nothing is printed while
//! requests wait for it.

use std::sync::Arc;
use std::time::Duration;

use router_policy::admit::Decision;
use router_policy::flow::{Bucket, Flow, FlowOptions, Trips, UnixMs};
use router_policy::ids::BackendId;
use router_policy::payload_count::PayloadTotals;
use router_policy::refusal::{Gate, Refusal};
use router_policy::route::{Priority, RouteSpec};
use router_policy::toggle::Toggles;
use router_proto::v1;

use super::model_pool::{LoadRefusals, ModelPool};
use super::{Asked, Place, Pool};

/// A route at one moment.
#[derive(Debug, Clone)]
pub struct RouteSeen {
    /// Its document.
    pub spec: Arc<RouteSpec>,
    /// The moment.
    pub unix: UnixMs,
    /// What is set at run time.
    pub toggles: Toggles,
    /// Those of the document that are taken up, in its order.
    pub backends: Vec<BackendSeen>,
    /// In order of the model's name.
    pub pools: Vec<PoolSeen>,
    /// What replicas have counted of its payloads.
    pub payload: PayloadTotals,
    /// The mean time from a request to its slot, of late.
    pub queue_wait: Option<Duration>,
}

/// One backend.
#[derive(Debug, Clone)]
pub struct BackendSeen {
    /// Its address.
    pub id: BackendId,
    /// Its label.
    pub name: Option<String>,
    /// Its tier.
    pub priority: Priority,
    /// It takes no requests: unhealthy, banned or draining.
    pub is_out: bool,
    /// Leases now.
    pub in_flight: u32,
    /// Leases that it may hold.
    pub limit: u32,
    /// Leases granted since the start.
    pub granted_total: u64,
    /// Failures reported since the start.
    pub failures_total: u64,
    /// How often it was taken out for failures.
    pub bans_total: u64,
    /// Requests that went on to another backend, for it had failed them.
    pub retries_total: u64,
    /// Sessions that moved to it from another backend.
    pub moves_total: u64,
}

/// One pool, without its flow control.
#[derive(Debug, Clone)]
pub struct PoolSeen {
    /// `None` where there is one for all models.
    pub model: Option<String>,
    /// What its backends may hold when all are up.
    pub static_max: u32,
    /// Load 429s since the start or the last reset.
    pub refusals: LoadRefusals,
    /// What would have been refused, but load is not limited.
    pub trips: Trips,
}

/// One pool's flow control; the questions to it are [`Flow`]'s.
#[derive(Debug, Clone)]
pub struct FlowSeen {
    /// `None` where there is one for all models.
    pub model: Option<String>,
    /// Its state.
    pub flow: Flow,
    /// What holds for it now.
    pub options: FlowOptions,
    /// What its backends may hold when all are up.
    pub static_max: u32,
    /// Its load; the gate means nothing.
    pub load: Refusal,
}

impl FlowSeen {
    /// The model, or `_` where there is one pool for all.
    pub fn key(&self) -> &str {
        key_of(self.model.as_deref())
    }
}

impl PoolSeen {
    /// The model, or `_` where there is one pool for all.
    pub fn key(&self) -> &str {
        key_of(self.model.as_deref())
    }
}

fn key_of(model: Option<&str>) -> &str {
    model.unwrap_or("_")
}

/// Where a request would go now.
#[derive(Debug, Clone)]
pub struct RoutingSeen {
    /// Where its session belongs, and whether that takes no requests.
    pub natural: Option<(BackendId, bool)>,
    /// Where it would go, load gates that judge by speed left aside.
    pub pick: Option<BackendId>,
    /// `X-Routed-Mode`; `waits` or `refused` when it would not go anywhere now.
    pub mode: &'static str,
    /// The gate that would refuse it.
    pub refused_by: Option<Gate>,
    /// The tier that takes requests.
    pub active: Option<Priority>,
    /// Its turn's step, where turns are ranked.
    pub bucket: Option<Bucket>,
}

impl Pool {
    /// The route now.
    pub fn inspect(&self) -> RouteSeen {
        let now = self.context.clock.now();
        let state = self.state.lock();
        let in_use = state.backends.iter().zip(&state.views).filter(|(backend, _)| !backend.is_removed);
        let backends = in_use.map(|(backend, view)| BackendSeen {
            id: backend.spec.id.clone(),
            name: backend.spec.name.clone(),
            priority: view.priority,
            is_out: !view.is_admitted,
            in_flight: view.in_flight,
            limit: view.limit,
            granted_total: backend.granted_total,
            failures_total: backend.failures_total,
            bans_total: backend.bans_total,
            retries_total: backend.retries_total,
            moves_total: state.bindings.moves_to(&backend.spec.id),
        });
        let pools = state.pools.list.iter().map(|pool| PoolSeen {
            model: pool.model.clone(),
            static_max: pool.static_max,
            refusals: pool.refusals,
            trips: pool.flow.trips(),
        });
        RouteSeen {
            spec: Arc::clone(&state.spec),
            unix: self.context.unix(now),
            toggles: state.toggles.clone(),
            backends: backends.collect(),
            pools: pools.collect(),
            payload: state.payload.totals.clone(),
            queue_wait: self.metrics.waited.recent_mean(),
        }
    }

    /// Every pool's flow control now.
    pub fn inspect_flows(&self) -> Vec<FlowSeen> {
        let unix = self.context.unix(self.context.clock.now());
        let state = self.state.lock();
        let seen = |(at, pool): (usize, &ModelPool)| FlowSeen {
            model: pool.model.clone(),
            flow: pool.flow.clone(),
            options: pool.options.clone(),
            static_max: pool.static_max,
            load: state.refusal(Place::Pool(at), &Asked::default(), Gate::QueueFull, unix),
        };
        state.pools.list.iter().enumerate().map(seen).collect()
    }

    /// Where a request would go now; nothing changes. `None`: no pool for its model.
    pub fn inspect_routing(&self, asked: &Asked) -> Option<RoutingSeen> {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        if state.refresh(now) {
            self.mark_dirty();
        }
        let foreseen = state.foresee(asked, now, self.context.unix(now))?;
        let id = |slot: usize| state.backends.get(slot).map(|backend| backend.spec.id.clone());
        let is_out = |slot: usize| state.views.get(slot).is_none_or(|view| !view.is_admitted);
        let slow = foreseen.speed.refusal.as_ref().map(super::refuse::gate_of);
        let (pick, mode, refused_by) = match foreseen.decision {
            Decision::Grant(grant) => (id(grant.slot), v1::Mode::from(&grant).word(), slow),
            Decision::Refuse(refusal) => (None, "refused", Some(refusal.gate)),
            Decision::Wait if slow.is_some() => (None, "refused", slow),
            Decision::Wait | Decision::Reserve => (None, "waits", None),
        };
        Some(RoutingSeen {
            natural: foreseen.belongs.and_then(|slot| Some((id(slot)?, is_out(slot)))),
            pick,
            mode,
            refused_by,
            active: foreseen.load.active,
            bucket: foreseen.bucket,
        })
    }

    /// Counts load 429s and refusals by rules anew.
    pub fn reset_refusals(&self) {
        let mut state = self.state.lock();
        for pool in &mut state.pools.list {
            pool.refusals = LoadRefusals::default();
        }
        state.payload.reset_refusals();
    }
}
