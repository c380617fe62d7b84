//! `_ttft_limit?ms=&model=&ttl=` and `_tps_limit?tps=&model=&ttl=`: limits for a time, two hours unless said otherwise
//! (limits.md §5.4, §12.8). Without `ms` or `tps` they tell and change nothing.

use std::time::Duration;

use router_policy::flow::{LatencyGate, UnixMs};
use router_policy::toggle::{Limit, ToggleKey, ToggleValue};

use super::Asked;
use super::answer::Answer;
use super::control::seconds;
use super::metrics::SignalPage;
use crate::error::AdminError;
use crate::fleet::ToggleChange;

const TTL: Duration = Duration::from_secs(7200);
const PRIORITY: &str = "declared list > runtime override (model, then route) > per-model static > route static";

pub(super) async fn ttft(asked: &Asked<'_>) -> Answer {
    match set(asked, Limit::TtftMs, "ms").await {
        Ok(_) => told(asked, LatencyGate::Ttft),
        Err(error) => Answer::turned_down(asked.route(), &error),
    }
}

pub(super) async fn tps(asked: &Asked<'_>) -> Answer {
    let note = match set(asked, Limit::Tps, "tps").await {
        Ok(note) => note,
        Err(error) => return Answer::turned_down(asked.route(), &error),
    };
    let flows = asked.pool.inspect_flows();
    let model = asked.param("model").filter(|model| !model.is_empty());
    let mut meant = flows.iter().filter(|pool| model.is_none() || pool.model.as_deref() == model);
    let refuses = meant.any(|pool| {
        let options = &pool.options;
        options.is_enforced
            && options.tps_on
            && options.adaptive.is_none()
            && options.tps_metrics.iter().any(|metric| metric.threshold.is_some())
    });
    told(asked, LatencyGate::Tps)
        .with("enforcing", refuses)
        .with_some("warning", Some(note).filter(|note| !note.is_empty()))
}

/// Sets the limit, or clears it with 0.
async fn set(asked: &Asked<'_>, limit: Limit, param: &'static str) -> Result<String, AdminError> {
    let model = asked.param("model").unwrap_or_default();
    let change = ToggleChange { route: asked.route(), name: limit.name(), model, ..ToggleChange::default() };
    let Some(text) = asked.param(param) else { return Ok(String::new()) };
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let Some(number) = number else {
        let problem = "a number from 0 expected; 0 clears the limit".to_owned();
        return Err(AdminError::Argument { field: param, problem });
    };
    let ttl = seconds(asked.param("ttl"), TTL)?;
    let change = if number > 0.0 {
        ToggleChange { value: text, ttl, ..change }
    } else {
        ToggleChange { is_reset: true, ..change }
    };
    let changed = asked.fleet.set_toggle(change).await;
    let (_, note) = changed.map_err(|error| in_terms_of(param, error))?;
    Ok(if change.is_reset { String::new() } else { note })
}

/// What is wrong with the value is wrong with this parameter.
fn in_terms_of(param: &str, mut error: AdminError) -> AdminError {
    if let AdminError::Invalid(complaints) = &mut error {
        complaints.0.iter_mut().filter(|one| one.field == "value").for_each(|one| param.clone_into(&mut one.field));
    }
    error
}

fn told(asked: &Asked<'_>, gate: LatencyGate) -> Answer {
    let seen = asked.pool.inspect();
    let flow = seen.spec.options().flow;
    let settings = match gate {
        LatencyGate::Ttft => &flow.ttft,
        LatencyGate::Tps => &flow.tps,
    };
    let page = SignalPage::new(gate, &seen, settings);
    let model = asked.param("model").filter(|model| !model.is_empty());
    let key = ToggleKey::Limit(page.limit(), model.map(ToOwned::to_owned));
    let own = seen.toggles.iter(seen.unix).find(|toggle| toggle.key == key);
    let over = own.as_ref().and_then(|_| page.over(model));
    let then = own.as_ref().filter(|toggle| toggle.until.is_some()).and_then(|_| seen.toggles.standing(&key));
    let then = match then {
        Some(ToggleValue::Number(number)) => Some(number),
        _ => None,
    };
    let ttl_s = own.as_ref().map(|toggle| toggle.until.map_or(0, |until| left_s(until, seen.unix)));
    let stated = settings.static_limit(model);
    let is_declared = !settings.metrics.is_empty();
    let named = |name: &str| format!("{name}_{}", page.unit());
    Answer::of(asked.route())
        .with("ok", true)
        .with_some("model", model)
        .with_some(&named("limit_override"), over)
        .with_some(&named("static_limit"), stated)
        .with_some("static_by_model", page.by_model())
        .with("priority", PRIORITY)
        .with_some("override_ttl_s", ttl_s)
        .with_some(&named("override_then"), then)
        .with_some("override_effective", over.map(|_| !is_declared))
        .with_some("override_ignored_reason", over.filter(|_| is_declared).map(|_| page.ignored_reason()))
        .with_some(&named("shadowed_limit"), stated.filter(|_| over.is_some() || is_declared))
        .with("declares_metrics", is_declared)
}

/// Rounded up: 0 is for ever.
fn left_s(until: UnixMs, now: UnixMs) -> u64 {
    until.0.saturating_sub(now.0).div_ceil(1000).max(1)
}
