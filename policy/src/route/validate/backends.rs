//! Backends as documents write them: `backends`, `backends_by_model`, and the session router's `peers` and `peers_by_model`
//! (routing.md §2).

use serde_json::{Map, Value as Json, json};

use super::Complaints;
use crate::ids::BackendId;
use crate::option::kind::json_kind;
use crate::option::{Kind, Value, catalogue};
use crate::route::priority::Priority;
use crate::route::spec::BackendSpec;

const FIELDS: &str = "address, name, max_concurrency, health_path, context_limit, dp_size, priority, models";
/// The session router's name of `health_path`.
const PROBE: &str = "probe";
/// Of the session router's peers alone: a label that has no place here and is passed over.
const PEER_LABEL: &str = "gpu";
/// In place of `address`.
const ADDRESS_FIELDS: [&str; 2] = ["host", "port"];
/// In this order a peer may be written as a list.
const PEER_FIELDS: [&str; 5] = ["host", "port", "name", "priority", "max_concurrency"];
const MODELS_MAX: usize = 1000;
const MODEL_MAX_CHARS: usize = 256;

/// Under whose name a backend is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrittenAs {
    Backend,
    /// Of the session router.
    Peer,
}

impl WrittenAs {
    fn under(name: &str) -> Self {
        if name.starts_with("peers") { Self::Peer } else { Self::Backend }
    }
}

/// Every backend of a route's document.
pub(super) fn read_all(path: &str, route: &Map<String, Json>, complaints: &mut Complaints) -> Vec<BackendSpec> {
    let written = |names: [&'static str; 2]| names.into_iter().filter_map(|name| Some((name, route.get(name)?)));
    let flat = written(["backends", "peers"]);
    let by_model = written(["backends_by_model", "peers_by_model"]);
    let lists: Vec<(&str, &Json)> = flat.chain(by_model).filter(|(_, json)| !json.is_null()).collect();
    if let [(first, _), (other, _), ..] = lists.as_slice() {
        complaints.add(format!("{path}.{other}"), format!("stands beside {first}; only one of them is allowed"));
    }
    match lists.first() {
        Some((name, json)) => {
            let (path, written_as) = (format!("{path}.{name}"), WrittenAs::under(name));
            let read = if name.ends_with("_by_model") { read_by_model } else { read_list };
            read(&path, json, written_as, complaints)
        }
        None => Vec::new(),
    }
}

fn read_list(path: &str, json: &Json, written_as: WrittenAs, complaints: &mut Complaints) -> Vec<BackendSpec> {
    let Json::Array(items) = json else {
        complaints.add(path, format!("list expected, got {}", json_kind(json)));
        return Vec::new();
    };
    let one = |(index, item): (usize, &Json)| read(&format!("{path}[{index}]"), item, written_as, complaints);
    let backends: Vec<BackendSpec> = items.iter().enumerate().filter_map(one).collect();
    check_unique(path, &backends, complaints);
    backends
}

/// `{"model": [backend, ...], ...}`: a backend that stands under several models is one backend that serves them all, and must
/// be written alike.
fn read_by_model(path: &str, json: &Json, written_as: WrittenAs, complaints: &mut Complaints) -> Vec<BackendSpec> {
    let Json::Object(pools) = json else {
        complaints.add(path, format!("object of lists by model expected, got {}", json_kind(json)));
        return Vec::new();
    };
    let mut backends: Vec<BackendSpec> = Vec::new();
    for (model, list) in pools {
        let path = format!("{path}.{model}");
        if let Err(problem) = check_model(model) {
            complaints.add(&path, problem);
            continue;
        }
        let of_model = read_list(&path, list, written_as, complaints);
        if of_model.is_empty() {
            complaints.add(&path, "no backend; a model needs at least one");
        }
        for mut backend in of_model {
            if !backend.models.is_empty() {
                complaints.add(format!("{path}[{}].models", backend.id), "already said by the model it stands under");
            }
            backend.models.clear();
            match backends.iter_mut().find(|known| known.id == backend.id) {
                Some(known) => {
                    let models = std::mem::take(&mut known.models);
                    if *known != backend {
                        let problem =
                            "written differently than under another model; one backend has one limit and priority";
                        complaints.add(format!("{path}[{}]", backend.id), problem);
                    }
                    known.models = models;
                    known.models.push(model.clone());
                }
                None => backends.push(BackendSpec { models: vec![model.clone()], ..backend }),
            }
        }
    }
    for backend in &mut backends {
        backend.models.sort_unstable();
    }
    check_unique(path, &backends, complaints);
    backends
}

/// A backend must have an address that no other has, and likewise a name.
pub(super) fn check_unique(path: &str, backends: &[BackendSpec], complaints: &mut Complaints) {
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

/// One backend: `"host:port"`, an object, or a peer as a list.
pub(super) fn read(
    path: &str,
    document: &Json,
    written_as: WrittenAs,
    complaints: &mut Complaints,
) -> Option<BackendSpec> {
    let object = match document {
        Json::String(_) => &Map::from_iter([("address".to_owned(), document.clone())]),
        Json::Object(object) => object,
        Json::Array(items) if (2..=PEER_FIELDS.len()).contains(&items.len()) => {
            &PEER_FIELDS.into_iter().zip(items).map(|(name, item)| (name.to_owned(), item.clone())).collect()
        }
        other => {
            complaints.add(path, format!("object or host:port expected, got {}", json_kind(other)));
            return None;
        }
    };
    for key in object.keys() {
        let is_known = FIELDS.split(", ").chain([PROBE]).any(|known| known == key)
            || (written_as == WrittenAs::Peer && key == PEER_LABEL);
        if !is_known && (object.contains_key("address") || !ADDRESS_FIELDS.contains(&key.as_str())) {
            complaints.add(format!("{path}.{key}"), format!("unknown field; allowed: {FIELDS}"));
        }
    }
    if ["health_path", PROBE].iter().all(|key| object.get(*key).is_some_and(|json| !json.is_null())) {
        complaints.add(format!("{path}.{PROBE}"), "stands beside health_path; only one of them is allowed");
    }
    let id = read_address(path, object, complaints);
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
    let concurrency = Kind::Int { min: 1, max: u64::from(catalogue::CONCURRENCY_MAX) };
    let max_concurrency = read("max_concurrency", concurrency);
    let context_limit = read("context_limit", Kind::Int { min: 1, max: catalogue::CONTEXT_MAX });
    let dp_size = read("dp_size", Kind::Int { min: 1, max: 4096 });
    let health_path = read("health_path", Kind::Path).or(read(PROBE, Kind::Path));
    let name = match object.get("name") {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) if is_label(text) => Some(text.clone()),
        Some(other) => {
            let problem = format!("label expected, got {}; allowed: 1 to 64 of a-z A-Z 0-9 . _ -", json_kind(other));
            complaints.add(format!("{path}.name"), problem);
            None
        }
    };
    let priority = read_priority(path, object.get("priority"), complaints);
    let models = read_models(path, object.get("models"), complaints);
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
        priority,
        models,
    })
}

/// `address`, or `host` and `port`.
fn read_address(path: &str, object: &Map<String, Json>, complaints: &mut Complaints) -> Option<BackendId> {
    let joined = match (object.get("host"), object.get("port")) {
        (Some(Json::String(host)), Some(Json::Number(port))) => Some(json!(format!("{host}:{port}"))),
        (Some(Json::String(host)), Some(Json::String(port))) => Some(json!(format!("{host}:{port}"))),
        _ => None,
    };
    match object.get("address").or(joined.as_ref()) {
        None => complaints.add(format!("{path}.address"), "missing; host:port of the backend"),
        Some(json) => match json.as_str().map(BackendId::new) {
            Some(Ok(id)) => return Some(id),
            Some(Err(error)) => complaints.add(format!("{path}.address"), error.to_string()),
            None => complaints.add(format!("{path}.address"), format!("string expected, got {}", json_kind(json))),
        },
    }
    None
}

fn read_priority(path: &str, json: Option<&Json>, complaints: &mut Complaints) -> Priority {
    let read = match json {
        None | Some(Json::Null) => return Priority::default(),
        Some(Json::Number(number)) => number.as_f64().and_then(|number| Priority::new(number).ok()),
        Some(Json::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    read.unwrap_or_else(|| {
        let kind = json.map_or("nothing", json_kind);
        let problem = format!(
            "number expected, got {kind}; allowed: -1000000 to 1000000 with at most 3 decimals; larger is preferred"
        );
        complaints.add(format!("{path}.priority"), problem);
        Priority::default()
    })
}

fn read_models(path: &str, json: Option<&Json>, complaints: &mut Complaints) -> Vec<String> {
    let path = format!("{path}.models");
    let items = match json {
        None | Some(Json::Null) => return Vec::new(),
        Some(Json::Array(items)) if items.len() <= MODELS_MAX => items,
        Some(Json::Array(items)) => {
            complaints.add(path, format!("{} models; allowed: up to {MODELS_MAX}", items.len()));
            return Vec::new();
        }
        Some(other) => {
            complaints.add(path, format!("list of model names expected, got {}", json_kind(other)));
            return Vec::new();
        }
    };
    let mut models = Vec::new();
    for item in items {
        match item.as_str().map(|model| check_model(model).map(|()| model.to_owned())) {
            Some(Ok(model)) => models.push(model),
            Some(Err(problem)) => complaints.add(&path, problem),
            None => complaints.add(&path, format!("model name expected, got {}", json_kind(item))),
        }
    }
    models.sort_unstable();
    models.dedup();
    models
}

fn check_model(model: &str) -> Result<(), String> {
    let is_good =
        !model.trim().is_empty() && model.chars().count() <= MODEL_MAX_CHARS && !model.chars().any(char::is_control);
    if is_good { Ok(()) } else { Err(format!("a model's name has 1 to {MODEL_MAX_CHARS} characters, none a control")) }
}

fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'))
}
