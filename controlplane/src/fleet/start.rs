//! From the stored state to a running fleet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use router_policy::ids::RouteName;
use router_policy::route::diff::diff_route;
use router_policy::route::validate::parse_stored;
use router_policy::route::{RouteChange, RouteSpec};
use tokio_util::sync::CancellationToken;

use super::Fleet;
use super::backend_state::StateFile;
use super::control_file::ControlFile;
use super::key_store::KeyStore;
use super::keys::Keys;
use crate::files::FileConfig;
use crate::files::health::FileHealth;
use crate::files::private_paths::{Guard, Guarded, Use};
use crate::metrics::Metrics;
use crate::pool::Context;
use crate::probe::schedule::Prober;
use crate::replicas::Replicas;
use crate::snapshot::SnapshotHub;
use crate::store::health::StoreHealth;
use crate::store::{LeaseRow, MarkKind, MarkRow, ReplicaRow, Store, Stored};

/// What a fleet is made of.
pub struct Parts {
    /// Storage.
    pub store: Arc<dyn Store>,
    /// Whether it answers.
    pub store_health: Arc<StoreHealth>,
    /// What pools share.
    pub context: Arc<Context>,
    /// What replicas know.
    pub hub: SnapshotHub,
    /// Probes.
    pub prober: Prober,
    /// Silence after which a replica loses its leases.
    pub lease_ttl: Duration,
    /// Key store, control file, backend state.
    pub files: FileConfig,
    /// Ends everything.
    pub shutdown: CancellationToken,
}

impl Fleet {
    /// Takes up what the database holds. Before anything is admitted, the caller lets the control file speak:
    /// [`Fleet::follow_control_file`].
    pub fn start(parts: Parts, stored: Stored) -> Self {
        let now = parts.context.clock.now();
        let mut specs = BTreeMap::new();
        let mut complaints = BTreeMap::new();
        for row in &stored.routes {
            let (spec, found) = read_document(&row.document);
            if !found.is_empty() {
                tracing::warn!(route = %row.name, ?found, "the stored document is not valid any more; its bad options have their defaults");
                complaints.insert(row.name.clone(), found);
            }
            if let Some(spec) = spec {
                specs.insert(spec.name.clone(), Arc::new(spec));
            }
        }
        let metrics = Metrics::new();
        let health = |flag, path: &Path| FileHealth::new(flag, path, metrics.file(flag));
        let files = parts.files;
        let unix_ms = parts.context.clock.unix_ms(now);
        let key_store = files.key_store.as_ref().map(|file| KeyStore::new(health("key-store", &file.path)));
        if let Some(file) = &key_store {
            // It was valid when the configuration was checked.
            file.health.good(unix_ms, "");
        }
        let guard = |flag, path: PathBuf, used_as| Guard::new(Guarded { flag, path, used_as }, &files.guarded);
        let control = files.control_file.map(|file| {
            let guard = guard("--control-file", file.path.clone(), Use::OwnerWrites);
            ControlFile::new(file.route, health("control-file", &file.path), guard)
        });
        let state_file = files.backend_state.map(|file| {
            let guard = guard("--backend-state", file.path.clone(), Use::Private);
            StateFile::new(file.route, health("backend-state", &file.path), guard)
        });
        let fleet = Self {
            store: parts.store,
            store_health: parts.store_health,
            context: parts.context,
            hub: parts.hub,
            replicas: Replicas::new(remembered(stored.replicas, &stored.leases), now),
            metrics,
            lease_ttl: parts.lease_ttl,
            pools: ArcSwap::default(),
            prober: parts.prober,
            keys: Mutex::new(Keys::new(stored.keys, files.key_store.map(|file| file.keys))),
            key_store,
            control,
            backend_state: state_file,
            specs: tokio::sync::Mutex::new(BTreeMap::new()),
            complaints: Mutex::default(),
            roll_call: Mutex::default(),
            publishing: Mutex::default(),
            timed_rows: Mutex::default(),
            storing_flows: tokio::sync::Mutex::default(),
            streams: std::sync::atomic::AtomicU64::new(0),
            shutdown: parts.shutdown,
        };
        let changes: Vec<RouteChange> = specs.values().filter_map(|spec| diff_route(None, Some(spec))).collect();
        fleet.use_specs(&changes, &specs, &[], None);
        *fleet.complaints.lock() = complaints;
        fleet.restore_marks(&stored.marks);
        fleet.restore_toggles(&stored.toggles);
        fleet.restore_flows(&stored.flows, &stored.payload_counts);
        let mut bindings: HashMap<RouteName, Vec<_>> = HashMap::new();
        for row in stored.bindings {
            bindings.entry(row.route.clone()).or_default().push(row);
        }
        let mut leases: HashMap<RouteName, Vec<_>> = HashMap::new();
        for row in stored.leases {
            leases.entry(row.route.clone()).or_default().push(row);
        }
        for pool in fleet.pools().values() {
            pool.restore_bindings(bindings.remove(pool.name()).unwrap_or_default());
            pool.restore_leases(leases.remove(pool.name()).unwrap_or_default());
        }
        fleet.keys.lock().tell(&fleet.hub);
        // Nothing else has a handle yet.
        if let Ok(mut current) = fleet.specs.try_lock() {
            *current = specs;
        }
        fleet.publish_dirty();
        fleet
    }

    fn restore_marks(&self, marks: &[MarkRow]) {
        let is_followed = |route: &RouteName| self.control.as_ref().is_some_and(|control| control.route == *route);
        let mut left: BTreeMap<&RouteName, usize> = BTreeMap::new();
        for mark in marks {
            if mark.kind == MarkKind::FileDrain && !is_followed(&mark.route) {
                self.context.marks.remove(&mark.route, &mark.backend, mark.kind);
                *left.entry(&mark.route).or_default() += 1;
            } else {
                self.restore_mark(mark);
            }
        }
        for (route, backends) in left {
            tracing::warn!(%route, backends, "drains of a control file that is not followed any more have ended");
        }
    }

    fn restore_mark(&self, mark: &MarkRow) {
        let Some(pool) = self.pools().get(&mark.route).cloned() else {
            return;
        };
        let clock = self.context.clock;
        match mark.kind {
            MarkKind::Drain | MarkKind::FileDrain => pool.set_drain(&mark.backend, true),
            MarkKind::Ban => pool.ban(&mark.backend, mark.until_unix_ms.map(|until| clock.tick(until)), &mark.reason),
            MarkKind::Unhealthy => pool.restore_unhealthy(&mark.backend, &mark.reason),
        }
    }
}

/// The replicas of the last start. One whose hello could not be stored is known by its leases alone; it must be given up
/// as well when it stays away, or they would count for ever.
fn remembered(mut replicas: Vec<ReplicaRow>, leases: &[LeaseRow]) -> Vec<ReplicaRow> {
    let mut known: HashSet<String> = replicas.iter().map(|row| row.replica.clone()).collect();
    for lease in leases {
        if known.insert(lease.replica.clone()) {
            let replica = lease.replica.clone();
            replicas.push(ReplicaRow { replica, version: String::new(), listen: String::new(), last_seen_unix_ms: 0 });
        }
    }
    replicas
}

fn read_document(document: &str) -> (Option<RouteSpec>, Vec<String>) {
    match serde_json::from_str(document) {
        Ok(json) => {
            let (spec, complaints) = parse_stored(&json);
            (spec, complaints.0.into_iter().map(|one| format!("{}: {}", one.field, one.problem)).collect())
        }
        Err(error) => (None, vec![format!("document: not JSON: {error}")]),
    }
}
