//! What an apply would change, field by field.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::raw::route_json;
use super::spec::RouteSpec;
use crate::ids::RouteName;

/// What happens to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is new.
    Added,
    /// Some of its fields differ.
    Changed,
    /// It goes.
    Removed,
}

/// One route's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// The route.
    pub route: RouteName,
    /// What happens to it.
    pub action: Action,
    /// Which fields, by name.
    pub fields: Vec<FieldChange>,
}

/// One field's change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// `options.max_waiting`, `backends[127.0.0.1:19001].name`.
    pub field: String,
    /// Absent when the field is new.
    pub before: Option<String>,
    /// Absent when the field goes.
    pub after: Option<String>,
}

/// The changes from `before` to `after`, by route name. `None` stands for "no such route".
pub fn diff_route(before: Option<&RouteSpec>, after: Option<&RouteSpec>) -> Option<RouteChange> {
    let action = match (before, after) {
        (None, Some(_)) => Action::Added,
        (Some(_), None) => Action::Removed,
        (Some(old), Some(new)) if old != new => Action::Changed,
        _ => return None,
    };
    let route = after.or(before)?.name.clone();
    Some(RouteChange { route, action, fields: diff_fields(before, after) })
}

fn diff_fields(before: Option<&RouteSpec>, after: Option<&RouteSpec>) -> Vec<FieldChange> {
    let old = before.map(flatten).unwrap_or_default();
    let new = after.map(flatten).unwrap_or_default();
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .map(|name| FieldChange { field: name.clone(), before: old.get(name).cloned(), after: new.get(name).cloned() })
        .collect()
}

/// Every field of a route's document by its path; backends by address, so that their order does not matter.
fn flatten(route: &RouteSpec) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let Json::Object(object) = route_json(route) else {
        return fields;
    };
    for (key, value) in object {
        match (key.as_str(), value) {
            ("name", _) => {}
            ("options", Json::Object(options)) => {
                fields.extend(options.into_iter().map(|(name, value)| (format!("options.{name}"), text(&value))));
            }
            ("backends", Json::Array(backends)) => {
                for backend in backends {
                    let address = backend.get("address").map(text).unwrap_or_default();
                    let own = backend.as_object().into_iter().flatten();
                    fields.extend(own.map(|(name, value)| (format!("backends[{address}].{name}"), text(value))));
                }
            }
            (_, value) => {
                fields.insert(key, text(&value));
            }
        }
    }
    fields
}

fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::parse_route;
    use serde_json::json;

    #[test]
    fn fields_are_named_and_order_does_not_matter() {
        let old =
            parse_route(&json!({"name": "a", "options": {"max_waiting": 1}, "backends": ["h:1", "h:2"]})).unwrap();
        let new = parse_route(
            &json!({"name": "a", "default": true, "options": {"max_waiting": 2}, "backends": ["h:2", {"address": "h:3", "name": "x"}]}),
        )
        .unwrap();
        let change = diff_route(Some(&old), Some(&new)).unwrap();
        assert_eq!(change.action, Action::Changed);
        let fields: Vec<_> =
            change.fields.iter().map(|f| (f.field.as_str(), f.before.as_deref(), f.after.as_deref())).collect();
        assert_eq!(
            fields,
            [
                ("backends[h:1].address", Some("h:1"), None),
                ("backends[h:3].address", None, Some("h:3")),
                ("backends[h:3].name", None, Some("x")),
                ("default", None, Some("true")),
                ("options.max_waiting", Some("1"), Some("2")),
            ]
        );
        assert_eq!(diff_route(Some(&old), Some(&old)), None);
        assert_eq!(diff_route(None, Some(&new)).unwrap().action, Action::Added);
        assert_eq!(diff_route(Some(&new), None).unwrap().action, Action::Removed);
    }
}
