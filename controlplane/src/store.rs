//! Storage in words of the domain. Only this module and those below it know SQL.
//!
//! Every call is one transaction: when it returns `Ok`, all of it is durable (with `SQLite`'s `synchronous=NORMAL` against
//! kill -9, not against power loss), and when it returns an error, none of it is, except that an answer may be lost after
//! the commit. The store decides nothing and makes no ids or times: it keeps what it is given. All calls but
//! [`Store::begin_epoch`] and the counts of [`Store::touch_bindings`] are idempotent, so that a write whose answer was lost
//! may be repeated. Of several rows with one key in one call the last counts; what a call removes goes before what it puts.
//! Bindings, leases, marks, flows, payload counts and toggles of a route that isn't stored are passed over: it was removed
//! while they were on their way.
//!
//! Hot calls: [`Store::save_bindings`] (each new or moved session, through [`group_commit`]), [`Store::save_leases`] (every
//! 50 ms) and [`Store::touch_bindings`] (each second), both through [`write_behind`].

use std::fmt;

use async_trait::async_trait;
use router_policy::ids::{BackendId, Fingerprint, LeaseId, RouteName, hash_prefix};

pub mod group_commit;
pub mod health;
pub mod write_behind;

mod open;
mod postgres;
mod row;
mod sql_error;
mod sqlite;

pub use open::{OpenError, SqliteSync, open, sqlite_path};

#[cfg(test)]
mod contract_tests;
#[cfg(test)]
pub(crate) mod scripted;

/// Why a call failed. The text names no credentials.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached or is shutting down: worth a retry.
    #[error("database unreachable: {0}")]
    Unreachable(String),
    /// Two things want one unique name; the name of the constraint says which.
    #[error("already exists: {constraint}")]
    Conflict {
        /// The constraint's name.
        constraint: String,
    },
    /// A stored value can't be read back.
    #[error("stored {what} is not valid: {problem}")]
    Corrupt {
        /// Which kind of row.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Anything else.
    #[error("database: {0}")]
    Other(String),
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

/// A route as stored: its document, as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRow {
    /// The route.
    pub name: RouteName,
    /// The document that `policy::route::raw::route_json` prints.
    pub document: String,
}

/// A session's backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingRow {
    /// The route.
    pub route: RouteName,
    /// The session.
    pub fingerprint: Fingerprint,
    /// Its backend.
    pub backend: BackendId,
    /// Its data-parallel rank there.
    pub dp_rank: Option<u32>,
    /// When the session was first bound.
    pub created_unix_ms: u64,
    /// When it last asked for a lease.
    pub last_used_unix_ms: u64,
    /// Leases granted to it.
    pub requests: u64,
    /// How often it moved.
    pub moves: u32,
}

/// A change of one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindingWrite {
    /// Insert it, or replace the one of this session.
    Put(BindingRow),
    /// It ends.
    Forget {
        /// The route.
        route: RouteName,
        /// The session.
        fingerprint: Fingerprint,
    },
}

/// Use of a binding since the last flush. A binding that is gone is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingTouch {
    /// The route.
    pub route: RouteName,
    /// The session.
    pub fingerprint: Fingerprint,
    /// The newest use.
    pub last_used_unix_ms: u64,
    /// Leases granted since the last flush, to be added.
    pub more_requests: u64,
}

/// A lease that was in flight when it was flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The lease.
    pub lease: LeaseId,
    /// The route.
    pub route: RouteName,
    /// The backend whose slot it holds.
    pub backend: BackendId,
    /// The replica that holds it.
    pub replica: String,
    /// The session, if any.
    pub fingerprint: Option<Fingerprint>,
    /// When it was granted.
    pub granted_unix_ms: u64,
}

/// Why a backend is out, as far as a restart must remember it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MarkKind {
    /// An operator drains it.
    Drain,
    /// The control file drains it; ends when that is not followed any more.
    FileDrain,
    /// An operator has banned it.
    Ban,
    /// It did not answer.
    Unhealthy,
}

impl MarkKind {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Drain, Self::FileDrain, Self::Ban, Self::Unhealthy];
}

/// One mark on one backend of one route; at most one of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkRow {
    /// The route.
    pub route: RouteName,
    /// The backend.
    pub backend: BackendId,
    /// What the mark says.
    pub kind: MarkKind,
    /// When it ends by itself; `None` for never.
    pub until_unix_ms: Option<u64>,
    /// In words, for operators.
    pub reason: String,
}

/// One pool's flow control, as it was a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRow {
    /// The route.
    pub route: RouteName,
    /// The model whose pool it is; empty where there is one for all.
    pub model: String,
    /// `policy::flow::Flow` as JSON.
    pub state: String,
    /// When it was so.
    pub updated_unix_ms: u64,
}

/// What replicas have counted of one route's payload handling, as it was a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadCountsRow {
    /// The route.
    pub route: RouteName,
    /// `policy::payload_count::PayloadTotals` as JSON.
    pub state: String,
    /// When it was so.
    pub updated_unix_ms: u64,
}

/// Something that an operator has set on a running route; at most one of each name and model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToggleRow {
    /// The route.
    pub route: RouteName,
    /// `policy::toggle::ToggleKey`'s name.
    pub name: String,
    /// Of a limit: the model; empty for the whole route.
    pub model: String,
    /// `policy::toggle::ToggleValue` as text.
    pub value: String,
    /// When it undoes itself; `None` for never.
    pub until_unix_ms: Option<u64>,
    /// The value that holds again after that; `None` for what the route's options say.
    pub standing: Option<String>,
}

/// A client key. The secret is never stored.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id: names it in fingerprints and never changes.
    pub id: String,
    /// Its label; unique.
    pub name: String,
    /// SHA-256 of the secret; unique. Never shown as a whole.
    pub sha256: [u8; 32],
    /// When it was added.
    pub created_unix_ms: u64,
}

impl fmt::Debug for KeyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRow")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("sha256_prefix", &hash_prefix(&self.sha256))
            .field("created_unix_ms", &self.created_unix_ms)
            .finish()
    }
}

/// A replica that has said hello and not goodbye.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRow {
    /// Its id.
    pub replica: String,
    /// Its version.
    pub version: String,
    /// Where it takes traffic.
    pub listen: String,
    /// When it was last heard of.
    pub last_seen_unix_ms: u64,
}

/// Everything that the store holds, read once at start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// By name.
    pub routes: Vec<RouteRow>,
    /// In no particular order.
    pub bindings: Vec<BindingRow>,
    /// In no particular order.
    pub leases: Vec<LeaseRow>,
    /// In no particular order.
    pub marks: Vec<MarkRow>,
    /// In no particular order.
    pub flows: Vec<FlowRow>,
    /// In no particular order.
    pub payload_counts: Vec<PayloadCountsRow>,
    /// In no particular order.
    pub toggles: Vec<ToggleRow>,
    /// By name.
    pub keys: Vec<KeyRow>,
    /// By id.
    pub replicas: Vec<ReplicaRow>,
}

/// The storage of one installation.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// `sqlite` or `postgres`.
    fn kind(&self) -> &'static str;

    /// Makes this process the installation's only control plane, for as long as it lives; false when another is. `SQLite`
    /// has that from its file's lock. With Postgres, an outage of the database gives the claim up silently.
    async fn claim(&self) -> Result<bool, StoreError> {
        Ok(true)
    }

    /// Adds one to the installation's epoch and returns it; the first is 1.
    async fn begin_epoch(&self) -> Result<u64, StoreError>;

    /// The secret that keys fingerprints: `fresh` at the first call of an installation's life, that same value ever after.
    async fn fingerprint_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError>;

    /// Everything stored.
    async fn load(&self) -> Result<Stored, StoreError>;

    /// Stores and removes routes. A removed route's bindings, leases, marks, flows, payload counts and toggles go with
    /// it.
    async fn save_routes(&self, put: &[RouteRow], remove: &[RouteName]) -> Result<(), StoreError> {
        self.save_routes_marked(put, remove, &[]).await
    }

    /// [`Store::save_routes`] together with marks of backends that come: all of it or nothing.
    async fn save_routes_marked(
        &self,
        put: &[RouteRow],
        remove: &[RouteName],
        marks: &[MarkRow],
    ) -> Result<(), StoreError>;

    /// Applies binding changes in order.
    async fn save_bindings(&self, writes: &[BindingWrite]) -> Result<(), StoreError>;

    /// Adds up uses.
    async fn touch_bindings(&self, touches: &[BindingTouch]) -> Result<(), StoreError>;

    /// Stores and removes leases.
    async fn save_leases(&self, put: &[LeaseRow], remove: &[LeaseId]) -> Result<(), StoreError>;

    /// Stores and removes marks.
    async fn save_marks(&self, put: &[MarkRow], remove: &[(RouteName, BackendId, MarkKind)]) -> Result<(), StoreError>;

    /// Stores pools' flow control, each in place of what was stored of it before.
    async fn save_flows(&self, flows: &[FlowRow]) -> Result<(), StoreError>;

    /// Stores what was counted of routes' payloads, each in place of what was stored of it before.
    async fn save_payload_counts(&self, counts: &[PayloadCountsRow]) -> Result<(), StoreError>;

    /// Stores and removes (route, name, model) what is set at run time.
    async fn save_toggles(&self, put: &[ToggleRow], remove: &[(RouteName, String, String)]) -> Result<(), StoreError>;

    /// Stores a key. [`StoreError::Conflict`] with `keys_name` or `keys_sha256` when another has its name or secret.
    async fn add_key(&self, key: &KeyRow) -> Result<(), StoreError>;

    /// Removes a key by id; nothing happens when there is none.
    async fn remove_key(&self, id: &str) -> Result<(), StoreError>;

    /// Stores or renews replicas.
    async fn save_replicas(&self, replicas: &[ReplicaRow]) -> Result<(), StoreError>;

    /// Removes a replica and the leases stored for it.
    async fn remove_replica(&self, replica: &str) -> Result<(), StoreError>;

    /// Whether the database answers and takes writes.
    async fn ping(&self) -> Result<(), StoreError>;
}
