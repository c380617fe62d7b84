//! The current items, each with the version at which it last changed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use router_proto::v1;
use tokio::sync::watch;

use super::delta::{self, Versioned};

/// Tombstones kept; a replica that is further behind gets a full snapshot.
const MAX_TOMBSTONES: usize = 10_000;

/// Holds the items and tells watchers of each new version.
pub struct SnapshotHub {
    items: Mutex<Items>,
    version: watch::Sender<u64>,
}

/// Everything that a snapshot carries.
pub(super) struct Items {
    pub version: u64,
    /// Deltas from before this version can't be told any more.
    pub oldest: u64,
    pub epoch: u64,
    pub settings: v1::Settings,
    pub control_planes: Vec<v1::ControlPlane>,
    pub routes: BTreeMap<String, Versioned<v1::Route>>,
    pub keys: BTreeMap<String, Versioned<v1::Key>>,
}

impl SnapshotHub {
    /// With no routes and no keys.
    pub fn new(epoch: u64, fingerprint_key: [u8; 32], address: String) -> Self {
        let items = Items {
            version: 1,
            oldest: 1,
            epoch,
            settings: v1::Settings { fingerprint_key: fingerprint_key.to_vec().into() },
            control_planes: vec![v1::ControlPlane { address, routes: Vec::new() }],
            routes: BTreeMap::new(),
            keys: BTreeMap::new(),
        };
        Self { items: Mutex::new(items), version: watch::Sender::new(1) }
    }

    /// Stores a route; nothing happens when it is as before.
    pub fn put_route(&self, route: v1::Route) {
        self.change(|items, version| delta::put(&mut items.routes, route.name.clone(), route, version));
    }

    /// Takes a route out.
    pub fn remove_route(&self, name: &str) {
        self.change(|items, version| delta::remove(&mut items.routes, name, version));
    }

    /// Takes keys out and stores others, in one version: replicas see all of it at once. They take out first, so that a secret
    /// that changes its key is never unknown between.
    pub fn change_keys(&self, remove: &[String], put: Vec<v1::Key>) {
        self.change(|items, version| {
            let mut has_changed = false;
            for id in remove {
                has_changed |= delta::remove(&mut items.keys, id, version);
            }
            for key in put {
                has_changed |= delta::put(&mut items.keys, key.id.clone(), key, version);
            }
            has_changed
        });
    }

    /// What keys fingerprints. A secret.
    pub fn fingerprint_key(&self) -> bytes::Bytes {
        self.items.lock().settings.fingerprint_key.clone()
    }

    /// Follows the version.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The version now.
    pub fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// What has changed since a version; everything for version 0 and for one that is too old.
    pub fn since(&self, known: u64) -> v1::Snapshot {
        delta::since(&self.items.lock(), known)
    }

    fn change(&self, change: impl FnOnce(&mut Items, u64) -> bool) {
        let mut items = self.items.lock();
        let version = items.version + 1;
        if !change(&mut items, version) {
            return;
        }
        items.version = version;
        let routes = delta::prune(&mut items.routes, MAX_TOMBSTONES);
        let keys = delta::prune(&mut items.keys, MAX_TOMBSTONES);
        items.oldest = items.oldest.max(routes).max(keys);
        // Under the lock, so that versions are told in order.
        self.version.send_replace(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(name: &str, is_default: bool) -> v1::Route {
        v1::Route { name: name.to_owned(), is_default, ..v1::Route::default() }
    }

    fn key(id: &str) -> v1::Key {
        v1::Key { id: id.to_owned(), ..v1::Key::default() }
    }

    fn names(snapshot: &v1::Snapshot) -> Vec<&str> {
        snapshot.routes.iter().map(|route| route.name.as_str()).collect()
    }

    #[test]
    fn full_first_then_what_has_changed() {
        let hub = SnapshotHub::new(3, [7; 32], "here".to_owned());
        hub.put_route(route("a", false));
        hub.put_route(route("b", false));
        let full = hub.since(0);
        assert!(full.full && full.settings.is_some() && full.epoch == 3);
        assert_eq!(names(&full), ["a", "b"]);

        hub.put_route(route("b", true));
        hub.remove_route("a");
        hub.change_keys(&[], vec![key("k")]);
        let delta = hub.since(full.version);
        assert!(!delta.full && delta.settings.is_none());
        assert_eq!(names(&delta), ["b"]);
        assert_eq!(delta.removed_routes, ["a"]);
        assert_eq!(delta.keys.len(), 1);

        hub.change_keys(&["k".to_owned()], vec![key("l"), key("m")]);
        let delta = hub.since(delta.version);
        assert_eq!((delta.removed_keys.len(), delta.keys.len()), (1, 2), "one version tells all of it");
        assert_eq!(delta.removed_keys, ["k"]);
        assert_eq!(hub.version(), hub.since(0).version);
    }

    #[test]
    fn no_change_makes_no_version() {
        let hub = SnapshotHub::new(1, [7; 32], String::new());
        hub.put_route(route("a", false));
        let before = hub.version();
        hub.put_route(route("a", false));
        hub.remove_route("nobody");
        assert_eq!(hub.version(), before);
    }

    #[test]
    fn a_replica_that_is_too_far_behind_gets_everything() {
        let hub = SnapshotHub::new(1, [7; 32], String::new());
        hub.put_route(route("a", false));
        let old = hub.version();
        for number in 0..=MAX_TOMBSTONES {
            let id = number.to_string();
            hub.change_keys(&[], vec![key(&id)]);
            hub.change_keys(&[id], vec![]);
        }
        assert!(hub.since(old).full);
        assert!(!hub.since(hub.version()).full);
        assert!(hub.since(u64::MAX).full, "a version of another epoch");
    }
}
