//! The answers about flow control: switches and limits that are set, pools, and what would become of a request.

use router_policy::route::Priority;
use router_proto::v1;
use serde::Serialize;
use serde_json::Value as Json;

use super::some;

/// A run-time switch or limit that is set.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ToggleView {
    pub(crate) name: String,
    /// Null for the whole route.
    pub(crate) model: Option<String>,
    /// `on`, `off`, or a number as text.
    pub(crate) value: String,
    /// Until it undoes itself; null for never.
    pub(crate) left_ms: Option<u64>,
    /// What holds again after that; null for what the route's options say.
    pub(crate) then: Option<String>,
}

impl From<v1::ToggleState> for ToggleView {
    fn from(state: v1::ToggleState) -> Self {
        let v1::ToggleState { name, model, value, left_ms, then } = state;
        Self { name, model: some(model), value, left_ms: (left_ms != 0).then_some(left_ms), then: some(then) }
    }
}

/// `toggle`.
#[derive(Debug, Serialize)]
pub(crate) struct ToggleList {
    pub(crate) route: String,
    /// What is set now.
    pub(crate) toggles: Vec<ToggleView>,
    /// What is to be known besides; null for nothing.
    pub(crate) note: Option<String>,
}

impl ToggleList {
    pub(crate) fn new(route: String, reply: v1::SetToggleReply) -> Self {
        let toggles = reply.toggles.into_iter().map(Into::into).collect();
        Self { route, toggles, note: some(reply.note) }
    }
}

/// `toggle` without a route, and `toggle --all`.
#[derive(Debug, Serialize)]
pub(crate) struct ToggleLists {
    /// Every route, also one on which nothing is set.
    pub(crate) routes: Vec<RouteToggles>,
    /// Something was set: each route is told of, not only those on which something is set now.
    #[serde(skip)]
    pub(crate) is_report: bool,
}

/// One route of several.
#[derive(Debug, Serialize)]
pub(crate) struct RouteToggles {
    #[serde(flatten)]
    pub(crate) list: ToggleList,
    /// Why it could not be set there; null for success. `toggles` is empty then: what is set is not known.
    pub(crate) error: Option<String>,
}

impl RouteToggles {
    pub(crate) fn set(route: String, reply: v1::SetToggleReply) -> Self {
        Self { list: ToggleList::new(route, reply), error: None }
    }

    pub(crate) fn failed(route: String, error: String) -> Self {
        Self { list: ToggleList::new(route, v1::SetToggleReply::default()), error: Some(error) }
    }
}

/// One pool of a route: all of its backends, or those of one model.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PoolView {
    /// Null where one pool serves every model.
    pub(crate) model: Option<String>,
    /// The priority that takes requests now; null when nobody is healthy and admitted.
    pub(crate) active_level: Json,
    pub(crate) in_flight: u32,
    /// What its candidates may hold together.
    pub(crate) pool_limit: u32,
    /// What the pool may hold now.
    pub(crate) limit: f64,
    pub(crate) is_adaptive: bool,
    /// Smoothed; null while there is none.
    pub(crate) ttft_ewma_ms: Option<f64>,
    pub(crate) tps_ewma: Option<f64>,
}

impl From<v1::PoolState> for PoolView {
    fn from(state: v1::PoolState) -> Self {
        Self {
            model: some(state.model),
            active_level: level(state.active_level),
            in_flight: state.in_flight,
            pool_limit: state.pool_limit,
            limit: state.limit,
            is_adaptive: state.is_adaptive,
            ttft_ewma_ms: state.ttft_ewma_ms,
            tps_ewma: state.tps_ewma,
        }
    }
}

/// A tier as a number; null for none.
fn level(text: String) -> Json {
    match text.parse::<Priority>() {
        Ok(priority) => priority.json(),
        Err(_) => some(text).into(),
    }
}

/// `route explain`.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    /// What would happen, in one sentence.
    pub(crate) outcome: String,
    /// `host:port`; null when none would be chosen.
    pub(crate) backend: Option<String>,
    /// `X-Routed-Mode`; null when none would be chosen.
    pub(crate) mode: Option<String>,
    /// The gate that would refuse; null for none.
    pub(crate) refused_by: Option<String>,
    pub(crate) waits: bool,
    /// What is known of the session; null when none was asked for.
    pub(crate) session: Option<String>,
    pub(crate) gates: Vec<GateView>,
    pub(crate) candidates: Vec<CandidateView>,
    /// Reject rules in force. They are asked before every gate; what they say of a body is not known here.
    pub(crate) rules: u32,
}

impl From<v1::ExplainReply> for Explanation {
    fn from(reply: v1::ExplainReply) -> Self {
        let v1::ExplainReply { outcome, backend, mode, refused_by, waits, session, gates, candidates, rules } = reply;
        Self {
            outcome,
            backend: some(backend),
            mode: some(mode),
            refused_by: some(refused_by),
            waits,
            session: some(session),
            gates: gates.into_iter().map(Into::into).collect(),
            candidates: candidates.into_iter().map(Into::into).collect(),
            rules,
        }
    }
}

/// A gate and what it would do.
#[derive(Debug, Serialize)]
pub(crate) struct GateView {
    pub(crate) name: String,
    /// It would stop the request now.
    pub(crate) trips: bool,
    pub(crate) why: String,
}

impl From<v1::GateState> for GateView {
    fn from(state: v1::GateState) -> Self {
        let v1::GateState { name, trips, why } = state;
        Self { name, trips, why }
    }
}

/// A backend of the pool and whether it could be chosen.
#[derive(Debug, Serialize)]
pub(crate) struct CandidateView {
    pub(crate) address: String,
    pub(crate) name: Option<String>,
    /// Its tier, a number.
    pub(crate) priority: Json,
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    pub(crate) is_candidate: bool,
    /// Null for a candidate.
    pub(crate) why_not: Option<String>,
}

impl From<v1::CandidateState> for CandidateView {
    fn from(state: v1::CandidateState) -> Self {
        let v1::CandidateState { address, name, priority, in_flight, limit, is_candidate, why_not } = state;
        let (name, priority, why_not) = (some(name), level(priority), some(why_not));
        Self { address, name, priority, in_flight, limit, is_candidate, why_not }
    }
}
