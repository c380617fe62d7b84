//! Who is up, and how many requests run: `_health_status`, `_active_conns`, `_active_conns_set`, `_cluster_avg`, `_route_state`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use router_policy::option::AuthMode;
use router_policy::route::Priority;
use serde_json::{Map, Value as Json, json};

use super::Asked;
use super::answer::{Answer, object};
use crate::pool::BackendSeen;

/// `banned` is each backend that takes no requests, for whatever reason.
pub(super) fn health(asked: &Asked<'_>) -> Answer {
    let seen = asked.pool.inspect();
    let has_keys = !asked.fleet.keys().is_empty();
    let has_auth = match seen.spec.options().auth {
        AuthMode::Off => false,
        AuthMode::Required => true,
        AuthMode::Auto | AuthMode::OpenIfUnconfigured => has_keys,
    };
    let meta = json!({
        "api_keys_configured": has_keys,
        "route_auth_enabled": has_auth,
        "key_file_status": key_file_status(asked, has_keys),
    });
    if seen.backends.is_empty() {
        return Answer::no_peers(asked.route()).with("_meta", meta);
    }
    let backends = seen.backends.iter();
    let answer = backends.fold(Answer::ok(), |answer, backend| {
        answer.with(backend.id.as_str(), json!({"active": backend.in_flight, "banned": backend.is_out}))
    });
    answer.with("_meta", meta)
}

/// Without a key store file, keys are the database's: they count as a file that holds them.
fn key_file_status(asked: &Asked<'_>, has_keys: bool) -> &'static str {
    let file = asked.fleet.files().into_iter().find(|file| file.flag == "key-store");
    match file {
        Some(file) if !file.problem.is_empty() => "unreadable",
        _ if has_keys => "ok",
        Some(_) => "empty",
        None => "missing",
    }
}

pub(super) fn active(asked: &Asked<'_>) -> Answer {
    let seen = asked.pool.inspect();
    if seen.backends.is_empty() {
        return Answer::no_peers(asked.route());
    }
    let backends = seen.backends.iter();
    backends.fold(Answer::ok(), |answer, backend| answer.with(backend.id.as_str(), backend.in_flight))
}

/// There is nothing to repair by hand.
pub(super) fn set_active(asked: &Asked<'_>) -> Answer {
    let error = "slots are leases here: each ends with its request, or with its replica, by itself";
    Answer::error(410, error).with("ok", false).with("route", asked.route())
}

/// Over all pools: a backend of several models counts for each of them in the average, and once in `realtime_sum`.
pub(super) fn cluster_avg(asked: &Asked<'_>) -> Answer {
    let seen = asked.pool.inspect();
    if seen.backends.is_empty() {
        return Answer::no_peers(asked.route());
    }
    let sum: u64 = seen.backends.iter().map(|backend| u64::from(backend.in_flight)).sum();
    let mut buckets: BTreeMap<usize, u64> = BTreeMap::new();
    let mut current = 0;
    for pool in asked.pool.inspect_flows() {
        let view = pool.flow.cluster_avg(seen.unix, &pool.options);
        current = view.cur_index;
        for (at, count) in view.buckets.iter().enumerate().filter_map(|(at, count)| Some((at, (*count)?))) {
            *buckets.entry(at).or_default() += u64::from(count);
        }
    }
    let samples = buckets.len();
    let total: u64 = buckets.values().sum();
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let avg = if samples == 0 { 0.0 } else { total as f64 / samples as f64 };
    let buckets: Map<String, Json> = buckets.into_iter().map(|(at, count)| (at.to_string(), json!(count))).collect();
    Answer::of(asked.route())
        .with("realtime_sum", sum)
        .with("buckets", buckets)
        .with("samples", samples)
        .with("avg_5min", avg)
        .with("cur_bucket_idx", current)
}

/// `limit` is of the tier that takes requests.
pub(super) fn route_state(asked: &Asked<'_>) -> Answer {
    let seen = asked.pool.inspect();
    if seen.backends.is_empty() {
        return Answer::no_peers(asked.route());
    }
    let mut tiers: BTreeMap<Reverse<Priority>, Vec<&BackendSeen>> = BTreeMap::new();
    for backend in &seen.backends {
        tiers.entry(Reverse(backend.priority)).or_default().push(backend);
    }
    let up = |backends: &[&BackendSeen]| backends.iter().filter(|backend| !backend.is_out).count();
    let active = tiers.iter().find(|(_, backends)| up(backends) > 0);
    let tier = |(Reverse(priority), backends): (&Reverse<Priority>, &Vec<&BackendSeen>)| {
        let healthy = up(backends);
        let state = json!({
            "priority": priority.json(),
            "healthy": healthy,
            "banned": backends.len() - healthy,
            "active": sum(backends, |backend| backend.in_flight),
            "max": sum(backends, |backend| backend.limit),
            "peers": backends.iter().map(|backend| peer(backend)).collect::<Vec<_>>(),
        });
        (priority.to_string(), state)
    };
    let by_priority: Map<String, Json> = tiers.iter().map(tier).collect();
    Answer::of(asked.route())
        .with_active(active.map(|(Reverse(priority), _)| *priority))
        .with("limit", active.map_or(0, |(_, backends)| sum(backends, |backend| backend.limit)))
        .with("healthy_peers_in_level", active.map_or(0, |(_, backends)| up(backends)))
        .with("by_priority", by_priority)
}

/// Over those that are up.
fn sum(backends: &[&BackendSeen], count: impl Fn(&BackendSeen) -> u32) -> u64 {
    backends.iter().filter(|backend| !backend.is_out).map(|backend| u64::from(count(backend))).sum()
}

fn peer(backend: &BackendSeen) -> Json {
    object([
        ("name", backend.name.as_deref().map(Json::from)),
        ("peer", Some(json!(backend.id.as_str()))),
        ("banned", Some(json!(backend.is_out))),
        ("active", Some(json!(backend.in_flight))),
        ("max", Some(json!(backend.limit))),
    ])
}
