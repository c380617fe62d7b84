//! Where a request would go now: `_route_debug` and `_route_inspect`. The replica has read the request; it adds what only it
//! knows, such as the session's id and the weights of the backends.

use std::collections::HashSet;

use router_policy::ids::BackendId;
use router_policy::option::Affinity;
use router_policy::refusal::Gate;
use serde_json::{Value as Json, json};

use super::Asked;
use super::answer::Answer;
use crate::grpc::coordinator::asked as read;
use crate::pool::{BackendSeen, RouteSeen};

/// `actual_pick` is missing while nobody would be picked; `actual_mode` says why: `waits` or `refused`.
pub(super) fn debug(asked: &Asked<'_>) -> Answer {
    let request = asked.request.request.clone().unwrap_or_default();
    let seen = asked.pool.inspect();
    let affinity = seen.spec.options().affinity;
    let Some(routing) = asked.pool.inspect_routing(&read(request.clone())) else {
        return Answer::of(asked.route())
            .with("error", Gate::UnknownModel.code())
            .with("hint", "this route has a pool for each model; give ?model=")
            .with("model", cut(&request.model))
            .with("supported_models", models(&seen));
    };
    let algorithm = match affinity {
        Affinity::Binding => "binding",
        Affinity::Hash => "crc32",
        Affinity::Rendezvous => "rendezvous",
        Affinity::Off => "off",
    };
    let natural = routing.natural.as_ref();
    Answer::of(asked.route())
        .with("algorithm", algorithm)
        .with_some("natural_target", natural.map(|(backend, _)| text(backend)))
        .with_some("natural_hash", request.crc32.filter(|_| affinity == Affinity::Hash))
        .with_some("natural_banned", natural.map(|(_, is_out)| *is_out))
        .with_some("actual_pick", routing.pick.as_ref().map(text))
        .with("actual_mode", routing.mode)
        .with_some("refused_by", routing.refused_by.map(Gate::code))
        .with("session_affinity_enabled", affinity != Affinity::Off)
        .with_active(routing.active)
        .with("scores", scores(&seen, &request.model))
}

/// 503 when nobody takes requests.
pub(super) fn inspect(asked: &Asked<'_>) -> Answer {
    let request = asked.request.request.clone().unwrap_or_default();
    let Some(routing) = asked.pool.inspect_routing(&read(request.clone())) else {
        return Answer::error(400, Gate::UnknownModel.code())
            .with("route", asked.route())
            .with("model", cut(&request.model))
            .with("supported_models", models(&asked.pool.inspect()));
    };
    if matches!(routing.refused_by, Some(Gate::NoBackend | Gate::ContextWindow)) {
        return Answer::error(503, "all peers banned, no healthy upstream").with("route", asked.route());
    }
    let source = &asked.request.session_source;
    Answer::of(asked.route())
        .with_some("source", Some(source.as_str()).filter(|source| !source.is_empty()))
        .with("mode", routing.mode)
        .with_some("hash", request.crc32)
        .with_some("pick", routing.pick.as_ref().map(text))
        .with_some("refused_by", routing.refused_by.map(Gate::code))
        .with_active(routing.active)
}

fn text(backend: &BackendId) -> &str {
    backend.as_str()
}

fn models(seen: &RouteSeen) -> Vec<String> {
    seen.pools.iter().filter_map(|pool| pool.model.clone()).collect()
}

/// The pool's backends in the order of the document, without the weights, which only the replica can know.
fn scores(seen: &RouteSeen, model: &str) -> Vec<Json> {
    let members: HashSet<&BackendId> =
        seen.spec.backends.iter().filter(|one| one.serves(model)).map(|one| &one.id).collect();
    let of_pool = seen.backends.iter().filter(|backend| members.contains(&backend.id));
    let score = |(at, backend): (usize, &BackendSeen)| json!({"idx": at + 1, "name": backend.id.as_str(), "banned": backend.is_out});
    of_pool.enumerate().map(score).collect()
}

fn cut(model: &str) -> String {
    model.chars().take(256).collect()
}
