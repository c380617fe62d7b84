//! How fast a route answers: `_ttft_status` and `_tps_status` (limits.md §12.3, §12.4).

use std::time::Duration;

use router_policy::flow::{ControllerView, LatencyGate, TpsBasis};
use router_policy::option::resolved::FlowSettings;
use router_policy::toggle::Switch;
use serde_json::{Map, Value as Json, json};

use super::Asked;
use super::answer::Answer;
use super::metrics::SignalPage;
use crate::pool::{FlowSeen, RouteSeen};

/// `queue_wait_ms` is no part of the TTFT, and steers nothing: the mean time from a request to its slot, over the requests of
/// the whole route that got one within the last five to ten minutes. Left out while there is none.
pub(super) fn ttft(asked: &Asked<'_>) -> Answer {
    let (seen, flows) = (asked.pool.inspect(), asked.pool.inspect_flows());
    let settings = seen.spec.options().flow;
    let page = SignalPage::new(LatencyGate::Ttft, &seen, &settings.ttft);
    let is_off = seen.toggles.switch(Switch::Ttft, seen.unix) == Some(false);
    let refuses = seen.toggles.switch(Switch::Ttft429, seen.unix).unwrap_or(settings.ttft_429_default_enabled);
    let answer = Answer::of(asked.route())
        .with("global_enabled", true)
        .with("dict_declared", true)
        .with("runtime_off", is_off)
        .with("active", !is_off)
        .with("enforcing", !is_off && page.has_threshold(&flows))
        .with("ttft_429_enabled", refuses)
        .with_some("ttft_limit_ms", settings.ttft.limit)
        .with_some("ttft_limit_by_model", page.by_model())
        .with("ewma_ms", page.ewmas(&flows))
        .with_some("queue_wait_ms", seen.queue_wait.map(|wait| wait.as_secs_f64() * 1000.0));
    measuring(answer, &page, &flows).with("metrics", page.list(&flows))
}

pub(super) fn tps(asked: &Asked<'_>) -> Answer {
    let (seen, flows) = (asked.pool.inspect(), asked.pool.inspect_flows());
    let settings = seen.spec.options().flow;
    let page = SignalPage::new(LatencyGate::Tps, &seen, &settings.tps);
    let is_off = seen.toggles.switch(Switch::Tps, seen.unix) == Some(false);
    let no_usage = |pool: &FlowSeen| (pool.key().to_owned(), json!(pool.flow.no_usage(seen.unix, &pool.options)));
    let other = |pool: &FlowSeen| Some((pool.key().to_owned(), json!(pool.flow.other_tps(seen.unix, &pool.options)?)));
    let answer = Answer::of(asked.route())
        .with("global_enabled", true)
        .with("dict_declared", true)
        .with("runtime_off", is_off)
        .with("active", !is_off)
        .with("opt_in", settings.tps.limit.is_some() || !settings.tps.limit_by_model.is_empty())
        .with("tps_limit_source", limit_source(&page))
        .with_some("tps_limit_tps", settings.tps.limit)
        .with_some("tps_limit_by_model", page.by_model())
        .with("ewma_tps", page.ewmas(&flows))
        .with(other_basis(settings.tps_basis), flows.iter().filter_map(other).collect::<Map<_, _>>())
        .with("nousage_samples", flows.iter().map(no_usage).collect::<Map<_, _>>())
        .with("min_tokens", settings.tps_min_tokens);
    let answer = measuring(answer, &page, &flows).with("metrics", page.list(&flows));
    adaptive(answer, &seen, &flows, &settings)
}

/// What the number is called that is shown beside the one that steers, `ewma_tps`: the smoothed slowest fifth by the other
/// basis (rulings §3).
fn other_basis(steering: TpsBasis) -> &'static str {
    match steering {
        TpsBasis::Total => "decode_tps",
        TpsBasis::Decode => "total_tps",
    }
}

/// Where the route's limit comes from; a model's own is in `metrics`.
fn limit_source(page: &SignalPage<'_>) -> &'static str {
    let settings = page.settings;
    match (settings.metrics.is_empty(), page.over(None)) {
        (false, _) => "declared",
        (true, Some(_)) => "override",
        (true, None) if settings.limit.is_some() || !settings.limit_by_model.is_empty() => "route",
        (true, None) => "none",
    }
}

fn measuring(answer: Answer, page: &SignalPage<'_>, flows: &[FlowSeen]) -> Answer {
    let options = &page.settings.options;
    answer
        .with("alpha", options.alpha)
        .with("ttl", seconds(options.ttl))
        .with("probe_window", seconds(options.probe_window))
        .with("probe_per_window", options.probes_per_window)
        .with("probe_used_cur_window", page.probes_used(flows))
}

/// The adaptive limit's part, by model; reading clears nothing.
fn adaptive(answer: Answer, seen: &RouteSeen, flows: &[FlowSeen], settings: &FlowSettings) -> Answer {
    let views: Vec<(&str, ControllerView)> = flows
        .iter()
        .filter_map(|pool| Some((pool.key(), pool.flow.adaptive(seen.unix, &pool.options, pool.static_max)?)))
        .collect();
    let answer = answer.with("adaptive_cc_on", !views.is_empty());
    if views.is_empty() {
        return answer;
    }
    let map = |value: &dyn Fn(&ControllerView) -> Option<Json>| -> Map<String, Json> {
        views.iter().filter_map(|(key, view)| Some(((*key).to_owned(), value(view)?))).collect()
    };
    let options = &settings.adaptive;
    answer
        .with("adaptive_cc", map(&|view| view.value.map(Json::from)))
        .with("adaptive_cc_min", map(&|view| Some(json!(view.bounds.min))))
        .with("adaptive_cc_max", map(&|view| Some(json!(view.bounds.max))))
        .with("adaptive_cc_init", map(&|view| Some(json!(view.bounds.init))))
        .with("adaptive_cc_conc", map(&|view| view.conc.map(Json::from)))
        .with("adaptive_cc_rej", map(&|view| Some(json!(view.rej))))
        .with("adaptive_cc_at_pressure", map(&|view| Some(json!(view.at_pressure))))
        .with("adaptive_cc_at_slack", map(&|view| Some(json!(view.at_slack))))
        .with("adaptive_cc_hold_when_idle", options.hold_when_idle)
        .with("adaptive_cc_pressure_frac", options.pressure_frac)
        .with("adaptive_cc_slack_frac", options.slack_frac)
        .with("adaptive_cc_abs", options.abs)
        .with("adaptive_cc_interval", seconds(options.interval))
}

/// Whole seconds as a whole number.
pub(super) fn seconds(span: Duration) -> Json {
    if span.subsec_nanos() == 0 { json!(span.as_secs()) } else { json!(span.as_secs_f64()) }
}
