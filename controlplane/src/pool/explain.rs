//! Why a request would go where it would go, in sentences with numbers. Session ids stay with the caller; what is told names
//! backends, keys by their label, and nothing of a client.

mod gate;

use router_policy::admit::{BackendView, Binding, Decision, Pick, Slot, has_window};
use router_policy::flow::UnixMs;
use router_policy::ids::Fingerprint;
use router_policy::option::Affinity;
use router_policy::refusal::Gate;
use router_policy::route::Priority;
use router_policy::tick::Tick;
use router_policy::toggle::Switch;
use router_proto::v1;

use super::backend::Backend;
use super::foresee::Foreseen;
use super::refuse::gate_of;
use super::state::State;
use super::{Asked, Pool};
use gate::{Sentences, speed_sentence};

/// How many models a sentence lists.
const MODELS_LISTED: usize = 5;

/// Which session an operator asks about.
#[derive(Debug, Clone)]
pub enum SessionAsked {
    /// None.
    Nobody,
    /// A session id's fingerprints, each with the label of the client key that it would come with; empty: without a key. Most
    /// usual first.
    Named(Vec<(Fingerprint, String)>),
    /// Every session whose fingerprint begins so.
    Prefix(String),
}

impl Pool {
    /// What would become of a request now. Of `asked`, the session is `session`'s.
    pub fn explain(&self, mut asked: Asked, session: &SessionAsked) -> v1::ExplainReply {
        let now = self.context.clock.now();
        let unix = self.context.unix(now);
        let mut state = self.state.lock();
        if state.refresh(now) {
            self.mark_dirty();
        }
        let (known, mut told) = find_session(&state, session);
        asked.fingerprint = known;
        let Some(foreseen) = state.foresee(&asked, now, unix) else {
            let reply = unknown_model(&state, &asked, told, now);
            return v1::ExplainReply { rules: rules_in_force(&state, unix), ..reply };
        };
        if !told.is_empty() && state.options.affinity != Affinity::Binding {
            told = match foreseen.belongs {
                Some(home) => format!("belongs to {}; sessions of this route are not bound", named(&state, home)),
                None => "sessions of this route are not bound".to_owned(),
            };
        }
        let sentences = Sentences { state: &state, foreseen: &foreseen, asked: &asked, unix };
        let active = foreseen.load.active;
        let candidate = |(slot, backend): (Slot, &Backend)| {
            let view = state.views.get(slot)?;
            let is_member = foreseen.pool.members.contains(&slot);
            let why_not = obstacle(backend, view, is_member, now)
                .or_else(|| misfit(&state, view, active, &asked))
                .or_else(|| full(view).filter(|_| foreseen.pool.options.is_enforced));
            Some(candidate_state(backend, view, why_not.unwrap_or_default()))
        };
        let in_route = state.backends.iter().enumerate().filter(|(_, backend)| !backend.is_removed);
        let mut reply = v1::ExplainReply {
            session: told,
            gates: sentences.gates(),
            candidates: in_route.filter_map(candidate).collect(),
            rules: rules_in_force(&state, unix),
            ..v1::ExplainReply::default()
        };
        outcome(&state, &foreseen, &sentences, &mut reply);
        reply
    }
}

/// How many reject rules a request meets before the gates.
fn rules_in_force(state: &State, now: UnixMs) -> u32 {
    let is_on = state.toggles.switch(Switch::RejectRules, now);
    let is_on = is_on.unwrap_or_else(|| Switch::RejectRules.by_default(&state.spec));
    let rules = if is_on { state.spec.rules().len() } else { 0 };
    u32::try_from(rules).unwrap_or(u32::MAX)
}

fn outcome(state: &State, foreseen: &Foreseen<'_>, sentences: &Sentences<'_>, reply: &mut v1::ExplainReply) {
    let refused =
        |gate: Gate, why: &str| (gate.code().to_owned(), format!("refused with {}: {why}", gate.http_status()));
    match (foreseen.decision, &foreseen.speed.refusal) {
        // Only a full pool is waited for: one that is slow as well refuses at once.
        (Decision::Grant(_) | Decision::Wait, Some(slow)) => {
            let gate = gate_of(slow);
            (reply.refused_by, reply.outcome) = refused(gate, &speed_sentence(slow));
        }
        (Decision::Grant(grant), None) => {
            v1::Mode::from(&grant).word().clone_into(&mut reply.mode);
            reply.backend = address(state, grant.slot);
            let why = match (grant.binding, grant.pick) {
                (Binding::Kept, _) => ", where its session is bound".to_owned(),
                (Binding::Made, _) => ", the least loaded; its session is bound there then".to_owned(),
                (Binding::Moved, _) => match foreseen.belongs {
                    Some(home) => format!("; its session moves there from {}", kept_out(state, home, reply)),
                    None => "; its session moves there, for its backend is not in the route any more".to_owned(),
                },
                (Binding::Absent, Pick::Hash) => ", which the hash of its session id names".to_owned(),
                (Binding::Absent, Pick::Rendezvous) => ", which weighs most for its session id".to_owned(),
                (Binding::Absent, Pick::Fallback) => match foreseen.belongs {
                    Some(home) => {
                        format!(", the least loaded; its session belongs to {}", kept_out(state, home, reply))
                    }
                    None => ", the least loaded".to_owned(),
                },
                (Binding::Absent, Pick::LeastLoaded) => ", the least loaded".to_owned(),
            };
            let over = if grant.is_over { "; over the limit, for load_rate_limit is off" } else { "" };
            reply.outcome = format!("goes to {}{why}{over}", named(state, grant.slot));
        }
        // Of requests that reserve a slot only, which nobody explains.
        (Decision::Reserve, _) => "takes a slot".clone_into(&mut reply.outcome),
        (Decision::Wait, None) => {
            reply.waits = true;
            reply.outcome = format!("waits: {}; {}", sentences.load(), sentences.queue());
        }
        (Decision::Refuse(refusal), _) => {
            let why = match refusal.gate {
                Gate::NoBackend | Gate::ContextWindow => sentences.backends(),
                Gate::SessionTableFull => sentences.sessions(),
                Gate::QueueFull => format!("{}; {}", sentences.load(), sentences.queue()),
                gate => gate.detail().to_owned(),
            };
            (reply.refused_by, reply.outcome) = refused(refusal.gate, &why);
        }
    }
}

fn unknown_model(state: &State, asked: &Asked, session: String, now: Tick) -> v1::ExplainReply {
    let models = state.pools.models();
    let wanted = if asked.model.is_empty() {
        "a request that names no model".to_owned()
    } else {
        format!("model '{}'", short(&asked.model))
    };
    let why = format!("no backend serves {wanted}; configured: {}", list(&models));
    let in_route = state.backends.iter().zip(&state.views).filter(|(backend, _)| !backend.is_removed);
    let candidate = |(backend, view): (&Backend, &BackendView)| {
        candidate_state(backend, view, obstacle(backend, view, false, now).unwrap_or_default())
    };
    v1::ExplainReply {
        outcome: format!("refused with {}: {why}", Gate::UnknownModel.http_status()),
        refused_by: Gate::UnknownModel.code().to_owned(),
        session,
        gates: gate::unknown_model(why),
        candidates: in_route.map(candidate).collect(),
        ..v1::ExplainReply::default()
    }
}

/// The session to decide for, and what is known of it.
fn find_session(state: &State, wanted: &SessionAsked) -> (Option<Fingerprint>, String) {
    let bound = |session: Fingerprint| {
        let binding = state.bindings.get(session)?;
        Some(match state.slots.get(&binding.backend) {
            Some(slot) => format!("bound to {}", named(state, *slot)),
            None => format!("bound to {}, which is not in the route any more", binding.backend),
        })
    };
    match wanted {
        SessionAsked::Nobody => (None, String::new()),
        SessionAsked::Named(fingerprints) => {
            let as_of = |key: &str| if key.is_empty() { "without a key".to_owned() } else { format!("of key {key}") };
            let found: Vec<(Fingerprint, String)> = fingerprints
                .iter()
                .filter_map(|(session, key)| {
                    Some((*session, format!("{} as a session {}", bound(*session)?, as_of(key))))
                })
                .collect();
            let told = found.iter().map(|(_, told)| told.as_str()).collect::<Vec<_>>().join("; ");
            match found.first() {
                Some((session, _)) => (Some(*session), told),
                None => (fingerprints.first().map(|(session, _)| *session), "not bound, under no key".to_owned()),
            }
        }
        SessionAsked::Prefix(prefix) => {
            // Requests wait for this lock: nothing is printed to compare it, and the second one ends the search.
            let mut found =
                state.bindings.iter().map(|(session, _)| session).filter(|session| session.starts_with_hex(prefix));
            match (found.next(), found.next()) {
                (Some(session), None) => (Some(session), bound(session).unwrap_or_default()),
                (Some(session), Some(_)) => {
                    (Some(session), "several sessions begin so; this is told of one of them".to_owned())
                }
                (None, _) => (None, "no session that begins so is bound; told of a request without one".to_owned()),
            }
        }
    }
}

/// What stands in the way of every request, or of every request for this model.
fn obstacle(backend: &Backend, view: &BackendView, is_member: bool, now: Tick) -> Option<String> {
    let because = |what: &str, reason: &str| {
        if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
    };
    if !is_member {
        let models: Vec<&str> = backend.spec.models.iter().map(String::as_str).collect();
        return Some(format!("serves other models: {}", list(&models)));
    }
    if view.is_admitted {
        return None;
    }
    if backend.is_draining {
        return Some(because("draining", &backend.drain_reason));
    }
    if let Some(ban) = backend.ban.as_ref().filter(|_| backend.is_banned(now)) {
        let left = ban.until.map(|until| until.since(now)).unwrap_or_default();
        let left = if left.is_zero() { String::new() } else { format!(", {} s more", left.as_secs_f64().ceil()) };
        return Some(format!("{}{left}", because("banned", &ban.reason)));
    }
    Some(because("unhealthy", &backend.health_reason))
}

/// What stands in the way of this request, room left aside.
fn misfit(state: &State, view: &BackendView, active: Option<Priority>, asked: &Asked) -> Option<String> {
    if !has_window(view.context_limit, asked.context_tokens) {
        let needed = asked.context_tokens;
        return Some(match view.context_limit {
            Some(window) => format!("its context window of {window} tokens is too small for {needed}"),
            None => format!("its context window is not stated, and {needed} tokens must fit"),
        });
    }
    let active = active.filter(|active| view.priority < *active && !state.options.cross_tier_fallback)?;
    Some(format!("of tier {}, which is asked only while no backend of tier {active} is up", view.priority))
}

fn full(view: &BackendView) -> Option<String> {
    (!view.has_room()).then(|| format!("full: {} of {} slots are in use", view.in_flight, view.limit))
}

fn candidate_state(backend: &Backend, view: &BackendView, why_not: String) -> v1::CandidateState {
    v1::CandidateState {
        address: backend.spec.id.to_string(),
        name: backend.spec.name.clone().unwrap_or_default(),
        priority: view.priority.to_string(),
        in_flight: view.in_flight,
        limit: view.limit,
        is_candidate: why_not.is_empty(),
        why_not,
    }
}

fn address(state: &State, slot: Slot) -> String {
    state.backends.get(slot).map(|backend| backend.spec.id.to_string()).unwrap_or_default()
}

/// `gpu-1 (10.0.0.1:8000)`.
fn named(state: &State, slot: Slot) -> String {
    let Some(backend) = state.backends.get(slot) else { return "a backend that has left the route".to_owned() };
    match &backend.spec.name {
        Some(name) => format!("{name} ({})", backend.spec.id),
        None => backend.spec.id.to_string(),
    }
}

/// A backend, and why it can't be chosen.
fn kept_out(state: &State, slot: Slot, reply: &v1::ExplainReply) -> String {
    let home = address(state, slot);
    let why = reply.candidates.iter().find(|one| one.address == home).map_or("", |one| &one.why_not);
    if why.is_empty() { named(state, slot) } else { format!("{}, which is out of question: {why}", named(state, slot)) }
}

fn list(names: &[&str]) -> String {
    let shown = names.iter().take(MODELS_LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MODELS_LISTED) {
        0 if names.is_empty() => "none".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}
