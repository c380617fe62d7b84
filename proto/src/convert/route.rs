//! Routes as replicas get them.

use router_policy::ids::{BackendId, RouteName};
use router_policy::option::{OptionSet, Preset, Value};
use router_policy::route::validate::parse_stored_option;
use router_policy::route::{BackendSpec, Priority, RouteSpec};

use super::InvalidMessage;
use crate::v1;

/// The key under which a message carries the preset among the options.
const PRESET: &str = "preset";
/// The option whose reading takes time.
const RULES: &str = "reject_rules";

/// The route without its backends' states and what is set at run time; the caller fills those in.
impl From<&RouteSpec> for v1::Route {
    fn from(route: &RouteSpec) -> Self {
        let mut options: std::collections::HashMap<String, String> =
            route.set.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
        options.insert(PRESET.to_owned(), route.preset.name().to_owned());
        Self {
            name: route.name.to_string(),
            is_default: route.is_default,
            options,
            backends: Vec::new(),
            switches: std::collections::HashMap::new(),
        }
    }
}

impl TryFrom<&v1::Route> for RouteSpec {
    type Error = InvalidMessage;

    fn try_from(route: &v1::Route) -> Result<Self, InvalidMessage> {
        KnownRules::default().read_route(route).map(|(spec, _)| spec)
    }
}

/// A route's reject rules as they were read last. A route is told anew with every ban and every switch, and its rules, whose
/// patterns take time to make ready, are seldom other ones.
#[derive(Debug, Clone, Default)]
pub struct KnownRules(Option<(String, Value)>);

impl KnownRules {
    /// Reads a route; rules whose text is known are taken over as they are, with what was made ready of them. Beside it: what
    /// to keep for the next time.
    ///
    /// Options that this version does not know, or whose value it can't read, keep their default: a newer control plane may
    /// know more.
    ///
    /// # Errors
    /// A name or an address that is none.
    pub fn read_route(&self, route: &v1::Route) -> Result<(RouteSpec, Self), InvalidMessage> {
        let name = RouteName::new(&route.name).map_err(|error| InvalidMessage::new("route.name", error.to_string()))?;
        let preset = route.options.get(PRESET).and_then(|text| Preset::parse(text)).unwrap_or_default();
        let rules_text = route.options.get(RULES);
        let known = self.0.as_ref().filter(|(text, _)| rules_text == Some(text)).cloned();
        let read = |key: &String, text: &String| match (&known, key.as_str()) {
            (Some((_, rules)), RULES) => Some((RULES, rules.clone())),
            _ => parse_stored_option(key, &serde_json::Value::String(text.clone())),
        };
        let options = route.options.iter().filter(|(key, _)| *key != PRESET);
        let set: OptionSet = options.filter_map(|(key, text)| read(key, text)).collect();
        let backends = route.backends.iter().map(BackendSpec::try_from).collect::<Result<_, _>>()?;
        let rules = known.or_else(|| Some((rules_text?.clone(), set.get(RULES)?.clone())));
        Ok((RouteSpec { name, is_default: route.is_default, preset, set, backends }, Self(rules)))
    }
}

impl TryFrom<&v1::Backend> for BackendSpec {
    type Error = InvalidMessage;

    fn try_from(backend: &v1::Backend) -> Result<Self, InvalidMessage> {
        let id = BackendId::new(&backend.address)
            .map_err(|error| InvalidMessage::new("backend.address", error.to_string()))?;
        Ok(Self {
            id,
            name: (!backend.name.is_empty()).then(|| backend.name.clone()),
            max_concurrency: Some(backend.limit),
            health_path: None,
            context_limit: (backend.context_limit != 0).then_some(backend.context_limit),
            dp_size: (backend.dp_size != 0).then_some(backend.dp_size),
            priority: Priority::from_thousandths(backend.priority_thousandths),
            models: backend.models.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use router_policy::route::parse_route;

    use super::*;

    #[test]
    fn a_route_s_options_survive_the_wire_and_unknown_ones_are_passed_over() {
        let document = serde_json::json!({"name": "chat", "default": true, "preset": "gateway",
            "options": {"max_waiting": 3, "retry_on": ["connect", "503"], "session_idle_ttl": "none"}});
        let route = parse_route(&document).unwrap();
        let mut message = v1::Route::from(&route);
        message.options.insert("from_the_future".to_owned(), "1".to_owned());
        assert_eq!(RouteSpec::try_from(&message).unwrap(), route);
        message.name = "NO".to_owned();
        assert!(RouteSpec::try_from(&message).is_err());
    }
}
