//! What operators set on a running route: durable first, then taken up by its pools and told to every replica. It stays over
//! changes of the route's document, and goes with the route. One that was set for a time stops at its moment by itself; its
//! row in the database goes a little later.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use router_policy::flow::UnixMs;
use router_policy::ids::RouteName;
use router_policy::route::{Complaint, Complaints, RouteSpec};
use router_policy::toggle::{InvalidToggle, Toggle, ToggleKey, ToggleValue, Toggles};
use router_proto::v1;

use self::note::Change;
use super::Fleet;
use crate::error::AdminError;
use crate::pool::Pool;
use crate::store::ToggleRow;

pub(super) mod note;

/// The longest time that a toggle may be set for.
const TTL_MAX: Duration = Duration::from_secs(365 * 86_400);
/// How many names an error lists.
const NAMES_LISTED: usize = 20;

/// Names a row: route, name, model.
type Key = (RouteName, String, String);

/// Rows of the database that are for a time. As many as are set.
pub(super) type TimedRows = BTreeMap<Key, TimedRow>;

/// When a row stops counting, and the value that it has then; `None`: the row goes.
#[derive(Debug, Clone)]
pub(super) struct TimedRow {
    until: UnixMs,
    standing: Option<String>,
}

impl TimedRow {
    fn of(row: &ToggleRow) -> Option<Self> {
        Some(Self { until: UnixMs(row.until_unix_ms?), standing: row.standing.clone() })
    }
}

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
    /// After this it undoes itself, and what was set until undone before holds again; zero: never.
    pub ttl: Duration,
    /// Undo it, and what would hold after it.
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
            let before = toggles.clone();
            toggles.set(toggle.clone());
            let note = note::note(&Change { spec, before: &before, after: &toggles, now }, &toggle);
            let standing = toggle.until.and_then(|_| toggles.standing(&toggle.key));
            let row = row(&row_key, toggle.value, toggle.until, standing);
            (row_key, Some(row), note)
        };
        let (puts, removes) = match &put {
            Some(put) => (std::slice::from_ref(put), [].as_slice()),
            None => ([].as_slice(), std::slice::from_ref(&row_key)),
        };
        self.store.save_toggles(puts, removes).await?;
        match put.as_ref().and_then(TimedRow::of) {
            Some(timed) => self.timed_rows.lock().insert(row_key.clone(), timed),
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
            if let Some(timed) = TimedRow::of(row) {
                self.timed_rows.lock().insert((row.route.clone(), row.name.clone(), row.model.clone()), timed);
            }
            // The one that holds afterwards first: the one for a time lies over it.
            for (text, until) in values(row) {
                if until.is_some_and(|until| until <= now) {
                    continue;
                }
                let key = ToggleKey::parse(&row.name, &row.model);
                match key.and_then(|key| Ok((key.parse_value(text)?, key))) {
                    Ok((value, key)) => by_route.entry(&row.route).or_default().set(Toggle { key, value, until }),
                    Err(error) => {
                        tracing::warn!(route = %row.route, %error, "a stored toggle is not valid any more; it is passed over");
                    }
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

    /// Removes rows whose time is over; where something else holds again, the row says that.
    pub async fn forget_expired_toggles(&self) {
        // So that none is set anew in between.
        let _alone = self.specs.lock().await;
        let now = UnixMs(self.context.clock.unix_ms(self.context.clock.now()));
        let over = |row: &TimedRow| row.until <= now;
        let timed = self.timed_rows.lock().clone();
        let (mut gone, mut again) = (Vec::new(), Vec::new());
        for (key, timed) in timed.into_iter().filter(|(_, timed)| over(timed)) {
            match timed.standing {
                Some(value) => {
                    let (route, name, model) = key;
                    again.push(ToggleRow { route, name, model, value, until_unix_ms: None, standing: None });
                }
                None => gone.push(key),
            }
        }
        if gone.is_empty() && again.is_empty() {
            return;
        }
        match self.store.save_toggles(&again, &gone).await {
            Ok(()) => self.timed_rows.lock().retain(|_, timed| !over(timed)),
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

fn row(
    (route, name, model): &Key,
    value: ToggleValue,
    until: Option<UnixMs>,
    standing: Option<ToggleValue>,
) -> ToggleRow {
    ToggleRow {
        route: route.clone(),
        name: name.clone(),
        model: model.clone(),
        value: value.to_string(),
        until_unix_ms: until.map(|until| until.0),
        standing: standing.map(|value| value.to_string()),
    }
}

/// The values of a row and their ends, the one that holds longest first.
fn values(row: &ToggleRow) -> impl Iterator<Item = (&str, Option<UnixMs>)> {
    let standing = row.standing.as_deref().map(|value| (value, None));
    standing.into_iter().chain([(row.value.as_str(), row.until_unix_ms.map(UnixMs))])
}
