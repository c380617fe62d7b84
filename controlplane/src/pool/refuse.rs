//! Refusals, counted and told with the session router's details (routing.md §7, limits.md §12.1).

use router_policy::flow::{LatencyGate, LatencyRefusal};
use router_policy::refusal::{Gate, Refusal};
use router_policy::tick::Tick;
use router_proto::v1;
use router_proto::v1::server_op::Kind;
use serde_json::{Map, Value as Json, json};

use super::state::State;
use super::waiters::Waiter;
use super::{Asked, Caller, Place, Pool};

impl Pool {
    /// Refuses a request by a gate that its pool's load decided.
    #[expect(clippy::too_many_arguments, reason = "one decision's parts, used in several places")]
    pub(super) fn refuse(
        &self,
        state: &mut State,
        place: Place,
        op: u64,
        asked: &Asked,
        caller: &Caller,
        refusal: Refusal,
        now: Tick,
    ) {
        let is_for_load = matches!(refusal.gate, Gate::QueueFull | Gate::QueueTimeout);
        if is_for_load && let Some(pool) = state.pool_mut(place) {
            pool.refusals.concurrency += 1;
            // One that only changes its backend was counted when it was admitted.
            let bucket = pool.bucket(asked).filter(|_| asked.tried.is_empty());
            pool.flow.refused(bucket);
            pool.is_dirty |= bucket.is_some();
        }
        let details = match refusal.gate {
            Gate::QueueFull | Gate::QueueTimeout => self.concurrency_details(state, place, &refusal, now),
            Gate::NoBackend => Map::from_iter([
                text("error", "all peers banned, no healthy upstream"),
                text("route", self.name.as_str()),
            ]),
            _ => Map::new(),
        };
        self.tell_refusal(op, caller, refusal, details, None);
    }

    /// Refuses a waiter that was taken out of the queue: its time is over, or a later turn takes its place.
    pub(super) fn refuse_waiter(&self, state: &mut State, waiter: &Waiter, gate: Gate, now: Tick) {
        match state.place(&waiter.asked) {
            Some(place) => {
                let refusal = state.refusal(place, &waiter.asked, gate, self.context.unix(now));
                self.refuse(state, place, waiter.op, &waiter.asked, &waiter.caller, refusal, now);
            }
            None => self.refuse_unknown_model(state, waiter.op, &waiter.asked, &waiter.caller),
        }
        self.after_load_change(state);
    }

    /// Refuses a request because its pool is slow.
    #[expect(clippy::too_many_arguments, reason = "one decision's parts, as in `refuse`")]
    pub(super) fn refuse_slow(
        &self,
        state: &mut State,
        place: Place,
        op: u64,
        asked: &Asked,
        caller: &Caller,
        slow: &LatencyRefusal,
        now: Tick,
    ) {
        let gate = gate_of(slow);
        if let Some(pool) = state.pool_mut(place) {
            match slow.gate {
                LatencyGate::Ttft => pool.refusals.ttft += 1,
                LatencyGate::Tps => pool.refusals.tps += 1,
            }
            let bucket = pool.bucket(asked);
            pool.flow.refused(bucket);
            pool.is_dirty = true;
        }
        let refusal = state.refusal(place, asked, gate, self.context.unix(now));
        let model = state.pool(place).map_or("", |pool| pool.name());
        let (name, limit) = match slow.gate {
            LatencyGate::Ttft => ("ttft", json!(whole(slow.threshold))),
            LatencyGate::Tps => ("tps", json!(one_decimal(slow.threshold))),
        };
        let details = Map::from_iter([
            text("error", &format!("{name} limit exceeded")),
            text("trigger", &format!("{name}_ewma")),
            (format!("{name}_ewma"), json!(one_decimal(slow.ewma))),
            (format!("{name}_limit"), limit),
            text("model", if model.is_empty() { "-" } else { model }),
            ("healthy_peers".to_owned(), json!(refusal.healthy)),
            ("active_level".to_owned(), refusal.active.map_or(Json::Null, router_policy::route::Priority::json)),
            text("route", self.name.as_str()),
            text("metric", &slow.metric),
        ]);
        self.tell_refusal(op, caller, refusal, details, None);
    }

    /// Refuses a request for a model that the route has no pool for.
    pub(super) fn refuse_unknown_model(&self, state: &State, op: u64, asked: &Asked, caller: &Caller) {
        let model: String = asked.model.chars().take(256).collect();
        let shown = if model.is_empty() { "nil" } else { model.as_str() };
        let message = format!("model '{shown}' not configured on this route");
        let details = Map::from_iter([("supported_models".to_owned(), json!(state.pools.models()))]);
        self.tell_refusal(op, caller, Refusal::by(Gate::UnknownModel), details, Some(message));
    }

    fn tell_refusal(
        &self,
        op: u64,
        caller: &Caller,
        refusal: Refusal,
        details: Map<String, Json>,
        message: Option<String>,
    ) {
        self.metrics.refused(refusal.gate);
        let mut refused = v1::Refused::from(refusal);
        if !details.is_empty() {
            refused.details_json = Json::Object(details).to_string();
        }
        if let Some(message) = message {
            refused.detail = message;
        }
        caller.answer(op, Kind::Refused(refused));
    }

    fn concurrency_details(&self, state: &State, place: Place, refusal: &Refusal, now: Tick) -> Map<String, Json> {
        let unix = self.context.unix(now);
        let pool = state.pool(place);
        let factor = pool.map_or(1.0, |pool| pool.options.rt_limit_factor);
        let average = pool.map_or(0.0, |pool| pool.flow.cluster_avg(unix, &pool.options).avg);
        let mut details = Map::from_iter([
            text("error", "concurrency limit exceeded"),
            text("trigger", &format!("realtime_{factor}x")),
            ("realtime".to_owned(), json!(refusal.in_flight)),
            ("avg_5min".to_owned(), json!(one_decimal(average))),
        ]);
        // The body of an adaptive route also while its limit is not in force (limits.md §12.1).
        let adaptive = pool.filter(|pool| pool.options.adaptive.is_some());
        match adaptive {
            None => {
                details.insert("limit".to_owned(), json!(refusal.limit));
            }
            Some(pool) => {
                let limit = pool.flow.limit(unix, &pool.options, refusal.limit, pool.static_max);
                let stored = pool.flow.adaptive(unix, &pool.options, pool.static_max).and_then(|view| view.value);
                details.insert("limit".to_owned(), json!(one_decimal(limit)));
                details.insert("pool_limit".to_owned(), json!(refusal.limit));
                let shown = stored.unwrap_or(f64::from(refusal.limit));
                details.insert("adaptive_cc".to_owned(), json!(one_decimal(shown)));
            }
        }
        details.extend([
            ("rt_factor".to_owned(), json!(factor)),
            ("healthy_peers".to_owned(), json!(refusal.healthy)),
            ("active_level".to_owned(), refusal.active.map_or(Json::Null, router_policy::route::Priority::json)),
            text("route", self.name.as_str()),
        ]);
        details
    }
}

/// The gate of a refusal for speed.
pub(super) fn gate_of(slow: &LatencyRefusal) -> Gate {
    match slow.gate {
        LatencyGate::Ttft => Gate::Ttft,
        LatencyGate::Tps => Gate::Tps,
    }
}

fn text(key: &str, value: &str) -> (String, Json) {
    (key.to_owned(), json!(value))
}

/// A number as the session router shows it.
pub(super) fn one_decimal(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// A fractional limit is cut (limits.md §12.1).
#[expect(clippy::cast_possible_truncation, reason = "saturates; limits are far below")]
fn whole(number: f64) -> i64 {
    number as i64
}
