//! The snapshot in force. Immutable once published; a request reads it once and keeps its `Arc`. Written by
//! [`super::follow`] alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderName, HeaderValue};
use router_policy::header::SESSION_TURN;
use router_policy::ids::RouteName;
use router_policy::option::catalogue::SESSION_SOURCES;
use router_policy::option::{AuthMode, RouteOptions};
use router_policy::route::RouteSpec;
use router_policy::session::Fingerprinter;
use router_policy::toggle::Switch;
use router_proto::v1;
use tokio::sync::watch;

use crate::metrics::{BackendMetrics, Metrics, RouteMetrics};

/// One route, ready for the request path.
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pub(crate) name: RouteName,
    pub(crate) is_default: bool,
    pub(crate) options: RouteOptions,
    /// Headers that name a session: the route's own and all known ones. No backend sees them.
    pub(crate) session_headers: Vec<HeaderName>,
    /// Sessions are ranked by turn (`session_prio`, or the switch of that name).
    pub(crate) ranks_turns: bool,
    /// The models that have a pool, sorted; `None` on a route with one pool for all.
    pub(crate) models: Option<Vec<String>>,
    /// In the order of the document.
    pub(crate) backends: Vec<BackendEntry>,
    /// `host:port` → its place in `backends`.
    places: HashMap<Arc<str>, usize>,
    pub(crate) metrics: Arc<RouteMetrics>,
}

/// What a replica knows about a backend.
#[derive(Debug, Clone)]
pub(crate) struct BackendEntry {
    /// `host:port`
    pub(crate) address: Arc<str>,
    /// `Host` upstream.
    pub(crate) host: HeaderValue,
    /// `X-Routed-Peer`: the backend's name, or its address.
    pub(crate) peer: HeaderValue,
    /// Nothing stood in its way when the control plane said so last.
    pub(crate) is_admitted: bool,
    /// The context window in tokens that it is known to have.
    pub(crate) context_limit: Option<u64>,
    /// The models that it serves; empty for all.
    models: Vec<String>,
    pub(crate) metrics: Arc<BackendMetrics>,
}

impl RouteEntry {
    fn new(message: &v1::Route, metrics: &Metrics) -> Result<Self, router_proto::convert::InvalidMessage> {
        let spec = RouteSpec::try_from(message)?;
        let options = spec.options();
        let mut session_headers: Vec<HeaderName> = options.session_sources.headers().cloned().collect();
        let known = SESSION_SOURCES.iter().filter_map(|source| source.strip_prefix("header."));
        for name in known.map(HeaderName::from_static) {
            if !session_headers.contains(&name) {
                session_headers.push(name);
            }
        }
        let switched = message.switches.get(Switch::SessionPrio.name()).map(|word| word == "on");
        let ranks_turns = switched.unwrap_or(options.flow.session_prio);
        // Where it means nothing it is a header like any other.
        if ranks_turns {
            session_headers.push(SESSION_TURN);
        }
        let models = spec.is_by_model().then(|| spec.models().into_iter().map(str::to_owned).collect());
        // Each backend of the spec was made of the message's at the same place.
        let stated = spec.backends.iter().zip(&message.backends);
        let backends: Vec<BackendEntry> = stated
            .map(|(backend, stated)| BackendEntry {
                is_admitted: stated.condition.is_none_or(|condition| !is_in_the_way(condition)),
                context_limit: backend.context_limit,
                models: backend.models.clone(),
                metrics: metrics.backend(&spec.name, backend.id.as_str()),
                ..BackendEntry::new(backend.id.as_str(), backend.name.as_deref())
            })
            .collect();
        let places =
            backends.iter().enumerate().map(|(place, backend)| (Arc::clone(&backend.address), place)).collect();
        let metrics = metrics.route(&spec.name);
        Ok(Self {
            name: spec.name,
            is_default: spec.is_default,
            options,
            session_headers,
            ranks_turns,
            models,
            backends,
            places,
            metrics,
        })
    }

    /// The backend of a grant. One that the snapshot doesn't know yet (the grant was faster) goes by its address.
    pub(crate) fn backend(&self, address: &str) -> Cow<'_, BackendEntry> {
        match self.places.get(address).and_then(|place| self.backends.get(*place)) {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(BackendEntry::new(address, None)),
        }
    }

    /// The backends that serve a model, in the order of the document.
    pub(crate) fn pool(&self, model: &str) -> impl Iterator<Item = &BackendEntry> {
        self.backends.iter().filter(move |backend| {
            // A route is by model as a whole, so an empty list there serves none.
            self.models.is_none() || backend.models.iter().any(|served| served == model)
        })
    }
}

impl BackendEntry {
    fn new(address: &str, name: Option<&str>) -> Self {
        let host = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("backend"));
        let peer = name.and_then(|name| HeaderValue::from_str(name).ok()).unwrap_or_else(|| host.clone());
        Self {
            address: address.into(),
            host,
            peer,
            is_admitted: false,
            context_limit: None,
            models: Vec::new(),
            metrics: Arc::default(),
        }
    }
}

/// Whether the backend is kept from new requests.
fn is_in_the_way(condition: v1::Condition) -> bool {
    let v1::Condition { unhealthy, draining, banned, removed } = condition;
    unhealthy || draining || banned || removed
}

/// One moment's configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    routes: HashMap<String, Arc<RouteEntry>>,
    default: Option<Arc<RouteEntry>>,
    /// SHA-256 of the secret → the key's id.
    keys: HashMap<[u8; 32], Arc<str>>,
    /// The key's id → its SHA-256, for removal.
    key_hashes: HashMap<Arc<str>, [u8; 32]>,
    pub(crate) fingerprinter: Option<Fingerprinter>,
}

impl Snapshot {
    pub(crate) fn route(&self, name: &str) -> Option<&Arc<RouteEntry>> {
        self.routes.get(name)
    }

    pub(crate) fn default_route(&self) -> Option<&Arc<RouteEntry>> {
        self.default.as_ref()
    }

    /// The id of the key with this SHA-256.
    pub(crate) fn key_id(&self, sha256: &[u8; 32]) -> Option<&Arc<str>> {
        self.keys.get(sha256)
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The snapshot after `message`. A route or key that can't be understood is passed over and logged: the rest of the
    /// fleet's configuration is not held up by it.
    pub(crate) fn apply(&self, message: &v1::Snapshot, metrics: &Metrics) -> Self {
        let mut next = if message.full { Self::default() } else { self.clone() };
        next.version = message.version;
        for name in &message.removed_routes {
            next.routes.remove(name);
        }
        for route in &message.routes {
            match RouteEntry::new(route, metrics) {
                Ok(entry) => {
                    next.routes.insert(route.name.clone(), Arc::new(entry));
                }
                Err(error) => tracing::warn!(%error, "route in the snapshot passed over"),
            }
        }
        next.default = next.routes.values().filter(|route| route.is_default).min_by_key(|route| &route.name).cloned();
        for id in &message.removed_keys {
            if let Some(hash) = next.key_hashes.remove(id.as_str()) {
                next.forget_hash(id, &hash);
            }
        }
        for key in &message.keys {
            let Ok(hash) = <[u8; 32]>::try_from(&key.sha256[..]) else {
                tracing::warn!(key = key.id, "key in the snapshot has no 32 byte hash; passed over");
                continue;
            };
            let id: Arc<str> = key.id.as_str().into();
            if let Some(old) = next.key_hashes.insert(Arc::clone(&id), hash) {
                next.forget_hash(&id, &old);
            }
            next.keys.insert(hash, id);
        }
        if let Some(settings) = &message.settings {
            next.fingerprinter = Fingerprinter::new(&settings.fingerprint_key);
        }
        metrics.keep_backends(|route, address| {
            next.routes.get(route.as_str()).is_some_and(|entry| entry.places.contains_key(address))
        });
        next.report_open_routes();
        next
    }

    /// Ends a key's hash, unless another key has it by now.
    fn forget_hash(&mut self, id: &str, hash: &[u8; 32]) {
        if self.keys.get(hash).is_some_and(|holder| holder.as_ref() == id) {
            self.keys.remove(hash);
        }
    }

    /// routing.md §11: a route that is open because nobody made a key is reported loudly.
    fn report_open_routes(&self) {
        let is_open = |route: &&Arc<RouteEntry>| route.options.auth == AuthMode::OpenIfUnconfigured;
        if !self.has_keys() {
            for route in self.routes.values().filter(is_open) {
                tracing::warn!(route = %route.name, "open to everybody: auth is open-if-unconfigured and no key exists");
            }
        }
    }
}

/// Holds the snapshot in force.
#[derive(Debug)]
pub(crate) struct SnapshotStore {
    current: ArcSwapOption<Snapshot>,
    arrived: watch::Sender<bool>,
}

impl SnapshotStore {
    pub(crate) fn new() -> Self {
        Self { current: ArcSwapOption::empty(), arrived: watch::Sender::new(false) }
    }

    /// The snapshot, once one has arrived.
    pub(crate) fn load(&self) -> Option<Arc<Snapshot>> {
        self.current.load_full()
    }

    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.current.store(Some(Arc::new(snapshot)));
        self.arrived.send_replace(true);
    }

    /// Ends once there is a snapshot.
    pub(crate) async fn arrived(&self) {
        // The sender lives in `self`, so this can't fail.
        let _ = self.arrived.subscribe().wait_for(|arrived| *arrived).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(name: &str, is_default: bool) -> v1::Route {
        let backends = vec![v1::Backend { address: "h:1".into(), name: "one".into(), ..Default::default() }];
        v1::Route { name: name.into(), is_default, backends, ..Default::default() }
    }

    fn key(id: &str, byte: u8) -> v1::Key {
        v1::Key { id: id.into(), name: String::new(), sha256: vec![byte; 32].into() }
    }

    #[test]
    fn full_then_deltas_then_full_again() {
        let metrics = Metrics::new();
        let full = v1::Snapshot {
            version: 1,
            full: true,
            routes: vec![route("a", true), route("b", false), route("NOT VALID", false)],
            keys: vec![key("k1", 1), key("k2", 2)],
            settings: Some(v1::Settings { fingerprint_key: vec![7; 32].into() }),
            ..Default::default()
        };
        let first = Snapshot::default().apply(&full, &metrics);
        assert_eq!(first.default_route().unwrap().name.as_str(), "a");
        assert!(first.route("b").is_some() && first.route("NOT VALID").is_none());
        assert_eq!(first.route("b").unwrap().backend("h:1").peer, "one");
        assert_eq!(first.route("b").unwrap().backend("h:2").peer, "h:2");

        let delta = v1::Snapshot {
            version: 2,
            routes: vec![route("b", true)],
            removed_routes: vec!["a".into()],
            keys: vec![key("k2", 3)],
            removed_keys: vec!["k1".into()],
            ..Default::default()
        };
        let second = first.apply(&delta, &metrics);
        assert_eq!(second.version, 2);
        assert_eq!(second.default_route().unwrap().name.as_str(), "b");
        assert!(second.route("a").is_none());
        assert!(second.key_id(&[1; 32]).is_none() && second.key_id(&[2; 32]).is_none());
        assert_eq!(second.key_id(&[3; 32]).unwrap().as_ref(), "k2");
        assert!(second.fingerprinter.is_some(), "settings stay until they change");
        assert!(first.route("a").is_some(), "a published snapshot never changes");

        let third = second.apply(&v1::Snapshot { version: 1, full: true, ..Default::default() }, &metrics);
        assert!(third.default_route().is_none() && !third.has_keys());
    }

    #[test]
    fn a_hash_that_another_key_has_by_now_outlives_the_first_one() {
        let metrics = Metrics::new();
        let delta = |keys: Vec<v1::Key>, removed: &[&str]| v1::Snapshot {
            keys,
            removed_keys: removed.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        let both = Snapshot::default().apply(&delta(vec![key("first", 1)], &[]), &metrics);
        let both = both.apply(&delta(vec![key("second", 1)], &[]), &metrics);
        let holder = |snapshot: &Snapshot| snapshot.key_id(&[1; 32]).map(ToString::to_string);
        assert_eq!(holder(&both).as_deref(), Some("second"));
        let removed = both.apply(&delta(vec![], &["first"]), &metrics);
        assert_eq!(holder(&removed).as_deref(), Some("second"));
        let changed = both.apply(&delta(vec![key("first", 2)], &[]), &metrics);
        assert_eq!(holder(&changed).as_deref(), Some("second"));
        assert_eq!(holder(&both.apply(&delta(vec![], &["second"]), &metrics)), None, "the control");
    }

    #[test]
    fn backends_keep_their_order_and_only_those_with_nothing_in_their_way_are_admitted() {
        let none = v1::Condition::default();
        let conditions = [
            None,
            Some(none),
            Some(v1::Condition { unhealthy: true, ..none }),
            Some(v1::Condition { draining: true, ..none }),
            Some(v1::Condition { banned: true, ..none }),
            Some(v1::Condition { removed: true, ..none }),
        ];
        let mut message = route("a", false);
        message.backends = (1_u64..)
            .zip(conditions)
            .map(|(number, condition)| v1::Backend {
                address: format!("h:{number}"),
                condition,
                context_limit: number - 1,
                ..Default::default()
            })
            .collect();
        let entry = RouteEntry::new(&message, &Metrics::new()).unwrap();
        let shown: Vec<_> = entry
            .backends
            .iter()
            .map(|backend| (backend.address.as_ref(), backend.is_admitted, backend.context_limit))
            .collect();
        assert_eq!(shown[..3], [("h:1", true, None), ("h:2", true, Some(1)), ("h:3", false, Some(2))]);
        assert!(shown[3..].iter().all(|(_, is_admitted, _)| !is_admitted));
        assert_eq!(entry.backend("h:2").context_limit, Some(1));
    }

    #[test]
    fn limits_9_the_switch_comes_before_the_option_and_the_header_is_a_session_s_only_while_it_is_on() {
        for (option, switch, is_on) in [
            (None, None, false),
            (Some("true"), None, true),
            (Some("true"), Some("off"), false),
            (None, Some("on"), true),
        ] {
            let mut message = route("a", false);
            message.options.extend(option.map(|value| ("session_prio".to_owned(), value.to_owned())));
            message.switches.extend(switch.map(|value| ("session_prio".to_owned(), value.to_owned())));
            let entry = RouteEntry::new(&message, &Metrics::new()).unwrap();
            let is_stripped = entry.session_headers.contains(&SESSION_TURN);
            assert_eq!((entry.ranks_turns, is_stripped), (is_on, is_on), "{option:?} {switch:?}");
        }
    }

    #[test]
    fn pools_by_model_and_one_for_all() {
        let served = |address: &str, models: &[&str]| v1::Backend {
            address: address.into(),
            models: models.iter().map(|model| (*model).to_owned()).collect(),
            ..Default::default()
        };
        let mut message = route("a", false);
        message.backends = vec![served("h:1", &["b", "a"]), served("h:2", &["b"])];
        let by_model = RouteEntry::new(&message, &Metrics::new()).unwrap();
        let pool = |entry: &RouteEntry, model: &str| -> Vec<String> {
            entry.pool(model).map(|backend| backend.address.to_string()).collect()
        };
        assert_eq!(by_model.models.as_deref().unwrap(), ["a", "b"]);
        assert_eq!(pool(&by_model, "a"), ["h:1"]);
        assert_eq!(pool(&by_model, "b"), ["h:1", "h:2"]);
        assert!(pool(&by_model, "").is_empty());
        message.backends = vec![served("h:1", &[]), served("h:2", &[])];
        let flat = RouteEntry::new(&message, &Metrics::new()).unwrap();
        assert!(flat.models.is_none());
        assert_eq!(pool(&flat, "whatever"), ["h:1", "h:2"]);
    }

    #[test]
    fn series_of_a_backend_end_with_it() {
        let metrics = Metrics::new();
        let full = v1::Snapshot { full: true, routes: vec![route("a", true)], ..Default::default() };
        let first = Snapshot::default().apply(&full, &metrics);
        let line = r#"router_completion_tokens_total{route="a",backend="h:1"}"#;
        assert!(metrics.encode().contains(line));
        let again = first.apply(&v1::Snapshot { routes: vec![route("a", false)], ..Default::default() }, &metrics);
        assert!(metrics.encode().contains(line), "the control");
        let old = Arc::clone(&first.route("a").unwrap().backends[0].metrics);
        assert!(Arc::ptr_eq(&old, &again.route("a").unwrap().backends[0].metrics), "a change loses no counts");
        let mut moved = route("a", true);
        moved.backends[0].address = "h:2".into();
        again.apply(&v1::Snapshot { routes: vec![moved], ..Default::default() }, &metrics);
        old.ttft(std::time::Duration::ZERO);
        let left = metrics.encode();
        assert!(!left.contains(r#"backend="h:1""#) && left.contains(r#"backend="h:2""#), "{left}");
    }

    #[test]
    fn all_known_session_headers_are_stripped_whatever_the_route_reads() {
        let metrics = Metrics::new();
        let mut message = route("a", false);
        message.options.insert("session_sources".into(), "body.user".into());
        message.options.insert("extra_session_headers".into(), "x-smg-routing-key".into());
        let entry = RouteEntry::new(&message, &metrics).unwrap();
        for name in ["x-session-id", "x-session-affinity", "x-smg-routing-key"] {
            assert!(entry.session_headers.iter().any(|header| header == name), "{name}");
        }
    }
}
