//! The one validator of route documents. It reads everything before it answers: a bad document gets every complaint at
//! once, each with its field, and nothing of it is used.

use std::fmt;

use serde_json::{Map, Value as Json};

use super::spec::{BackendSpec, RouteSpec};
use crate::ids::{BackendId, RouteName};
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

const ROUTE_FIELDS: &str = "name, default, preset, options, backends";
const BACKEND_FIELDS: &str = "address, name, max_concurrency, health_path, context_limit, dp_size";

/// Reads a document: one route object, or `{"routes": [...]}`.
pub fn parse_document(document: &Json) -> Result<Vec<RouteSpec>, Complaints> {
    let mut complaints = Complaints::default();
    let Json::Object(top) = document else {
        complaints.add("document", format!("object expected, got {}", json_kind(document)));
        return Err(complaints);
    };
    let routes = match top.get("routes") {
        None => vec![read_route("route", document, &mut complaints)],
        Some(Json::Array(items)) => {
            for key in top.keys().filter(|key| *key != "routes") {
                complaints.add(key, "unknown field; allowed beside `routes`: nothing");
            }
            let read = |(index, item): (usize, &Json)| {
                let label =
                    item.get("name").and_then(Json::as_str).map_or(format!("[{index}]"), |name| format!(".{name}"));
                read_route(&format!("routes{label}"), item, &mut complaints)
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
    match read_route("route", document, &mut complaints) {
        Some(route) => complaints.or(route),
        None => Err(complaints),
    }
}

/// Reads a route object as far as it is valid: a bad option falls back to its default (rulings §6, for documents that an
/// older version stored). `None` when the rest of the route is not valid.
pub fn parse_stored(document: &Json) -> (Option<RouteSpec>, Complaints) {
    let mut complaints = Complaints::default();
    let route = read_route("route", document, &mut complaints);
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

/// A backend of a pool must have an address that no other has, and likewise a name.
pub fn check_backends(path: &str, backends: &[BackendSpec]) -> Result<(), Complaints> {
    let mut complaints = Complaints::default();
    check_unique(path, backends, &mut complaints);
    complaints.or(())
}

/// Checks one backend object.
pub fn parse_backend(path: &str, document: &Json) -> Result<BackendSpec, Complaints> {
    let mut complaints = Complaints::default();
    match read_backend(path, document, &mut complaints) {
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

fn read_route(path: &str, document: &Json, complaints: &mut Complaints) -> Option<RouteSpec> {
    let Json::Object(object) = document else {
        complaints.add(path, format!("object expected, got {}", json_kind(document)));
        return None;
    };
    for key in object.keys() {
        if !ROUTE_FIELDS.split(", ").any(|known| known == key) {
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
    let set = read_options(path, object.get("options"), complaints);
    let backends = read_backends(path, object.get("backends"), complaints);
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

fn read_options(path: &str, json: Option<&Json>, complaints: &mut Complaints) -> OptionSet {
    let mut set = OptionSet::new();
    match json {
        None | Some(Json::Null) => {}
        Some(Json::Object(options)) => {
            for (name, json) in options {
                match parse_option(name, json) {
                    Ok((name, value)) => {
                        set.insert(name, value);
                    }
                    Err(problem) => complaints.add(format!("{path}.options.{name}"), problem),
                }
            }
        }
        Some(other) => complaints.add(format!("{path}.options"), format!("object expected, got {}", json_kind(other))),
    }
    set
}

fn read_backends(path: &str, json: Option<&Json>, complaints: &mut Complaints) -> Vec<BackendSpec> {
    let path = format!("{path}.backends");
    match json {
        None | Some(Json::Null) => Vec::new(),
        Some(Json::Array(items)) => {
            let backends: Vec<BackendSpec> = items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| read_backend(&format!("{path}[{index}]"), item, complaints))
                .collect();
            check_unique(&path, &backends, complaints);
            backends
        }
        Some(other) => {
            complaints.add(path, format!("list expected, got {}", json_kind(other)));
            Vec::new()
        }
    }
}

fn check_unique(path: &str, backends: &[BackendSpec], complaints: &mut Complaints) {
    for (index, backend) in backends.iter().enumerate() {
        for other in backends.iter().take(index) {
            if other.id == backend.id {
                complaints.add(format!("{path}[{}].address", backend.id), "duplicate: stands twice");
            }
            if backend.name.is_some() && other.name == backend.name {
                complaints.add(
                    format!("{path}[{}].name", backend.id),
                    format!("duplicate: backend {} has this name", other.id),
                );
            }
        }
    }
}

fn read_backend(path: &str, document: &Json, complaints: &mut Complaints) -> Option<BackendSpec> {
    let object = match document {
        Json::String(_) => &Map::from_iter([("address".to_owned(), document.clone())]),
        Json::Object(object) => object,
        other => {
            complaints.add(path, format!("object or host:port expected, got {}", json_kind(other)));
            return None;
        }
    };
    for key in object.keys() {
        if !BACKEND_FIELDS.split(", ").any(|known| known == key) {
            complaints.add(format!("{path}.{key}"), format!("unknown field; allowed: {BACKEND_FIELDS}"));
        }
    }
    let id = match object.get("address") {
        None => {
            complaints.add(format!("{path}.address"), "missing; host:port of the backend");
            None
        }
        Some(json) => match json.as_str().map(BackendId::new) {
            Some(Ok(id)) => Some(id),
            Some(Err(error)) => {
                complaints.add(format!("{path}.address"), error.to_string());
                None
            }
            None => {
                complaints.add(format!("{path}.address"), format!("string expected, got {}", json_kind(json)));
                None
            }
        },
    };
    let mut read = |key: &str, kind: Kind| match object.get(key) {
        None | Some(Json::Null) => None,
        Some(json) => match kind.parse_json(json) {
            Ok(value) => Some(value),
            Err(error) => {
                complaints.add(format!("{path}.{key}"), error.to_string());
                None
            }
        },
    };
    let max_concurrency = read("max_concurrency", Kind::Int { min: 1, max: 100_000 });
    let context_limit = read("context_limit", Kind::Int { min: 1, max: catalogue::CONTEXT_MAX });
    let dp_size = read("dp_size", Kind::Int { min: 1, max: 4096 });
    let health_path = read("health_path", Kind::Path);
    let name = match object.get("name") {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) if is_label(text) => Some(text.clone()),
        Some(other) => {
            let problem = format!("label expected, got {}; allowed: 1 to 64 of a-z A-Z 0-9 . _ -", json_kind(other));
            complaints.add(format!("{path}.name"), problem);
            None
        }
    };
    let int = |value: Option<Value>| match value {
        Some(Value::Int(number)) => Some(number),
        _ => None,
    };
    let small = |value| int(value).and_then(|number| u32::try_from(number).ok());
    Some(BackendSpec {
        id: id?,
        name,
        max_concurrency: small(max_concurrency),
        health_path: match health_path {
            Some(Value::Texts(texts)) => texts.into_iter().next(),
            _ => None,
        },
        context_limit: int(context_limit),
        dp_size: small(dp_size),
    })
}

fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'))
}

#[cfg(test)]
#[path = "validate/tests.rs"]
mod tests;
