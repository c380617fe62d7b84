//! The snapshot in force. Immutable once published; a request reads it once and keeps its `Arc`. Written by
//! [`super::follow`] alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use router_policy::option::AuthMode;
use router_policy::session::Fingerprinter;
use router_proto::v1;
use tokio::sync::watch;

use super::route::RouteEntry;
use crate::metrics::Metrics;

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

    /// Of how many routes bodies are captured, and how many there are.
    pub(crate) fn captured_routes(&self) -> (usize, usize) {
        (self.routes.values().filter(|route| route.bodylog_pct > 0.0).count(), self.routes.len())
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
            next.routes.get(route.as_str()).is_some_and(|entry| entry.has_backend(address))
        });
        metrics.keep_rules_of(|route| next.routes.contains_key(route.as_str()));
        next.report_opened_routes(self);
        next
    }

    /// Ends a key's hash, unless another key has it by now.
    fn forget_hash(&mut self, id: &str, hash: &[u8; 32]) {
        if self.keys.get(hash).is_some_and(|holder| holder.as_ref() == id) {
            self.keys.remove(hash);
        }
    }

    /// routing.md §11: a route that is open because nobody made a key is reported loudly, once it is so.
    fn report_opened_routes(&self, before: &Self) {
        for route in self.routes.values().filter(|route| self.is_open_unconfigured(route)) {
            let was_open = before.route(route.name.as_str()).is_some_and(|old| before.is_open_unconfigured(old));
            if !was_open {
                tracing::warn!(route = %route.name, "open to everybody: auth is open-if-unconfigured and no key exists");
            }
        }
    }

    fn is_open_unconfigured(&self, route: &RouteEntry) -> bool {
        !self.has_keys() && route.options.auth == AuthMode::OpenIfUnconfigured
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

    /// The snapshot; when none has arrived yet, the first one, if it comes within `patience`.
    pub(crate) async fn first_within(&self, patience: Duration) -> Option<Arc<Snapshot>> {
        if let Some(snapshot) = self.load() {
            return Some(snapshot);
        }
        tokio::time::timeout(patience, self.arrived()).await.ok()?;
        self.load()
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
    fn rulings_7_every_route_is_captured_that_does_not_keep_out() {
        let out = [("bodylog_default_enabled".to_owned(), "false".to_owned())].into();
        let none = [("bodylog_default_pct".to_owned(), "0".to_owned())].into();
        let routes = vec![
            route("a", true),
            v1::Route { options: out, ..route("b", false) },
            v1::Route { options: none, ..route("c", false) },
        ];
        let snapshot =
            Snapshot::default().apply(&v1::Snapshot { full: true, routes, ..Default::default() }, &Metrics::new());
        assert_eq!(snapshot.captured_routes(), (1, 3));
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

    #[tokio::test(start_paused = true)]
    async fn the_first_snapshot_is_waited_for_and_not_for_ever() {
        let (store, patience) = (SnapshotStore::new(), Duration::from_secs(5));
        assert!(store.first_within(patience).await.is_none());
        let publish = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            store.publish(Snapshot::default());
        };
        let (found, ()) = tokio::join!(store.first_within(patience), publish);
        assert!(found.is_some());
        assert!(store.first_within(Duration::ZERO).await.is_some(), "one that is there is not waited for");
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
}
