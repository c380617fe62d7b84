//! Switches: `on=0|1`, and for those that are options too `reset=1`. `ttl` (seconds) makes one undo itself; without it, it
//! stays until it is undone.

use std::time::Duration;

use router_policy::toggle::Switch;

use super::Asked;
use super::answer::Answer;
use super::refusals::effective;
use crate::error::AdminError;
use crate::fleet::ToggleChange;

const MEASURING: &str = "TTFT is measured and steers the adaptive limit either way";
const ON_EXPECTED: &str = "on=0 or on=1 expected";

pub(super) async fn ttft(asked: &Asked<'_>) -> Answer {
    whole_feature(asked, Switch::Ttft).await
}

pub(super) async fn tps(asked: &Asked<'_>) -> Answer {
    whole_feature(asked, Switch::Tps).await
}

/// There is no option for these: on is what they are when nobody has turned them off.
async fn whole_feature(asked: &Asked<'_>, switch: Switch) -> Answer {
    let changed = match asked.param("on") {
        Some("1") => reset(asked, switch).await,
        Some("0") => set(asked, switch, false).await,
        _ => return bad(asked, ON_EXPECTED),
    };
    answer(asked, changed, |answer| {
        let is_on = effective(&asked.pool.inspect(), switch).is_on;
        answer.with("global_enabled", true).with("runtime_off", !is_on).with("active", is_on)
    })
}

pub(super) async fn ttft_429(asked: &Asked<'_>) -> Answer {
    let join = |note: String| if note.is_empty() { MEASURING.to_owned() } else { format!("{note}; {MEASURING}") };
    let changed = change(asked, Switch::Ttft429).await.map(join);
    answer(asked, changed, |answer| {
        answer.with("ttft_429_enabled", effective(&asked.pool.inspect(), Switch::Ttft429).is_on)
    })
}

pub(super) async fn rate_limit(asked: &Asked<'_>) -> Answer {
    let changed = change(asked, Switch::LoadRateLimit).await;
    answer(asked, changed, |answer| told(asked, answer, Switch::LoadRateLimit))
}

pub(super) async fn session_prio(asked: &Asked<'_>) -> Answer {
    let changed = change(asked, Switch::SessionPrio).await;
    answer(asked, changed, |answer| told(asked, answer, Switch::SessionPrio))
}

fn told(asked: &Asked<'_>, answer: Answer, switch: Switch) -> Answer {
    effective(&asked.pool.inspect(), switch).tell(answer)
}

async fn change(asked: &Asked<'_>, switch: Switch) -> Result<String, AdminError> {
    if asked.is_set("reset") {
        return reset(asked, switch).await;
    }
    match asked.param("on") {
        Some("1") => set(asked, switch, true).await,
        Some("0") => set(asked, switch, false).await,
        _ => Err(AdminError::Argument { field: "on", problem: "0 or 1 expected, or reset=1".to_owned() }),
    }
}

pub(super) async fn set(asked: &Asked<'_>, switch: Switch, is_on: bool) -> Result<String, AdminError> {
    let value = if is_on { "on" } else { "off" };
    let ttl = seconds(asked.param("ttl"), Duration::ZERO)?;
    let change = ToggleChange { route: asked.route(), name: switch.name(), value, ttl, ..ToggleChange::default() };
    asked.fleet.set_toggle(change).await.map(|(_, note)| note)
}

async fn reset(asked: &Asked<'_>, switch: Switch) -> Result<String, AdminError> {
    let change = ToggleChange { route: asked.route(), name: switch.name(), is_reset: true, ..ToggleChange::default() };
    asked.fleet.set_toggle(change).await.map(|_| String::new())
}

fn answer(asked: &Asked<'_>, changed: Result<String, AdminError>, fill: impl FnOnce(Answer) -> Answer) -> Answer {
    match changed {
        Ok(note) => {
            let answer = fill(Answer::of(asked.route()).with("ok", true));
            answer.with_some("note", Some(note).filter(|note| !note.is_empty()))
        }
        Err(error) => Answer::turned_down(asked.route(), &error),
    }
}

fn bad(asked: &Asked<'_>, problem: &str) -> Answer {
    Answer::error(400, problem).with("ok", false).with("route", asked.route())
}

/// A time in seconds; 0 is for ever.
pub(super) fn seconds(text: Option<&str>, default: Duration) -> Result<Duration, AdminError> {
    let Some(text) = text else { return Ok(default) };
    let number = text.parse::<f64>().ok();
    let span = number.filter(|number| *number >= 0.0).and_then(|number| Duration::try_from_secs_f64(number).ok());
    span.ok_or_else(|| AdminError::Argument { field: "ttl", problem: "seconds expected; 0 is for ever".to_owned() })
}
