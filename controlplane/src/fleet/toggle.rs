//! What operators set on a running route: durable first, then taken up by its pools and told to every replica. It stays over
//! changes of the route's document, and goes with the route. One that was set for a time stops at its moment by itself; its
//! row in the database goes a little later.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use router_policy::flow::UnixMs;
use router_policy::ids::RouteName;
use router_policy::route::{Complaint, Complaints, RouteSpec};
use router_policy::toggle::{InvalidToggle, Limit, Switch, Toggle, ToggleKey, ToggleValue, Toggles};
use router_proto::v1;

use super::Fleet;
use crate::error::AdminError;
use crate::pool::Pool;
use crate::store::ToggleRow;

/// The longest time that a toggle may be set for.
const TTL_MAX: Duration = Duration::from_secs(365 * 86_400);
/// How many names an error lists.
const NAMES_LISTED: usize = 20;

/// Names a row: route, name, model.
type Key = (RouteName, String, String);

/// When rows of the database stop counting, for those that do. As many as are set.
pub(super) type TimedRows = BTreeMap<Key, UnixMs>;

/// A change of what is set.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToggleChange<'a> {
    /// The route.
    pub route: &'a str,
    /// Of the toggle.
    pub name: &'a str,
    /// Of a limit; empty for the whole route.
    pub model: &'a str,
    /// Not read with `is_reset`.
    pub value: &'a str,
    /// After this it undoes itself; zero: never.
    pub ttl: Duration,
    /// Undo it.
    pub is_reset: bool,
}

impl From<InvalidToggle> for AdminError {
    fn from(invalid: InvalidToggle) -> Self {
        Self::Argument { field: invalid.field, problem: invalid.problem }
    }
}

impl Fleet {
    /// Sets or undoes a toggle. All that is set on the route then, and what is to be known besides. On an error nothing has
    /// changed.
    pub async fn set_toggle(&self, change: ToggleChange<'_>) -> Result<(Vec<v1::ToggleState>, String), AdminError> {
        let specs = self.specs.lock().await;
        let pool = self.pool(change.route)?;
        let spec = specs
            .get(pool.name())
            .ok_or_else(|| AdminError::NotFound { what: "route", name: change.route.to_owned() })?;
        let now = UnixMs(self.context.clock.unix_ms(self.context.clock.now()));
        let mut toggles = pool.toggles();
        let (row_key, put, note) = if change.is_reset {
            let key = ToggleKey::parse(change.name, change.model)?;
            let was_set = toggles.iter(now).any(|toggle| toggle.key == key);
            if !toggles.reset(&key) {
                check_model(spec, key.model())?;
            }
            let note = if was_set { String::new() } else { format!("{} was not set", key.name()) };
            (row_key(&pool, &key), None, note)
        } else {
            let toggle = read(spec, &change, now)?;
            let row_key = row_key(&pool, &toggle.key);
            toggles.set(toggle.clone());
            let note = note(spec, &toggles, &toggle.key, toggle.value, now);
            let row = row(&row_key, toggle.value, toggle.until);
            (row_key, Some(row), note)
        };
        let (puts, removes) = match &put {
            Some(put) => (std::slice::from_ref(put), [].as_slice()),
            None => ([].as_slice(), std::slice::from_ref(&row_key)),
        };
        self.store.save_toggles(puts, removes).await?;
        match put.as_ref().and_then(|put| put.until_unix_ms) {
            Some(until) => self.timed_rows.lock().insert(row_key.clone(), UnixMs(until)),
            None => self.timed_rows.lock().remove(&row_key),
        };
        pool.set_toggles(toggles);
        self.publish_dirty();
        let value = put.map(|put| put.value).unwrap_or_default();
        let (_, toggle, model) = row_key;
        tracing::info!(route = %pool.name(), toggle, model, value, ttl = ?change.ttl, "toggle changed");
        drop(specs);
        // Whoever sets a limit does so by what is measured now: a crash must not part the two.
        self.store_flows().await;
        Ok((pool.toggle_states(), note))
    }

    /// Takes up what the database holds, before anything is admitted.
    pub(super) fn restore_toggles(&self, rows: &[ToggleRow]) {
        let now = UnixMs(self.context.clock.unix_ms(self.context.clock.now()));
        let mut by_route: HashMap<&RouteName, Toggles> = HashMap::new();
        for row in rows {
            let until = row.until_unix_ms.map(UnixMs);
            if let Some(until) = until {
                self.timed_rows.lock().insert((row.route.clone(), row.name.clone(), row.model.clone()), until);
            }
            if until.is_some_and(|until| until <= now) {
                continue;
            }
            let key = ToggleKey::parse(&row.name, &row.model);
            match key.and_then(|key| Ok((key.parse_value(&row.value)?, key))) {
                Ok((value, key)) => by_route.entry(&row.route).or_default().set(Toggle { key, value, until }),
                Err(error) => {
                    tracing::warn!(route = %row.route, %error, "a stored toggle is not valid any more; it is passed over");
                }
            }
        }
        let pools = self.pools();
        for (route, toggles) in by_route {
            if let Some(pool) = pools.get(route) {
                pool.set_toggles(toggles);
            }
        }
    }

    /// A route is gone, and its rows with it.
    pub(super) fn forget_timed_rows(&self, route: &RouteName) {
        self.timed_rows.lock().retain(|(of, ..), _| of != route);
    }

    /// How many rows wait for the end of their time.
    #[cfg(test)]
    pub(crate) fn timed_toggles(&self) -> usize {
        self.timed_rows.lock().len()
    }

    /// Removes rows whose time is over.
    pub async fn forget_expired_toggles(&self) {
        // So that none is set anew in between.
        let _alone = self.specs.lock().await;
        let now = UnixMs(self.context.clock.unix_ms(self.context.clock.now()));
        let over = |until: &UnixMs| *until <= now;
        let timed = self.timed_rows.lock().clone();
        let gone: Vec<Key> = timed.into_iter().filter(|(_, until)| over(until)).map(|(key, _)| key).collect();
        if gone.is_empty() {
            return;
        }
        match self.store.save_toggles(&[], &gone).await {
            Ok(()) => self.timed_rows.lock().retain(|_, until| !over(until)),
            Err(error) => tracing::debug!(%error, "toggles that are over stay in the database for a while"),
        }
    }
}

fn row_key(pool: &Pool, key: &ToggleKey) -> Key {
    (pool.name().clone(), key.name().to_owned(), key.model().to_owned())
}

/// Reads what is to be set; the error names everything that is wrong with it.
fn read(spec: &RouteSpec, change: &ToggleChange<'_>, now: UnixMs) -> Result<Toggle, AdminError> {
    let mut complaints = Complaints::default();
    let mut complain = |field: &str, problem| complaints.0.push(Complaint { field: field.to_owned(), problem });
    let key = ToggleKey::parse(change.name, change.model).or_else(|error| {
        complain(error.field, error.problem);
        // A switch's value is read also when it is said to be of a model.
        ToggleKey::parse(change.name, "")
    });
    if let Err(problem) = key.as_ref().map_or(Ok(()), |key| known_model(spec, key.model())) {
        complain("model", problem);
    }
    let value = key
        .as_ref()
        .ok()
        .and_then(|key| key.parse_value(change.value).map_err(|error| complain(error.field, error.problem)).ok());
    if change.ttl > TTL_MAX {
        complain("ttl", "allowed: up to 365 days, or 0 for ever".to_owned());
    }
    match (key, value) {
        (Ok(key), Some(value)) if complaints.0.is_empty() => {
            Ok(Toggle { key, value, until: (!change.ttl.is_zero()).then(|| now + change.ttl) })
        }
        _ => Err(AdminError::Invalid(complaints)),
    }
}

/// Whether a limit may be for this model; the empty one is the whole route.
fn check_model(spec: &RouteSpec, model: &str) -> Result<(), AdminError> {
    known_model(spec, model).map_err(|problem| AdminError::Argument { field: "model", problem })
}

/// Whether it may; the error says why not.
fn known_model(spec: &RouteSpec, model: &str) -> Result<(), String> {
    let models = spec.models();
    if model.is_empty() || models.contains(&model) {
        return Ok(());
    }
    let problem = if models.is_empty() {
        format!("route {} has one pool for all models; allowed: no model", spec.name)
    } else {
        let more = models.len().saturating_sub(NAMES_LISTED);
        let listed: Vec<&str> = models.into_iter().take(NAMES_LISTED).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("not a model of route {}; allowed: {}{more}, or none for the whole route", spec.name, listed.join(", "))
    };
    Err(problem)
}

fn row((route, name, model): &Key, value: ToggleValue, until: Option<UnixMs>) -> ToggleRow {
    ToggleRow {
        route: route.clone(),
        name: name.clone(),
        model: model.clone(),
        value: value.to_string(),
        until_unix_ms: until.map(|until| until.0),
    }
}

fn body_log_note(spec: &RouteSpec, toggles: &Toggles, now: UnixMs) -> String {
    let is_on = toggles.switch(Switch::BodyLog, now).unwrap_or(Switch::BodyLog.by_default(spec));
    if is_on { String::new() } else { "bodylog is off: nothing is captured".to_owned() }
}

/// What a switch that was just set does not do by itself, or does besides.
fn switch_note(spec: &RouteSpec, toggles: &Toggles, switch: Switch, is_on: bool, now: UnixMs) -> Option<String> {
    let options = spec.options();
    let measures_tps = toggles.measures_tps(&options.flow, now);
    let note = match (switch, is_on) {
        (Switch::Tps, false) if options.flow.adaptive_cc => "without tps the adaptive limit is not in force",
        (Switch::IncludeUsage, false) if measures_tps => {
            "streams whose clients do not ask for token counts tell none: they are no samples of tps"
        }
        (Switch::RejectRules, true) if spec.rules().is_empty() => {
            "the route has no rules (option reject_rules): nobody is refused"
        }
        (Switch::BodyLog, true) => {
            let pct = toggles.limit(Limit::BodyLogPct, None, now).unwrap_or(options.payload.bodylog_pct);
            let where_to = "bodies are captured on replicas that have a collector (--bodylog-host)";
            let none = (pct <= 0.0).then_some("; of 100 requests 0 are: bodylog_pct or bodylog_default_pct says so");
            return Some(format!("{where_to}{}", none.unwrap_or_default()));
        }
        _ => return None,
    };
    Some(note.to_owned())
}

/// What somebody who has just set this should know; empty for nothing.
fn note(spec: &RouteSpec, toggles: &Toggles, key: &ToggleKey, value: ToggleValue, now: UnixMs) -> String {
    let flow = spec.options().flow;
    let mut notes = Vec::new();
    match (key, value) {
        (ToggleKey::Switch(switch), ToggleValue::On(is_on)) => {
            let word = if is_on { "on" } else { "off" };
            if switch.option().is_some() && switch.by_default(spec) == is_on {
                notes.push(format!("{} is already {word} by the route's option", switch.name()));
            }
            notes.extend(switch_note(spec, toggles, *switch, is_on, now));
        }
        (ToggleKey::Limit(limit, model), _) => {
            let (settings, list, switch) = match limit {
                Limit::TtftMs => (&flow.ttft, "ttft_metrics", Switch::Ttft),
                Limit::Tps => (&flow.tps, "tps_metrics", Switch::Tps),
                Limit::BodyLogPct => return body_log_note(spec, toggles, now),
            };
            if !settings.metrics.is_empty() {
                notes.push(format!("a declared list {list} comes before this limit: stored, without effect"));
            }
            if toggles.switch(switch, now) == Some(false) {
                notes.push(format!("{} is switched off: the limit has no effect while it is", switch.name()));
            }
            if !toggles.switch(Switch::LoadRateLimit, now).unwrap_or(flow.load_rate_limit) {
                notes.push("load_rate_limit is off: nobody is refused for load".to_owned());
            }
            if *limit == Limit::Tps && flow.adaptive_cc {
                notes.push(
                    "the route's concurrency limit is adaptive: the limit steers it and refuses nobody".to_owned(),
                );
            }
            let is_own = |key: &ToggleKey| matches!(key, ToggleKey::Limit(of, Some(_)) if of == limit);
            let own = toggles.iter(now).filter(|toggle| is_own(&toggle.key)).count();
            if model.is_none() && own > 0 {
                notes.push(format!("{own} models have a limit of their own and keep it"));
            }
        }
        (ToggleKey::Switch(_), ToggleValue::Number(_)) => {}
    }
    notes.join("; ")
}
