//! What is done to payloads: the switches of transforms, reject rules and the body log, and what they have counted
//! (payloads.md §9). Told to this machine only: whoever knows the thresholds of rules can keep below them. Counts are of all
//! replicas and outlive restarts; `reset=1` clears those of one feature.
//!
//! `default` is what holds while the switch is not set. What a query asks for is read by [`PageChange`], on the replica as
//! well.

use std::time::Duration;

use router_policy::flow::UnixMs;
use router_policy::payload_count::PayloadCount;
use router_policy::reject::Rule;
use router_policy::toggle::page::{PageChange, switch_of_page};
use router_policy::toggle::{Limit, Switch};
use serde_json::{Map, Value as Json, json};

use super::answer::{Answer, object};
use super::control::{seconds, set};
use super::refusals::effective;
use super::{Asked, CHANGES_ONLY_FROM};
use crate::error::AdminError;
use crate::fleet::{BODY_LOG_BY, ToggleChange};
use crate::pool::RouteSeen;

/// Why a look is refused with 403.
const TOLD_ONLY_TO: &str = "told to this machine only: on the admin port of a replica, or on its traffic port where that has \
                            status pages, and through no proxy";
const INCLUDE_USAGE: &str = "of streams of /v1/chat/completions and /v1/completions; on a request whose client did not ask for \
                             them, the counts are taken out of the answer again where include_usage_hide is on";
const FOLLOWS_TPS: &str = "not as the document alone would have it: it goes with what is set at run time, the switch tps and \
                           the limits tps_limit_tps";
const FLEET: &str = "counted over all replicas and restarts, since the last reset";

/// Whether a page is one of these.
pub(super) fn has(page: &str) -> bool {
    matches!(page, "_bodylog_status" | "_cch_strip_status" | "_reject_rules_status") || switch_of_page(page).is_some()
}

pub(super) async fn answer(asked: &Asked<'_>) -> Answer {
    let page = asked.request.page.as_str();
    let switch = switch_of_page(page);
    let change = switch.map(|switch| PageChange::of(switch, |name| asked.param(name))).unwrap_or_default();
    if !asked.request.is_loopback {
        let why = if change.is_change() { CHANGES_ONLY_FROM } else { TOLD_ONLY_TO };
        return Answer::error(403, why).with("route", asked.route());
    }
    match (switch, page) {
        (Some(switch), _) => toggle(asked, switch, change).await,
        (None, "_bodylog_status") => bodylog(&asked.pool.inspect()),
        (None, "_cch_strip_status") => cch_strip(&asked.pool.inspect()),
        (None, _) => reject_rules(&asked.pool.inspect()),
    }
}

/// A switch is durable when it is told; cleared counters are within a second.
async fn toggle(asked: &Asked<'_>, switch: Switch, change: PageChange) -> Answer {
    let (mut changes, mut notes) = (Map::new(), Vec::new());
    if let Err(error) = make(asked, switch, change, &mut changes, &mut notes).await {
        return Answer::turned_down(asked.route(), &error).with("changes", changes);
    }
    let seen = asked.pool.inspect();
    let count = |count| seen.payload.get(count);
    let answer = Answer::of(asked.route()).with("ok", true).with("changes", changes);
    let answer = with_switch(answer, &seen, switch);
    let (answer, note) = match switch {
        Switch::BodyLog => (answer.with("sample_pct", sample_pct(&seen)), Some(BODY_LOG_BY)),
        Switch::KimiNormalize => {
            let answer = answer.with("changes_total", count(PayloadCount::KimiChanges));
            (answer.with("req_count", count(PayloadCount::KimiRequests)), None)
        }
        Switch::IncludeUsage => {
            let by_switch = seen.toggles.switch(switch, seen.unix).is_some();
            let follows =
                !by_switch && seen.toggles.asks_for_usage(&seen.spec, seen.unix) != switch.by_default(&seen.spec);
            notes.extend(follows.then(|| FOLLOWS_TPS.to_owned()));
            (answer.with("injected_total", count(PayloadCount::UsageInjected)), Some(INCLUDE_USAGE))
        }
        Switch::SystemHoist => (answer.with("hoisted_total", count(PayloadCount::SystemHoisted)), None),
        _ => (answer, None),
    };
    // Setting it may have said so already.
    let is_new = |note: &&str| !notes.iter().any(|told| told.contains(*note));
    let note = note.filter(is_new).map(str::to_owned);
    notes.extend(note);
    answer.with_some("note", Some(notes.join("; ")).filter(|note| !note.is_empty()))
}

async fn make(
    asked: &Asked<'_>,
    switch: Switch,
    change: PageChange,
    changes: &mut Map<String, Json>,
    notes: &mut Vec<String>,
) -> Result<(), AdminError> {
    let sets = change.on.is_some() || change.pct.is_some();
    // Read first: of a request with a time that is none, nothing is done.
    let ttl = if sets { seconds(asked.param("ttl"), Duration::ZERO)? } else { Duration::ZERO };
    if let Some(pct) = change.pct {
        let name = Limit::BodyLogPct.name();
        let value = &pct.to_string();
        let limit = ToggleChange { route: asked.route(), name, value, ttl, ..ToggleChange::default() };
        let note = asked.fleet.set_toggle(limit).await?.1;
        // What the switch has to say of the sample, it says with the new one.
        notes.extend(change.on.is_none().then_some(note));
        changes.insert("sample_pct".to_owned(), number(pct));
    }
    if let Some(is_on) = change.on {
        notes.push(set(asked, switch, is_on).await?);
        changes.insert("enabled".to_owned(), json!(is_on));
    }
    if change.resets {
        asked.pool.reset_payload(switch);
        asked.fleet.store_flows().await;
        changes.insert("counters_reset".to_owned(), json!(true));
    }
    notes.retain(|note| !note.is_empty());
    Ok(())
}

fn with_switch(answer: Answer, seen: &RouteSeen, switch: Switch) -> Answer {
    effective(seen, switch).tell(answer)
}

/// Of a route: what its name is for.
fn of(seen: &RouteSeen) -> Answer {
    Answer::of(seen.spec.name.as_str())
}

/// `logger_initted`: some replica's sender has taken a frame. Times are Unix seconds.
fn bodylog(seen: &RouteSeen) -> Answer {
    let count = |count| seen.payload.get(count);
    let last = seen.payload.body_log_last_unix_ms();
    with_switch(of(seen), seen, Switch::BodyLog)
        .with("sample_pct", sample_pct(seen))
        .with("logger_initted", last.is_some())
        .with("write_count", count(PayloadCount::BodyLogWritten))
        .with("drop_count", count(PayloadCount::BodyLogDropped))
        .with("encode_errs", count(PayloadCount::BodyLogErrors))
        .with_some("last_log_ts", last.map(|ms| unix_seconds(UnixMs(ms))))
        .with("now", unix_seconds(seen.unix))
        .with("note", format!("{BODY_LOG_BY}; {FLEET}"))
}

fn cch_strip(seen: &RouteSeen) -> Answer {
    let (parsed, stripped) = (seen.payload.get(PayloadCount::Parsed), seen.payload.get(PayloadCount::CchStripped));
    with_switch(of(seen), seen, Switch::CchStrip)
        .with("default", Switch::CchStrip.by_default(&seen.spec))
        .with("parsed_total", parsed)
        .with("stripped_total", stripped)
        .with("strip_ratio", ratio(stripped, parsed))
        .with("note", FLEET)
}

fn reject_rules(seen: &RouteSeen) -> Answer {
    let rules = seen.spec.rules();
    let rule = |rule: &Rule| {
        object([
            ("name", Some(json!(rule.name()))),
            ("status", rule.status().map(Json::from)),
            ("cond", Some(json!(rule.condition()))),
            ("hits", Some(json!(seen.payload.rule_hits(rule.name()).unwrap_or(0)))),
        ])
    };
    with_switch(of(seen).with("ok", true), seen, Switch::RejectRules)
        .with("default_status", seen.spec.options().payload.reject_rules_status)
        .with("rule_count", rules.len())
        .with("rules", rules.iter().map(rule).collect::<Vec<_>>())
        .with("note", FLEET)
}

fn sample_pct(seen: &RouteSeen) -> Json {
    let set = seen.toggles.limit(Limit::BodyLogPct, None, seen.unix);
    number(set.unwrap_or_else(|| seen.spec.options().payload.bodylog_pct))
}

/// A percentage as people write it: without `.0`.
fn number(pct: f64) -> Json {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and 0 to 100")]
    if pct.fract() == 0.0 && (0.0..=100.0).contains(&pct) { json!(pct as u8) } else { json!(pct) }
}

#[expect(clippy::cast_precision_loss, reason = "a time; exact to the millisecond for the next centuries")]
fn unix_seconds(at: UnixMs) -> f64 {
    at.0 as f64 / 1000.0
}

/// 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
