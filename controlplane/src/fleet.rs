//! The control plane's whole state: pools by route, keys, replicas, and the configuration that makes them.
//!
//! A change of configuration is checked whole, stored, and only then used: an error leaves everything as it was.

mod backend_state;
mod config;
mod control_file;
mod doors;
mod flow;
mod hello;
mod key_store;
mod keys;
mod start;
mod toggle;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use router_policy::ids::{BackendId, RouteName};
use router_policy::route::BackendSpec;
use tokio_util::sync::CancellationToken;

pub use config::{ApplyMode, backend_mut};
pub use doors::Selector;
pub use keys::{KnownKey, RevokedKey};
pub use start::Parts;
pub use toggle::ToggleChange;
pub(crate) use toggle::note::BODY_LOG_BY;

use crate::error::AdminError;
use crate::files::health::FileHealth;
use crate::metrics::Metrics;
use crate::pool::{Context, Pool};
use crate::probe::schedule::Prober;
use crate::replicas::Replicas;
use crate::snapshot::SnapshotHub;
use crate::store::Store;
use crate::store::health::StoreHealth;

/// Pools by route name.
pub type Pools = BTreeMap<RouteName, Arc<Pool>>;

/// Every pool that may hold leases. Read whole: a route that is removed goes from one map to the other in one step.
#[derive(Default)]
pub struct AllPools {
    /// Those that admit.
    pub open: Arc<Pools>,
    /// Those of removed routes whose last leases still run: a route that returns under the same name goes on counting them.
    pub closed: Pools,
}

impl AllPools {
    /// The pool that a route has, or had.
    pub fn find(&self, route: &str) -> Option<&Arc<Pool>> {
        // Few routes, short names: a lookup by text without making a `RouteName`.
        let mut all = self.open.iter().chain(&self.closed);
        all.find(|(name, _)| name.as_str() == route).map(|(_, pool)| pool)
    }
}

/// The backends that a selection means.
pub type Selected = Vec<(Arc<Pool>, BackendId)>;

/// The state of one control plane.
pub struct Fleet {
    /// Storage.
    pub store: Arc<dyn Store>,
    /// Whether it answers.
    pub store_health: Arc<StoreHealth>,
    /// What pools share: clock, epoch, journals.
    pub context: Arc<Context>,
    /// What replicas know.
    pub hub: SnapshotHub,
    /// Who they are.
    pub replicas: Replicas,
    /// What is measured.
    pub metrics: Metrics,
    /// A replica that is silent for this long loses its leases.
    pub lease_ttl: Duration,
    pools: ArcSwap<AllPools>,
    prober: Prober,
    keys: Mutex<keys::Keys>,
    key_store: Option<key_store::KeyStore>,
    control: Option<control_file::ControlFile>,
    backend_state: Option<backend_state::StateFile>,
    /// The specs in force. Held over the whole of a change, also of marks and of the control file, so that changes follow each
    /// other.
    specs: tokio::sync::Mutex<config::Specs>,
    /// What was wrong with stored documents, by route (rulings §6).
    complaints: Mutex<BTreeMap<RouteName, Vec<String>>>,
    /// A hello and the end of silent replicas exclude each other: neither may see the other half done.
    roll_call: Mutex<()>,
    /// Reading a pool for the snapshot and putting it there are one step: an older reading must not overwrite a newer one,
    /// nor bring a removed route back.
    publishing: Mutex<()>,
    /// Rows of toggles that are set for a time. Written with the specs held, as the database is.
    timed_rows: Mutex<toggle::TimedRows>,
    /// Held from the reading of pools' flow control and payload counts to the end of their writing.
    storing_flows: tokio::sync::Mutex<()>,
    streams: std::sync::atomic::AtomicU64,
    shutdown: CancellationToken,
}

impl Fleet {
    /// The pools that admit now.
    pub fn pools(&self) -> Arc<Pools> {
        Arc::clone(&self.pools.load().open)
    }

    /// Those and the ones of removed routes. Cheap; load once per batch.
    pub fn all_pools(&self) -> arc_swap::Guard<Arc<AllPools>> {
        self.pools.load()
    }

    /// Every pool that may hold leases.
    fn holders(&self) -> Vec<Arc<Pool>> {
        let all = self.all_pools();
        all.open.values().chain(all.closed.values()).cloned().collect()
    }

    /// Leases that a replica holds.
    pub fn leases_of(&self, replica: &str) -> u32 {
        self.holders().iter().map(|pool| pool.leases_of(replica)).sum()
    }

    /// The pool of a route.
    pub fn pool(&self, route: &str) -> Result<Arc<Pool>, AdminError> {
        let not_found = || AdminError::NotFound { what: "route", name: route.to_owned() };
        let name = RouteName::new(route).map_err(|_| not_found())?;
        self.pools().get(&name).cloned().ok_or_else(not_found)
    }

    /// A number that no other stream of this start has.
    pub fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1
    }

    /// Ends when the control plane shuts down.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// How the files are that are followed or written.
    pub fn files(&self) -> Vec<router_proto::v1::FileState> {
        let control = self.control.as_ref().map(|control| &control.health);
        let state = self.backend_state.as_ref().map(|state| &state.health);
        let keys = self.key_store.as_ref().map(|file| &file.health);
        [keys, control, state].into_iter().flatten().map(FileHealth::message).collect()
    }

    /// What was wrong with a route's stored document.
    pub fn complaints(&self, route: &RouteName) -> Vec<String> {
        self.complaints.lock().get(route).cloned().unwrap_or_default()
    }

    /// The backends that a selection means, by route. An empty answer is an error: a typo must not look like success.
    pub async fn select(&self, wanted: Selector<'_>) -> Result<Selected, AdminError> {
        self.select_in(&*self.specs.lock().await, wanted)
    }

    fn select_in(&self, specs: &config::Specs, wanted: Selector<'_>) -> Result<Selected, AdminError> {
        let Selector { route, port, backend } = wanted;
        if route.is_empty() && port == 0 && backend.is_empty() {
            let problem = "nothing selected; allowed: a port, a backend (host:port or name), a route".to_owned();
            return Err(AdminError::Argument { field: "selector", problem });
        }
        let port_number = u16::try_from(port)
            .map_err(|_| AdminError::Argument { field: "selector.port", problem: "allowed: 1..=65535".to_owned() })?;
        if !route.is_empty() {
            self.pool(route)?;
        }
        let is_meant = |spec: &BackendSpec| {
            (port == 0 || spec.id.port() == port_number) && (backend.is_empty() || spec.answers_to(backend))
        };
        let pools = self.pools();
        let found: Selected = specs
            .values()
            .filter(|spec| route.is_empty() || spec.name.as_str() == route)
            .flat_map(|spec| spec.backends.iter().map(move |backend| (&spec.name, backend)))
            .filter(|(_, backend)| is_meant(backend))
            .filter_map(|(name, backend)| Some((Arc::clone(pools.get(name)?), backend.id.clone())))
            .collect();
        if found.is_empty() {
            return Err(AdminError::NothingSelected { selection: wanted.to_string() });
        }
        Ok(found)
    }
}

impl fmt::Display for Selector<'_> {
    /// As it stands after "backend": `'gpu:1' with port 19003 in route chat`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = (!self.backend.is_empty()).then(|| format!("'{}'", self.backend));
        let port = (self.port != 0).then(|| format!("with port {}", self.port));
        let route = (!self.route.is_empty()).then(|| format!("in route {}", self.route));
        let words: Vec<String> = [backend, port, route].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}
