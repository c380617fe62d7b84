//! What somebody who has just set a toggle should know: what makes it idle, and what it does besides.

use router_policy::flow::UnixMs;
use router_policy::route::RouteSpec;
use router_policy::toggle::{Limit, Switch, Toggle, ToggleKey, ToggleValue, Toggles};

/// Who captures bodies. Replicas do not tell whether they can.
pub(crate) const BODY_LOG_BY: &str = "bodies are captured by replicas that were started with a collector (--bodylog-host); the control \
                               plane does not know whether one was";

/// What was set and is set on a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) spec: &'a RouteSpec,
    pub(super) before: &'a Toggles,
    pub(super) after: &'a Toggles,
    pub(super) now: UnixMs,
}

/// What is to be known of a toggle that was just set; empty for nothing.
pub(super) fn note(change: &Change<'_>, toggle: &Toggle) -> String {
    let mut notes = Vec::new();
    match (&toggle.key, toggle.value) {
        (ToggleKey::Switch(switch), ToggleValue::On(is_on)) => {
            let word = if is_on { "on" } else { "off" };
            let by_option = switch.by_default(change.spec);
            let was_on = change.before.switch(*switch, change.now).unwrap_or(by_option);
            if switch.option().is_some() && by_option == is_on && was_on == is_on {
                notes.push(format!("{} is already {word} by the route's option", switch.name()));
            }
            notes.extend(of_switch(change, *switch, is_on));
        }
        (ToggleKey::Limit(Limit::BodyLogPct, _), _) => notes.extend(of_sample(change)),
        (ToggleKey::Limit(limit, model), _) => notes = of_limit(change, *limit, model.as_deref()),
        (ToggleKey::Switch(_), ToggleValue::Number(_)) => {}
    }
    notes.join("; ")
}

/// Of 100 requests, how many are captured.
fn captured(change: &Change<'_>) -> f64 {
    let set = change.after.limit(Limit::BodyLogPct, None, change.now);
    set.unwrap_or(change.spec.options().payload.bodylog_pct)
}

fn of_sample(change: &Change<'_>) -> Option<String> {
    let is_on = change.after.switch(Switch::BodyLog, change.now);
    if !is_on.unwrap_or(Switch::BodyLog.by_default(change.spec)) {
        return Some("bodylog is off: nothing is captured".to_owned());
    }
    (captured(change) <= 0.0).then(|| "of 100 requests 0 are captured".to_owned())
}

/// What a switch does not do by itself, or does besides.
fn of_switch(change: &Change<'_>, switch: Switch, is_on: bool) -> Option<String> {
    let options = change.spec.options();
    let measures_tps = change.after.measures_tps(&options.flow, change.now);
    let note = match (switch, is_on) {
        (Switch::Tps, false) if options.flow.adaptive_cc => "without tps the adaptive limit is not in force",
        (Switch::IncludeUsage, false) if measures_tps => {
            "streams whose clients do not ask for token counts tell none: they are no samples of tps"
        }
        (Switch::RejectRules, true) if change.spec.rules().is_empty() => {
            "the route has no rules (option reject_rules): nobody is refused"
        }
        (Switch::BodyLog, true) => {
            let none = captured(change) <= 0.0;
            let none = none.then_some("; of 100 requests 0 are: bodylog_pct or bodylog_default_pct says so");
            return Some(format!("{BODY_LOG_BY}{}", none.unwrap_or_default()));
        }
        _ => return None,
    };
    Some(note.to_owned())
}

fn of_limit(change: &Change<'_>, limit: Limit, model: Option<&str>) -> Vec<String> {
    let Change { after, now, .. } = *change;
    let flow = change.spec.options().flow;
    let (settings, list, switch) = match limit {
        Limit::TtftMs => (&flow.ttft, "ttft_metrics", Switch::Ttft),
        Limit::Tps => (&flow.tps, "tps_metrics", Switch::Tps),
        Limit::BodyLogPct => return Vec::new(),
    };
    let mut notes = Vec::new();
    if !settings.metrics.is_empty() {
        notes.push(format!("a declared list {list} comes before this limit: stored, without effect"));
    }
    if after.switch(switch, now) == Some(false) {
        notes.push(format!("{} is switched off: the limit has no effect while it is", switch.name()));
    }
    if !after.switch(Switch::LoadRateLimit, now).unwrap_or(flow.load_rate_limit) {
        notes.push("load_rate_limit is off: nobody is refused for load".to_owned());
    }
    if limit == Limit::Tps && flow.adaptive_cc {
        notes.push("the route's concurrency limit is adaptive: the limit steers it and refuses nobody".to_owned());
    }
    let is_own = |key: &ToggleKey| matches!(key, ToggleKey::Limit(of, Some(_)) if *of == limit);
    let own = after.iter(now).filter(|toggle| is_own(&toggle.key)).count();
    if model.is_none() && own > 0 {
        notes.push(format!("{own} models have a limit of their own and keep it"));
    }
    notes
}
