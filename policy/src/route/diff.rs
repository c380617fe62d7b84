//! What an apply would change, field by field.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::raw::route_json;
use super::spec::RouteSpec;
use crate::ids::RouteName;
use crate::option::resolved::effective;

/// Ends the name of an option that another preset changes and no document states.
const BY_PRESET: &str = " (by the preset)";

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
    /// `options.max_waiting`, `backends[127.0.0.1:19001].name`; `options.affinity (by the preset)` for a value that only
    /// the preset changes.
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
    let mut old = before.map(flatten).unwrap_or_default();
    let mut new = after.map(flatten).unwrap_or_default();
    if let (Some(before), Some(after)) = (before, after)
        && before.preset != after.preset
    {
        old.extend(left_to_the_preset(before, after));
        new.extend(left_to_the_preset(after, before));
    }
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .map(|name| FieldChange { field: name.clone(), before: old.get(name).cloned(), after: new.get(name).cloned() })
        .collect()
}

/// The values that `route`'s preset gives to options that neither document states: what a document states stands in the
/// comparison already.
fn left_to_the_preset(route: &RouteSpec, other: &RouteSpec) -> impl Iterator<Item = (String, String)> {
    effective(route.preset, &route.set)
        .into_iter()
        .filter(|(name, _, is_set)| !is_set && !other.set.contains_key(name))
        .map(|(name, value, _)| (format!("options.{name}{BY_PRESET}"), value))
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

    #[test]
    fn another_preset_shows_what_it_changes() {
        let route = |preset: &str, options: Json| {
            parse_route(&json!({"name": "a", "preset": preset, "options": options, "backends": ["h:1"]})).unwrap()
        };
        let names = |change: &RouteChange| change.fields.iter().map(|field| field.field.clone()).collect::<Vec<_>>();
        let set = json!({"max_concurrency": 20, "queue_timeout": "7s"});
        let (old, new) = (route("openresty", set.clone()), route("none", set));
        let change = diff_route(Some(&old), Some(&new)).unwrap();
        let of = |name: &str| change.fields.iter().find(|field| field.field.starts_with(name));
        let affinity = of("options.affinity").unwrap();
        assert_eq!(affinity.field, "options.affinity (by the preset)");
        assert_eq!((affinity.before.as_deref(), affinity.after.as_deref()), (Some("hash"), Some("binding")));
        assert!(names(&change).contains(&"preset".to_owned()));
        assert!(change.fields.iter().all(|field| field.before != field.after), "{change:?}");
        // Stated in the document: the preset has no say.
        assert_eq!((of("options.max_concurrency"), of("options.queue_timeout")), (None, None));
        // Control: unstated, it has one.
        let change = diff_route(Some(&route("openresty", json!({}))), Some(&route("none", json!({})))).unwrap();
        assert!(names(&change).contains(&"options.max_concurrency (by the preset)".to_owned()), "{change:?}");
        // One document states it: it is told once, as the document's.
        let change = diff_route(Some(&old), Some(&route("none", json!({})))).unwrap();
        let told: Vec<_> = names(&change).into_iter().filter(|name| name.contains("max_concurrency")).collect();
        assert_eq!(told, ["options.max_concurrency"]);
        // The same preset, a new route and one that goes: documents alone.
        for (before, after) in
            [(Some(&old), Some(&route("openresty", json!({})))), (None, Some(&old)), (Some(&old), None)]
        {
            let change = diff_route(before, after).unwrap();
            assert!(names(&change).iter().all(|name| !name.ends_with(BY_PRESET)), "{change:?}");
        }
    }
}
