//! The one validator of route documents. It reads everything before it answers: a bad document gets every complaint at
//! once, each with its field, and nothing of it is used.

mod backends;
mod rules;

use std::fmt;

use serde_json::{Map, Value as Json};

use self::backends::WrittenAs;
pub use self::rules::doubts;
use super::spec::{BackendSpec, RouteSpec};
use crate::ids::RouteName;
use crate::option::kind::json_kind;
use crate::option::{Kind, OptionSet, Preset, Value, catalogue};

/// One thing wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Where: `routes.chat.options.max_waiting`.
    pub field: String,
    /// What is wrong and what is allowed.
    pub problem: String,
}

/// Everything wrong with a document; never empty as an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Complaints(pub Vec<Complaint>);

impl Complaints {
    fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Complaint { field: field.into(), problem: problem.into() });
    }

    fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {}", complaint.field, complaint.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for Complaints {}

/// Where a document comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// An operator, who is there to read what is wrong.
    New,
    /// The database or another version of this program: what can be used is used.
    Stored,
}

const ROUTE_FIELDS: &str = "name, default, preset, options, backends, backends_by_model";
/// The session router's names of two of them.
const OTHER_ROUTE_FIELDS: [&str; 2] = ["peers", "peers_by_model"];

/// Reads a document: one route object, or `{"routes": [...]}`.
pub fn parse_document(document: &Json) -> Result<Vec<RouteSpec>, Complaints> {
    let mut complaints = Complaints::default();
    let Json::Object(top) = document else {
        complaints.add("document", format!("object expected, got {}", json_kind(document)));
        return Err(complaints);
    };
    let routes = match top.get("routes") {
        None => vec![read_route("route", document, Origin::New, &mut complaints)],
        Some(Json::Array(items)) => {
            for key in top.keys().filter(|key| *key != "routes") {
                complaints.add(key, "unknown field; allowed beside `routes`: nothing");
            }
            let read = |(index, item): (usize, &Json)| {
                let label =
                    item.get("name").and_then(Json::as_str).map_or(format!("[{index}]"), |name| format!(".{name}"));
                read_route(&format!("routes{label}"), item, Origin::New, &mut complaints)
            };
            items.iter().enumerate().map(read).collect()
        }
        Some(other) => {
            complaints.add("routes", format!("list expected, got {}", json_kind(other)));
            Vec::new()
        }
    };
    let routes: Vec<RouteSpec> = routes.into_iter().flatten().collect();
    check_together(&routes, &mut complaints);
    complaints.or(routes)
}

/// Reads one route object.
pub fn parse_route(document: &Json) -> Result<RouteSpec, Complaints> {
    let mut complaints = Complaints::default();
    match read_route("route", document, Origin::New, &mut complaints) {
        Some(route) => complaints.or(route),
        None => Err(complaints),
    }
}

/// Reads a route object as far as it is valid: a bad option falls back to its default (rulings §6, for documents that an
/// older version stored). `None` when the rest of the route is not valid.
pub fn parse_stored(document: &Json) -> (Option<RouteSpec>, Complaints) {
    let mut complaints = Complaints::default();
    let mut route = read_route("route", document, Origin::Stored, &mut complaints);
    if let Some(route) = &mut route {
        rules::keep_valid("route", route, &mut complaints);
    }
    (route, complaints)
}

/// Checks that routes can live side by side: no name twice, one default at most.
pub fn check_all(routes: &[RouteSpec]) -> Result<(), Complaints> {
    let mut complaints = Complaints::default();
    check_together(routes, &mut complaints);
    complaints.or(())
}

/// Checks one option by name.
pub fn parse_option(name: &str, json: &Json) -> Result<(&'static str, Value), String> {
    let Some(option) = catalogue::find(name) else {
        return Err(unknown_option(name));
    };
    option.kind.parse_json(json).map(|value| (option.name, value)).map_err(|error| error.to_string())
}

/// Checks one option by name; each complaint names the option and the place in its value (`reject_rules[0].op`).
pub fn parse_option_each(name: &str, json: &Json) -> Result<(&'static str, Value), Complaints> {
    let mut complaints = Complaints::default();
    match read_option("", name, json, Origin::New, &mut complaints) {
        Some(option) => complaints.or(option),
        None => Err(complaints),
    }
}

/// Reads one option as far as it can be used: from another version of this program.
pub fn parse_stored_option(name: &str, json: &Json) -> Option<(&'static str, Value)> {
    read_option("", name, json, Origin::Stored, &mut Complaints::default())
}

fn read_option(
    prefix: &str,
    name: &str,
    json: &Json,
    origin: Origin,
    complaints: &mut Complaints,
) -> Option<(&'static str, Value)> {
    let Some(option) = catalogue::find(name) else {
        complaints.add(format!("{prefix}{name}"), unknown_option(name));
        return None;
    };
    let (value, problems) = option.kind.parse_each(json, origin == Origin::Stored);
    for (place, problem) in problems {
        complaints.add(format!("{prefix}{name}{place}"), problem);
    }
    value.map(|value| (option.name, value))
}

/// A backend of a pool must have an address that no other has, and likewise a name.
pub fn check_backends(path: &str, backends: &[BackendSpec]) -> Result<(), Complaints> {
    let mut complaints = Complaints::default();
    backends::check_unique(path, backends, &mut complaints);
    complaints.or(())
}

/// Checks one backend object.
pub fn parse_backend(path: &str, document: &Json) -> Result<BackendSpec, Complaints> {
    let mut complaints = Complaints::default();
    match backends::read(path, document, WrittenAs::Backend, &mut complaints) {
        Some(backend) => complaints.or(backend),
        None => Err(complaints),
    }
}

fn unknown_option(name: &str) -> String {
    let near: Vec<&str> = catalogue::CATALOGUE
        .iter()
        .map(|option| option.name)
        .filter(|known| known.starts_with(name) || known.split('_').any(|part| part.len() > 4 && name.contains(part)))
        .collect();
    let hint = if near.is_empty() { String::new() } else { format!("; near it: {}", near.join(", ")) };
    format!("unknown option{hint}; `routerctl route options` lists all")
}

fn check_together(routes: &[RouteSpec], complaints: &mut Complaints) {
    for (index, route) in routes.iter().enumerate() {
        check_context(route, complaints);
        check_models(route, complaints);
        check_flow(route, complaints);
        rules::check(&format!("routes.{}", route.name), route, complaints);
        if routes.iter().take(index).any(|other| other.name == route.name) {
            complaints.add(format!("routes.{}.name", route.name), "duplicate: another route has this name and prefix");
        }
    }
    let mut defaults = routes.iter().filter(|route| route.is_default);
    if let Some(first) = defaults.next() {
        for other in defaults {
            let problem =
                format!("overlaps route {}: both would answer bare /v1/; only one default is allowed", first.name);
            complaints.add(format!("routes.{}.default", other.name), problem);
        }
    }
}

/// Context windows must speak of backends that exist, and none may lie below what all backends are said to have.
fn check_context(route: &RouteSpec, complaints: &mut Complaints) {
    let path = format!("routes.{}", route.name);
    let options = route.options();
    for port in options.backend_context_limits.keys() {
        if !route.backends.iter().any(|backend| backend.id.port() == *port) {
            let ports: Vec<String> = route.backends.iter().map(|backend| backend.id.port().to_string()).collect();
            let problem = format!("no backend has port {port}; allowed: {}", ports.join(", "));
            complaints.add(format!("{path}.options.backend_context_limits"), problem);
        }
    }
    let Some(shared) = options.model_context_limit else { return };
    for backend in &route.backends {
        if let Some(own) = backend.known_context(&options).filter(|own| *own < shared) {
            let problem =
                format!("{own} is less than model_context_limit, which every backend has; allowed: {shared} or more");
            complaints.add(format!("{path}.backends[{}].context_limit", backend.id), problem);
        }
    }
}

/// A route has one pool for all models, or one for each: a backend that says nothing of models has no place beside one that
/// does.
fn check_models(route: &RouteSpec, complaints: &mut Complaints) {
    if !route.is_by_model() {
        return;
    }
    for backend in route.backends.iter().filter(|backend| backend.models.is_empty()) {
        let field = format!("routes.{}.backends[{}].models", route.name, backend.id);
        complaints.add(field, "missing; other backends of this route state their models, so each must");
    }
}

/// What options of flow control need of each other.
fn check_flow(route: &RouteSpec, complaints: &mut Complaints) {
    let path = format!("routes.{}.options", route.name);
    let flow = route.options().flow;
    if flow.adaptive_cc && !flow.tps.is_stated() {
        let problem = "needs a TPS limit: set tps_limit_tps, tps_limit_by_model or tps_metrics as well";
        complaints.add(format!("{path}.adaptive_cc"), problem);
    }
    if let Some(Value::Decimal(slack)) = route.set.get("adaptive_cc_slack_frac")
        && *slack >= flow.adaptive.pressure_frac
    {
        let problem = format!("{slack} is not less than adaptive_cc_pressure_frac ({})", flow.adaptive.pressure_frac);
        complaints.add(format!("{path}.adaptive_cc_slack_frac"), problem);
    }
    for (name, signal) in [("ttft", &flow.ttft), ("tps", &flow.tps)] {
        let models = route.models();
        for model in signal.limit_by_model.keys().filter(|model| !models.contains(&model.as_str())) {
            let allowed = if models.is_empty() { "none".to_owned() } else { models.join(", ") };
            let problem = format!("no backend serves model '{}'; allowed: {allowed}", shown(model));
            complaints.add(format!("{path}.{name}_limit_by_model"), problem);
        }
    }
}

/// A model's name, cut to what fits into a message.
fn shown(model: &str) -> String {
    model.chars().take(64).collect()
}

fn read_route(path: &str, document: &Json, origin: Origin, complaints: &mut Complaints) -> Option<RouteSpec> {
    let Json::Object(object) = document else {
        complaints.add(path, format!("object expected, got {}", json_kind(document)));
        return None;
    };
    for key in object.keys() {
        if !ROUTE_FIELDS.split(", ").chain(OTHER_ROUTE_FIELDS).any(|known| known == key) {
            complaints.add(format!("{path}.{key}"), format!("unknown field; allowed: {ROUTE_FIELDS}"));
        }
    }
    let name = read_name(path, object, complaints);
    let is_default = match object.get("default") {
        None => false,
        Some(json) => match Kind::Bool.parse_json(json) {
            Ok(Value::Bool(flag)) => flag,
            Ok(_) => false,
            Err(error) => {
                complaints.add(format!("{path}.default"), error.to_string());
                false
            }
        },
    };
    let preset = match object.get("preset") {
        None | Some(Json::Null) => Preset::None,
        Some(json) => json.as_str().and_then(Preset::parse).unwrap_or_else(|| {
            let allowed = Preset::NAMES.join(", ");
            complaints
                .add(format!("{path}.preset"), format!("word expected, got {}; allowed: {allowed}", json_kind(json)));
            Preset::None
        }),
    };
    let set = read_options(path, object.get("options"), origin, complaints);
    let backends = backends::read_all(path, object, complaints);
    Some(RouteSpec { name: name?, is_default, preset, set, backends })
}

fn read_name(path: &str, object: &Map<String, Json>, complaints: &mut Complaints) -> Option<RouteName> {
    let field = format!("{path}.name");
    match object.get("name") {
        None => complaints.add(field, "missing; every route needs a name"),
        Some(Json::String(text)) => match RouteName::new(text) {
            Ok(name) => return Some(name),
            Err(error) => complaints.add(field, error.to_string()),
        },
        Some(other) => complaints.add(field, format!("string expected, got {}", json_kind(other))),
    }
    None
}

fn read_options(path: &str, json: Option<&Json>, origin: Origin, complaints: &mut Complaints) -> OptionSet {
    let mut set = OptionSet::new();
    let prefix = format!("{path}.options.");
    match json {
        None | Some(Json::Null) => {}
        Some(Json::Object(options)) => {
            for (name, json) in options {
                if let Some((known, value)) = read_option(&prefix, name, json, origin, complaints)
                    && set.insert(known, value).is_some()
                {
                    complaints.add(format!("{prefix}{name}"), format!("duplicate: {known} is set as well"));
                }
            }
        }
        Some(other) => complaints.add(format!("{path}.options"), format!("object expected, got {}", json_kind(other))),
    }
    set
}

#[cfg(test)]
mod tests;
