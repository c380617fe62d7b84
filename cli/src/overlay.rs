//! A route as flags describe it, laid over what is stored of it: what no flag names stays as it is. Used by `up` and by
//! `import gateway`. Pure: the callers read and store documents.

use std::collections::BTreeMap;

use router_policy::ids::BackendId;
use router_policy::option::Value;
use router_policy::route::validate::parse_option;
use router_policy::route::{BackendSpec, parse_document};
use serde_json::{Map, Value as Json, json};

use crate::args::Assignment;
use crate::backends::Backend;
use crate::document::options_json;
use crate::gateway_flags::Settings;

/// The session gateway's backends when none is given (gateway.md §1).
pub(crate) const DEFAULT_PORTS: [u16; 2] = [19001, 19002];

/// The option that speaks of backends by port.
const WINDOWS: &str = "backend_context_limits";

/// What a command line says of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overlay {
    /// The route.
    pub(crate) name: String,
    /// `none`, `gateway`, `openresty`; `None` leaves what is stored.
    pub(crate) preset: Option<String>,
    /// Options that are set; the others stay.
    pub(crate) options: Vec<Assignment>,
    /// Ports that the options name: each must be a backend's.
    pub(crate) context_ports: Vec<u16>,
    /// Data-parallel ranks by port.
    pub(crate) dp_sizes: BTreeMap<u16, u64>,
    /// All backends that the route shall have; empty leaves what is stored.
    pub(crate) backends: Vec<Backend>,
    /// The flags that speak of the route, for complaints.
    pub(crate) flags: Vec<&'static str>,
}

impl Overlay {
    /// A route that the gateway's flags describe; `set` comes from `--set`. An option may be stated by one of them only.
    pub(crate) fn new(name: &str, set: &[Assignment], settings: Settings, complaints: &mut Vec<String>) -> Self {
        let Settings { options, context_ports, dp_sizes, mut flags } = settings;
        for one in &options {
            if set.iter().any(|other| other.option == one.option) {
                complaints.push(format!("--set {}: a flag of its own sets it too; give one of them", one.option));
            }
        }
        if !set.is_empty() {
            flags.insert(0, "--set");
        }
        let options = set.iter().cloned().chain(options).collect();
        Self { name: name.to_owned(), options, context_ports, dp_sizes, flags, ..Self::default() }
    }

    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.flags.is_empty() && self.backends.is_empty() && self.preset.is_none()
    }

    /// The route's document over the stored ones (`{"routes": [...]}`, or null for none), checked.
    pub(crate) fn over(&self, stored: &Json) -> Result<Json, Vec<String>> {
        let routes = stored.get("routes").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let name_of = |route: &Json| route.get("name").and_then(Json::as_str).map(str::to_owned);
        let (own, others): (Vec<&Json>, Vec<&Json>) =
            routes.iter().partition(|route| name_of(route).as_deref() == Some(self.name.as_str()));
        let own = own.first().copied();
        let known = own.and_then(|route| route.get("backends")).and_then(Json::as_array).cloned().unwrap_or_default();
        let mut complaints: Vec<String> = self.twice().map(|twice| twice + " stands twice").into_iter().collect();
        let backends = match self.wanted(own.is_some(), &others) {
            Some(wanted) => wanted.iter().map(|backend| backend.document(known_of(backend, &known))).collect(),
            None => known,
        };
        let mut route: Map<String, Json> = own.and_then(Json::as_object).cloned().unwrap_or_default();
        if own.is_none() && backends.is_empty() {
            complaints.push(self.nothing_to_change(&others));
        }
        route.insert("name".to_owned(), json!(self.name));
        if !self.backends.is_empty() || own.is_none() {
            // An operator may have made another route the default since.
            let is_taken = others.iter().any(|route| route.get("default").and_then(Json::as_bool) == Some(true));
            route.insert("default".to_owned(), json!(!is_taken));
        }
        if let Some(preset) = &self.preset {
            route.insert("preset".to_owned(), json!(preset));
        }
        let mut options = route.get("options").and_then(Json::as_object).cloned().unwrap_or_default();
        if !self.backends.is_empty() {
            forget_windows_of_others(&mut options, &backends);
        }
        options.extend(options_json(&self.options).as_object().cloned().unwrap_or_default());
        route.insert("options".to_owned(), Json::Object(options));
        if complaints.is_empty() {
            let backends = self.with_ranks(backends, &mut complaints);
            route.insert("backends".to_owned(), Json::Array(backends));
        }
        let route = Json::Object(route);
        if complaints.is_empty()
            && let Err(problems) = parse_document(&route)
        {
            complaints.extend(problems.0.iter().map(|one| format!("{}: {}", one.field, one.problem)));
        }
        if complaints.is_empty() { Ok(route) } else { Err(complaints) }
    }

    /// The backends that the route shall have; `None` leaves those that it has.
    fn wanted(&self, is_stored: bool, others: &[&Json]) -> Option<Vec<Backend>> {
        if !self.backends.is_empty() {
            return Some(self.backends.clone());
        }
        let is_first_gateway = !is_stored && others.is_empty() && self.preset.as_deref() == Some("gateway");
        is_first_gateway.then(|| DEFAULT_PORTS.iter().map(|port| Backend::local(*port)).collect())
    }

    fn twice(&self) -> Option<String> {
        let stands_before =
            |index: usize, one: &Backend| self.backends.iter().take(index).any(|o| o.address == one.address);
        let again = self.backends.iter().enumerate().find(|(index, one)| stands_before(*index, one));
        again.map(|(_, one)| format!("--backend, --backend-port: {}", one.address))
    }

    fn nothing_to_change(&self, others: &[&Json]) -> String {
        let preset = self.preset.as_ref().map(|_| "--preset");
        let flags: Vec<&str> = preset.into_iter().chain(self.flags.iter().copied()).collect();
        let flags = flags.join(", ");
        let name = &self.name;
        if others.is_empty() {
            return format!(
                "{flags}: no route is stored yet; give its backends with --backend or --backend-port, or --preset gateway for \
                 the ports {} and {} of this machine",
                DEFAULT_PORTS[0], DEFAULT_PORTS[1]
            );
        }
        format!(
            "{flags}: no stored route is called {name}; give backends to make one, or change another with `routerctl route set`"
        )
    }

    /// Adds data-parallel ranks, and checks that every port that was named is a backend's.
    fn with_ranks(&self, mut backends: Vec<Json>, complaints: &mut Vec<String>) -> Vec<Json> {
        let ports: Vec<u16> = backends.iter().filter_map(port_of).collect();
        let named = self.context_ports.iter().map(|port| ("--backend-context-limit", port));
        for (flag, port) in named.chain(self.dp_sizes.keys().map(|port| ("--backend-dp-size", port))) {
            if !ports.contains(port) {
                let known: Vec<String> = ports.iter().map(ToString::to_string).collect();
                complaints.push(format!("{flag}: no backend has port {port}; there are: {}", known.join(", ")));
            }
        }
        for backend in &mut backends {
            let Some(ranks) = port_of(backend).and_then(|port| self.dp_sizes.get(&port)) else { continue };
            let mut fields = match &*backend {
                Json::Object(fields) => fields.clone(),
                address => Map::from_iter([("address".to_owned(), address.clone())]),
            };
            fields.insert("dp_size".to_owned(), json!(ranks));
            *backend = Json::Object(fields);
        }
        backends
    }
}

/// Takes stored windows out whose backends the flags take out. A port that a flag names is not touched: that one must be there.
fn forget_windows_of_others(stored: &mut Map<String, Json>, backends: &[Json]) {
    let Some(Ok((_, Value::Ports(windows)))) = stored.get(WINDOWS).map(|json| parse_option(WINDOWS, json)) else {
        return;
    };
    let mut kept = windows.clone();
    kept.retain(|port, _| backends.iter().any(|backend| port_of(backend) == Some(*port)));
    if kept.len() == windows.len() {
        return;
    }
    if kept.is_empty() {
        stored.remove(WINDOWS);
    } else {
        stored.insert(WINDOWS.to_owned(), json!(Value::Ports(kept).to_string()));
    }
}

/// The port of a backend of a document.
fn port_of(backend: &Json) -> Option<u16> {
    let address = backend.as_str().or_else(|| backend.get("address").and_then(Json::as_str));
    address.and_then(|text| BackendId::new(text).ok()).map(|id| id.port())
}

/// What is stored of a backend.
fn known_of<'a>(backend: &Backend, known: &'a [Json]) -> Option<&'a Json> {
    known.iter().find(|one| one.get("address").and_then(Json::as_str) == Some(backend.address.as_str()))
}

/// The backends of a checked document of one route.
pub(crate) fn backends_of(route: &Json) -> Vec<BackendSpec> {
    parse_document(route)
        .ok()
        .and_then(|routes| routes.into_iter().next())
        .map(|route| route.backends)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(option: &str, value: &str) -> Assignment {
        Assignment { option: option.to_owned(), value: value.to_owned() }
    }

    fn overlay() -> Overlay {
        Overlay { name: "default".to_owned(), ..Overlay::default() }
    }

    fn stored() -> Json {
        json!({"routes": [{"name": "default", "preset": "gateway", "options": {"max_waiting": 9, "on_full": "refuse"},
            "backends": [{"address": "127.0.0.1:2", "name": "two"}, {"address": "127.0.0.1:9"}]}]})
    }

    #[test]
    fn given_backends_keep_what_is_stored_of_them() {
        let flags = vec!["--set"];
        let backends = vec![Backend::local(1), Backend::local(2)];
        let given = Overlay { options: vec![setting("max_waiting", "3")], backends, flags, ..overlay() };
        assert_eq!(
            given.over(&Json::Null).unwrap(),
            json!({"name": "default", "default": true, "options": {"max_waiting": "3"},
                "backends": ["127.0.0.1:1", "127.0.0.1:2"]})
        );
        assert_eq!(
            given.over(&stored()).unwrap(),
            json!({"name": "default", "default": true, "preset": "gateway",
                "options": {"max_waiting": "3", "on_full": "refuse"},
                "backends": ["127.0.0.1:1", {"address": "127.0.0.1:2", "name": "two"}]})
        );
        let other = json!({"routes": [{"name": "chat", "default": true, "backends": ["h:1"]}]});
        assert_eq!(given.over(&other).unwrap()["default"], json!(false));
    }

    #[test]
    fn what_flags_state_of_a_backend_goes_over_what_is_stored_of_it() {
        let stated = Map::from_iter([("priority".to_owned(), json!("10"))]);
        let two = Backend { fields: stated, ..Backend::local(2) };
        let given = Overlay { backends: vec![Backend::local(9), two], ..overlay() };
        assert_eq!(
            given.over(&stored()).unwrap()["backends"],
            json!([{"address": "127.0.0.1:9"}, {"address": "127.0.0.1:2", "name": "two", "priority": "10"}])
        );
    }

    #[test]
    fn flags_alone_change_the_stored_route_and_nothing_else_of_it() {
        let given = Overlay { options: vec![setting("max_waiting", "3")], flags: vec!["--max-waiting"], ..overlay() };
        assert_eq!(
            given.over(&stored()).unwrap(),
            json!({"name": "default", "preset": "gateway", "options": {"max_waiting": "3", "on_full": "refuse"},
                "backends": [{"address": "127.0.0.1:2", "name": "two"}, {"address": "127.0.0.1:9"}]})
        );
        let missing = given.over(&Json::Null).unwrap_err();
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].starts_with("--max-waiting: no route is stored yet; give its backends"), "{missing:?}");
        let other = json!({"routes": [{"name": "chat", "backends": ["h:1"]}]});
        let missing = given.over(&other).unwrap_err();
        assert!(missing[0].starts_with("--max-waiting: no stored route is called default; "), "{missing:?}");
    }

    #[test]
    fn the_gateway_preset_has_default_backends_for_the_first_route_only() {
        let given = Overlay { preset: Some("gateway".to_owned()), ..overlay() };
        assert_eq!(
            given.over(&Json::Null).unwrap(),
            json!({"name": "default", "default": true, "preset": "gateway", "options": {},
                "backends": ["127.0.0.1:19001", "127.0.0.1:19002"]})
        );
        assert_eq!(given.over(&stored()).unwrap()["backends"], stored()["routes"][0]["backends"]);
        let other = json!({"routes": [{"name": "chat", "backends": ["h:1"]}]});
        assert!(given.over(&other).unwrap_err()[0].starts_with("--preset: no stored route is called default"));
        let none = Overlay { preset: Some("none".to_owned()), ..overlay() };
        assert_eq!(none.over(&stored()).unwrap()["preset"], json!("none"));
    }

    #[test]
    fn ports_that_flags_name_must_be_backends() {
        let given = Overlay {
            backends: vec![Backend::local(1), Backend::at("gpu:2".to_owned())],
            context_ports: vec![2, 7],
            dp_sizes: BTreeMap::from([(1, 8), (9, 8)]),
            flags: vec!["--backend-context-limit", "--backend-dp-size"],
            ..overlay()
        };
        assert_eq!(
            given.over(&Json::Null).unwrap_err(),
            [
                "--backend-context-limit: no backend has port 7; there are: 1, 2",
                "--backend-dp-size: no backend has port 9; there are: 1, 2",
            ]
        );
        let given = Overlay { dp_sizes: BTreeMap::from([(2, 8)]), context_ports: vec![1], ..given };
        assert_eq!(
            given.over(&Json::Null).unwrap()["backends"],
            json!(["127.0.0.1:1", {"address": "gpu:2", "dp_size": 8}])
        );
    }

    #[test]
    fn windows_go_with_their_backends_and_not_with_a_typo() {
        let stored = |windows: Json| {
            json!({"routes": [{"name": "default", "options": {"backend_context_limits": windows},
                "backends": ["127.0.0.1:1", "127.0.0.1:2"]}]})
        };
        let fewer = Overlay { backends: vec![Backend::local(1)], ..overlay() };
        assert_eq!(fewer.over(&stored(json!({"2": 8192}))).unwrap()["options"], json!({}));
        assert_eq!(
            fewer.over(&stored(json!({"1": 4096, "2": 8192}))).unwrap()["options"],
            json!({"backend_context_limits": "1=4096"})
        );
        // Flags that say nothing of backends remove none.
        assert!(Overlay { flags: vec!["--max-waiting"], ..overlay() }.over(&stored(json!("7=1"))).is_err());
        let set = vec![setting("backend_context_limits", "2=8192")];
        let named = Overlay { options: set.clone(), flags: vec!["--set"], ..fewer.clone() };
        assert!(named.over(&stored(json!("2=8192"))).unwrap_err()[0].contains("no backend has port 2"));
        let named = Overlay { options: set, context_ports: vec![2], ..fewer };
        assert_eq!(
            named.over(&stored(json!("2=8192"))).unwrap_err(),
            ["--backend-context-limit: no backend has port 2; there are: 1"]
        );
    }

    #[test]
    fn a_backend_is_given_once() {
        let given = Overlay { backends: vec![Backend::local(1), Backend::local(2), Backend::local(1)], ..overlay() };
        assert_eq!(given.over(&Json::Null).unwrap_err(), ["--backend, --backend-port: 127.0.0.1:1 stands twice"]);
    }

    #[test]
    fn an_option_is_stated_once() {
        let mut complaints = Vec::new();
        let options = vec![setting("max_waiting", "3")];
        let settings = Settings { options, flags: vec!["--max-waiting"], ..Settings::default() };
        let made = Overlay::new("default", &[setting("max_waiting", "4")], settings, &mut complaints);
        assert_eq!(complaints, ["--set max_waiting: a flag of its own sets it too; give one of them"]);
        assert_eq!(made.flags, ["--set", "--max-waiting"]);
        assert!(!made.is_empty() && overlay().is_empty());
    }
}
