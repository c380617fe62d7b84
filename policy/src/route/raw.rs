//! Printing a checked route back into the document that says the same.

use serde_json::{Map, Value as Json, json};

use super::priority::Priority;
use super::spec::{BackendSpec, RouteSpec};
use crate::option::{Preset, Value};

/// One route object.
pub fn route_json(route: &RouteSpec) -> Json {
    let mut object = Map::new();
    object.insert("name".to_owned(), json!(route.name.as_str()));
    if route.is_default {
        object.insert("default".to_owned(), json!(true));
    }
    if route.preset != Preset::None {
        object.insert("preset".to_owned(), json!(route.preset.name()));
    }
    if !route.set.is_empty() {
        let options = route.set.iter().map(|(name, value)| ((*name).to_owned(), value_json(value))).collect();
        object.insert("options".to_owned(), Json::Object(options));
    }
    object.insert("backends".to_owned(), route.backends.iter().map(backend_json).collect());
    Json::Object(object)
}

/// A whole document.
pub fn document_json<'a>(routes: impl IntoIterator<Item = &'a RouteSpec>) -> Json {
    json!({ "routes": routes.into_iter().map(route_json).collect::<Vec<_>>() })
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Int(number) => json!(number),
        Value::Bool(flag) => json!(flag),
        Value::Decimal(_) => value.structured_json(),
        Value::Decimals(_) | Value::Metrics(_) | Value::Turns(_) | Value::RejectRules(_) => {
            match value.structured_json() {
                Json::Null => json!("none"),
                json => json,
            }
        }
        Value::Words(words) => json!(words),
        Value::Statuses(statuses) => json!(statuses),
        Value::Texts(texts) if texts.len() != 1 => json!(texts),
        Value::Ports(ports) if !ports.is_empty() => {
            ports.iter().map(|(port, number)| (port.to_string(), json!(number))).collect::<Map<_, _>>().into()
        }
        other => json!(other.to_string()),
    }
}

fn backend_json(backend: &BackendSpec) -> Json {
    let BackendSpec { id, name, max_concurrency, health_path, context_limit, dp_size, priority, models } = backend;
    let mut object = Map::new();
    object.insert("address".to_owned(), json!(id.as_str()));
    let fields = [
        ("name", name.as_ref().map(|text| json!(text))),
        ("max_concurrency", max_concurrency.map(|number| json!(number))),
        ("health_path", health_path.as_ref().map(|text| json!(text))),
        ("context_limit", context_limit.map(|number| json!(number))),
        ("dp_size", dp_size.map(|number| json!(number))),
        ("priority", (*priority != Priority::default()).then(|| priority.json())),
        ("models", (!models.is_empty()).then(|| json!(models))),
    ];
    for (key, value) in fields {
        if let Some(value) = value {
            object.insert(key.to_owned(), value);
        }
    }
    Json::Object(object)
}
