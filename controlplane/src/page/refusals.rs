//! Who was refused for load, and by rules: `_429_status` and `_rate_limit_status` (limits.md §10, §12.2, §12.6; payloads.md
//! §4.5).

use router_policy::payload_count::PayloadCount;
use router_policy::toggle::{Switch, ToggleKey, ToggleValue};
use serde_json::{Map, Value as Json, json};

use super::Asked;
use super::answer::{Answer, object};
use crate::pool::{LoadRefusals, RouteSeen};

const NOTE: &str = "429s for load since the control plane started or since the last reset, over all replicas; what load \
     would have been refused while load_rate_limit was off is counted in rate_limit; rule: refusals by rules, whatever their \
     status, since the last reset, restarts included";

/// What was refused.
#[derive(Debug, Clone, Copy, Default)]
struct Refused {
    load: LoadRefusals,
    /// By rules.
    rule: u64,
}

/// This route, or with `all=1` every route.
pub(super) async fn status(asked: &Asked<'_>) -> Answer {
    let pools = asked.fleet.pools();
    let is_all = asked.is_set("all");
    let wanted = || pools.values().filter(|pool| is_all || pool.name() == asked.pool.name());
    let scope = if is_all { "all" } else { asked.route() };
    if asked.is_set("reset") {
        if !asked.request.is_loopback {
            return Answer::error(403, super::CHANGES_ONLY_FROM).with_scope(scope);
        }
        wanted().for_each(|pool| pool.reset_refusals());
        asked.fleet.store_flows().await;
        return Answer::ok().with("reset", true).with_scope(scope);
    }
    let mut sum = Refused::default();
    let (mut by_route, mut rate_limit) = (Map::new(), Map::new());
    for pool in wanted() {
        let seen = pool.inspect();
        let load = seen.pools.iter().fold(LoadRefusals::default(), |sum, pool| add(sum, pool.refusals));
        let of_route = Refused { load, rule: seen.payload.get(PayloadCount::RuleRejected) };
        sum = Refused { load: add(sum.load, load), rule: sum.rule.saturating_add(of_route.rule) };
        by_route.insert(pool.name().to_string(), reasons(of_route));
        rate_limit.insert(pool.name().to_string(), rate_limit_of(&seen));
    }
    let rate_limit = if is_all { Some(Json::Object(rate_limit)) } else { rate_limit.remove(asked.route()) };
    Answer::ok()
        .with_scope(scope)
        .with("total", total(sum))
        .with("by_reason", reasons(sum))
        .with("by_route", by_route)
        .with("note", NOTE)
        .with_some("rate_limit", rate_limit)
}

pub(super) fn rate_limit(asked: &Asked<'_>) -> Answer {
    let state = rate_limit_of(&asked.pool.inspect());
    let fields = state.as_object().cloned().unwrap_or_default();
    fields.into_iter().fold(Answer::of(asked.route()), |answer, (key, value)| answer.with(&key, value))
}

/// Whether load is limited, by whose word and until when, and what would have been refused while it was not.
pub(super) fn rate_limit_of(seen: &RouteSeen) -> Json {
    let held = effective(seen, Switch::LoadRateLimit);
    let trips = seen.pools.iter().map(|pool| pool.trips);
    let sum = trips.fold((0_u64, 0_u64, 0_u64), |sum, one| {
        (sum.0.saturating_add(one.concurrency), sum.1.saturating_add(one.ttft), sum.2.saturating_add(one.tps))
    });
    object([
        ("enabled", Some(json!(held.is_on))),
        ("source", Some(json!(held.source))),
        ("until_ms", held.until.map(Json::from)),
        ("then", held.then.map(Json::from)),
        ("trips", Some(json!({"concurrency": sum.0, "ttft": sum.1, "tps": sum.2}))),
    ])
}

/// How a switch stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub is_on: bool,
    /// By whose word: `runtime`, `route`, `default`.
    pub source: &'static str,
    /// Unix time in milliseconds when it undoes itself.
    pub until: Option<u64>,
    /// What holds after that.
    pub then: Option<bool>,
}

impl Held {
    /// Tells it in a page.
    pub(super) fn tell(self, answer: Answer) -> Answer {
        let answer = answer.with("enabled", self.is_on).with("source", self.source);
        answer.with_some("until_ms", self.until).with_some("then", self.then)
    }
}

/// A switch that is an option too.
pub(super) fn effective(seen: &RouteSeen, switch: Switch) -> Held {
    let key = ToggleKey::Switch(switch);
    let by_option = switch.by_default(&seen.spec);
    let set = seen.toggles.iter(seen.unix).find(|toggle| toggle.key == key);
    if let Some(toggle) = set
        && let ToggleValue::On(is_on) = toggle.value
    {
        let then = match seen.toggles.standing(&key) {
            Some(ToggleValue::On(is_on)) => is_on,
            _ => by_option,
        };
        let until = toggle.until.map(|until| until.0);
        return Held { is_on, source: "runtime", until, then: until.map(|_| then) };
    }
    if switch == Switch::IncludeUsage && seen.toggles.asks_for_usage(&seen.spec, seen.unix) != by_option {
        // It follows from what else is set.
        return Held { is_on: !by_option, source: "runtime", until: None, then: None };
    }
    let is_set = switch.option().is_some_and(|option| seen.spec.set.contains_key(option));
    Held { is_on: by_option, source: if is_set { "route" } else { "default" }, until: None, then: None }
}

fn add(sum: LoadRefusals, one: LoadRefusals) -> LoadRefusals {
    LoadRefusals {
        concurrency: sum.concurrency.saturating_add(one.concurrency),
        ttft: sum.ttft.saturating_add(one.ttft),
        tps: sum.tps.saturating_add(one.tps),
    }
}

fn total(refused: Refused) -> u64 {
    let LoadRefusals { concurrency, ttft, tps } = refused.load;
    [concurrency, ttft, tps, refused.rule].into_iter().fold(0, u64::saturating_add)
}

/// `rule` once there is one.
fn reasons(refused: Refused) -> Json {
    let LoadRefusals { concurrency, ttft, tps } = refused.load;
    object([
        ("concurrency", Some(json!(concurrency))),
        ("ttft", Some(json!(ttft))),
        ("tps", Some(json!(tps))),
        ("rule", (refused.rule > 0).then(|| json!(refused.rule))),
    ])
}
