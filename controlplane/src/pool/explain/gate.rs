//! The gates in the order in which they are asked, each with its numbers.

use router_policy::admit::Decision;
use router_policy::flow::{FlowOptions, LatencyGate, LatencyRefusal, MetricView, UnixMs};
use router_policy::option::{Affinity, OnFull};
use router_policy::refusal::Gate;
use router_proto::v1;

use crate::pool::Asked;
use crate::pool::foresee::Foreseen;
use crate::pool::refuse::one_decimal;
use crate::pool::state::State;

/// What one request's sentences are made of.
pub(super) struct Sentences<'a> {
    pub state: &'a State,
    pub foreseen: &'a Foreseen<'a>,
    pub asked: &'a Asked,
    pub unix: UnixMs,
}

/// The gates, in the order in which they are asked.
const GATES: [&str; 6] = ["model", "backends", "session table", "concurrency", "ttft", "tps"];
/// Of a gate that an earlier one keeps the request from.
const NOT_REACHED: &str = "not reached";

/// The gates of a request for whose model there is no pool.
pub(super) fn unknown_model(why: String) -> Vec<v1::GateState> {
    let later = std::iter::repeat_n((false, NOT_REACHED.to_owned()), GATES.len() - 1);
    gate_states(std::iter::once((true, why)).chain(later))
}

fn gate_states(told: impl IntoIterator<Item = (bool, String)>) -> Vec<v1::GateState> {
    let state = |(name, (trips, why)): (&str, (bool, String))| v1::GateState { name: name.to_owned(), trips, why };
    GATES.into_iter().zip(told).map(state).collect()
}

impl Sentences<'_> {
    /// Each gate. At most one trips: the one that refuses the request, or makes it wait.
    pub(super) fn gates(&self) -> Vec<v1::GateState> {
        let refused_by = match self.foreseen.decision {
            Decision::Refuse(refusal) => Some(refusal.gate),
            _ => None,
        };
        let (is_slow, would_wait) = (self.foreseen.speed.refusal.is_some(), self.foreseen.decision == Decision::Wait);
        let is_full = (would_wait && !is_slow) || refused_by == Some(Gate::QueueFull);
        let concurrency = if self.is_over() {
            format!("{}; nobody waits or is refused for that, for load_rate_limit is off", self.load())
        } else if would_wait && is_slow {
            format!("{}; nobody waits for a pool that is slow as well", self.load())
        } else {
            self.load()
        };
        let has_no_backend = matches!(refused_by, Some(Gate::NoBackend | Gate::ContextWindow));
        gate_states([
            (false, self.model()),
            (has_no_backend, self.backends()),
            (refused_by == Some(Gate::SessionTableFull), self.sessions()),
            (is_full, concurrency),
            self.speed(LatencyGate::Ttft),
            self.speed(LatencyGate::Tps),
        ])
    }

    fn model(&self) -> String {
        let members = self.foreseen.pool.members.len();
        match &self.foreseen.pool.model {
            Some(model) => format!("{members} of {} backends serve model '{model}'", self.state.pools.everybody.len()),
            None => "this route has one pool for all models".to_owned(),
        }
    }

    /// How many sessions are bound, and what that means for this one.
    pub(super) fn sessions(&self) -> String {
        let (state, options) = (self.state, &self.state.options);
        if options.affinity != Affinity::Binding {
            return "sessions of this route are not bound".to_owned();
        }
        let (bound, most) = (state.bindings.len(), options.max_sessions);
        let many = format!("{bound} of {most} sessions are bound");
        let is_known = |session| state.bindings.get(session).is_some();
        let more = match self.asked.fingerprint {
            None => "; this request has no session",
            Some(session) if is_known(session) => ", this one among them",
            Some(_) if bound < most => "",
            Some(_) => match (options.on_full, self.foreseen.may_evict) {
                (OnFull::Unbound, _) => ", and on_full serves new ones without binding them",
                (OnFull::EvictIdle, true) => ", and on_full ends the one that has been idle longest",
                (OnFull::EvictIdle, false) => ", and on_full finds none that has been idle for long enough",
                (OnFull::Refuse, _) => ", and on_full keeps new ones out",
            },
        };
        many + more
    }

    fn is_over(&self) -> bool {
        matches!(self.foreseen.decision, Decision::Grant(grant) if grant.is_over)
    }

    /// Who is up.
    pub(super) fn backends(&self) -> String {
        let members = &self.foreseen.pool.members;
        let views = || members.iter().filter_map(|slot| self.state.views.get(*slot));
        let up = views().filter(|view| view.is_admitted).count();
        let many = format!("{up} of {} backends are healthy and admitted", members.len());
        match (self.foreseen.load.active, self.asked.context_tokens) {
            (Some(active), _) if self.has_tiers() => {
                format!("{many}, {} of them in tier {active}, which takes requests now", self.foreseen.load.healthy)
            }
            (None, tokens) if tokens > 0 && up > 0 => {
                format!("{many}, and none of them is known to have a context window of {tokens} tokens")
            }
            _ => many,
        }
    }

    fn has_tiers(&self) -> bool {
        let mut tiers =
            self.foreseen.pool.members.iter().filter_map(|slot| self.state.views.get(*slot)).map(|view| view.priority);
        let first = tiers.next();
        tiers.any(|tier| Some(tier) != first)
    }

    /// What is in use, and of how much.
    pub(super) fn load(&self) -> String {
        use std::fmt::Write as _;

        let (load, pool) = (&self.foreseen.load, self.foreseen.pool);
        let tier = match load.active {
            Some(active) if self.has_tiers() && !self.state.options.cross_tier_fallback => format!(" of tier {active}"),
            _ => String::new(),
        };
        // Writing to a string can't fail.
        let mut text = format!("{} of {} slots{tier} are in use", load.in_flight, load.limit);
        if pool.options.active_adaptive().is_some() {
            let limit = pool.flow.limit(self.unix, &pool.options, load.limit, pool.static_max);
            let _ = write!(text, ", and the adaptive limit is {}", one_decimal(limit));
        }
        let factor = pool.options.rt_limit_factor;
        if (factor - 1.0).abs() > f64::EPSILON {
            let _ = write!(text, "; the limit counts {factor} times (rt_limit_factor)");
        }
        let share = pool.options.share(self.foreseen.bucket);
        if share < 1.0 {
            let turn = self.asked.turn.map(|turn| format!(" of turn {turn}")).unwrap_or_default();
            let _ = write!(text, "; a request{turn} may fill {} % of the limit", one_decimal(share * 100.0));
        }
        text
    }

    /// How the queue is.
    pub(super) fn queue(&self) -> String {
        let waiting = match &self.foreseen.pool.model {
            Some(model) => self.state.waiters.of_model(model),
            None => self.state.waiters.len(),
        };
        match self.state.options.max_waiting {
            0 => "there is no queue (max_waiting is 0)".to_owned(),
            places => format!("{waiting} of {places} places in the queue are taken"),
        }
    }

    /// Whether a gate that judges by speed would stop the request, and why or why not.
    fn speed(&self, gate: LatencyGate) -> (bool, String) {
        let (pool, options) = (self.foreseen.pool, &self.foreseen.pool.options);
        let verdict = &self.foreseen.speed;
        let (is_on, is_tripped, metrics, settings) = match gate {
            LatencyGate::Ttft => {
                (options.ttft_on, verdict.would_trip_ttft, pool.flow.ttft_metrics(self.unix, options), &options.ttft)
            }
            LatencyGate::Tps => {
                (options.tps_on, verdict.would_trip_tps, pool.flow.tps_metrics(self.unix, options), &options.tps)
            }
        };
        if !is_on {
            return (false, "switched off".to_owned());
        }
        let numbers = metrics.iter().map(|metric| metric_sentence(gate, metric)).collect::<Vec<_>>().join("; ");
        if let Some(why) = never_refuses(gate, options) {
            return (false, format!("{numbers}; {why}"));
        }
        let stops = verdict.refusal.as_ref().is_some_and(|refusal| refusal.gate == gate);
        match self.foreseen.decision {
            Decision::Refuse(_) if stops || is_tripped => return (false, format!("{numbers}; {NOT_REACHED}")),
            _ if stops => return (true, numbers),
            _ => {}
        }
        if gate == LatencyGate::Ttft && pool.flow.is_held(self.unix, options) {
            return (false, format!("{numbers}; new sessions are held back until it is well below the limit"));
        }
        if !is_tripped {
            return (false, numbers);
        }
        if !options.is_enforced {
            return (false, format!("{numbers}; refuses nobody, for load_rate_limit is off"));
        }
        if gate == LatencyGate::Tps && verdict.refusal.is_some() {
            return (false, format!("{numbers}; {NOT_REACHED}"));
        }
        let (used, _) = pool.flow.probes_used(self.unix, options, gate);
        let slots = settings.probes_per_window;
        let turn = if options.prio.is_some() { ", or for its turn" } else { "" };
        (false, format!("{numbers}; lets this request pass all the same: as a probe ({used} of {slots} taken){turn}"))
    }
}

fn never_refuses(gate: LatencyGate, options: &FlowOptions) -> Option<&'static str> {
    match gate {
        LatencyGate::Ttft if !options.ttft_429 => Some("refuses nobody (ttft_429 is off)"),
        LatencyGate::Tps if options.adaptive.is_some() => Some("steers the adaptive limit and refuses nobody"),
        _ => None,
    }
}

/// Why a gate that judges by speed refuses.
pub(super) fn speed_sentence(slow: &LatencyRefusal) -> String {
    sentence(slow.gate, &slow.metric, Some(slow.ewma), Some(slow.threshold))
}

fn metric_sentence(gate: LatencyGate, view: &MetricView<'_>) -> String {
    sentence(gate, &view.metric.name, view.ewma, view.metric.threshold)
}

/// `smoothed TTFT p80 is 31200 ms, the limit 30000 ms`.
fn sentence(gate: LatencyGate, metric: &str, ewma: Option<f64>, threshold: Option<f64>) -> String {
    let (name, unit) = match gate {
        LatencyGate::Ttft => ("TTFT", "ms"),
        LatencyGate::Tps => ("TPS", "tok/s"),
    };
    let is = match ewma {
        Some(ewma) => format!("is {} {unit}", one_decimal(ewma)),
        None => "is not known now".to_owned(),
    };
    let limit = match threshold {
        Some(threshold) => format!("the limit {threshold} {unit}"),
        None => "and there is no limit".to_owned(),
    };
    format!("smoothed {name} {metric} {is}, {limit}")
}
