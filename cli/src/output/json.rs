//! The answers, one struct each. Field names are part of the interface: scripts read them.

use router_policy::route::Priority;
use router_proto::v1;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

mod catalogue;
mod flow;
mod payload;
mod rules;

pub(crate) use catalogue::{Catalogue, CatalogueEntry};
pub(crate) use flow::{Explanation, PoolView, RouteToggles, ToggleList, ToggleLists, ToggleView};
use payload::PayloadView;
pub(crate) use rules::{IS_ON, NodeView, RULES, RulesVerdict, rules_in_short};

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A backend now.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BackendView {
    pub(crate) route: String,
    pub(crate) address: String,
    pub(crate) name: Option<String>,
    /// `ready`, or each of `unhealthy`, `banned`, `draining`, `drained`, `removed` that holds.
    pub(crate) states: Vec<&'static str>,
    pub(crate) reason: Option<String>,
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    pub(crate) sessions: u64,
    /// Null when not banned for a time.
    pub(crate) ban_left_ms: Option<u64>,
    pub(crate) granted_total: u64,
    pub(crate) failures_total: u64,
    /// As written in the route document; null when the route's value holds.
    pub(crate) max_concurrency: Option<u32>,
    pub(crate) health_path: Option<String>,
    pub(crate) context_limit: Option<u64>,
    pub(crate) dp_size: Option<u32>,
    /// Its tier, a number: the larger is preferred.
    pub(crate) priority: Json,
    /// Empty where one pool serves every model.
    pub(crate) models: Vec<String>,
}

impl BackendView {
    /// Takes new requests.
    pub(crate) fn is_ready(&self) -> bool {
        self.states == ["ready"]
    }
}

impl From<v1::BackendState> for BackendView {
    fn from(state: v1::BackendState) -> Self {
        let condition = state.condition.unwrap_or_default();
        let drain = if state.in_flight == 0 { "drained" } else { "draining" };
        let words = [
            (condition.removed, "removed"),
            (condition.draining, drain),
            (condition.banned, "banned"),
            (condition.unhealthy, "unhealthy"),
        ];
        let mut states: Vec<&'static str> = words.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word).collect();
        if states.is_empty() {
            states.push("ready");
        }
        Self {
            route: state.route,
            address: state.address,
            name: some(state.name),
            states,
            reason: some(state.reason),
            in_flight: state.in_flight,
            limit: state.limit,
            sessions: state.sessions,
            ban_left_ms: (state.ban_left_ms != 0).then_some(state.ban_left_ms),
            granted_total: state.granted_total,
            failures_total: state.failures_total,
            max_concurrency: (state.max_concurrency != 0).then_some(state.max_concurrency),
            health_path: some(state.health_path),
            context_limit: (state.context_limit != 0).then_some(state.context_limit),
            dp_size: (state.dp_size != 0).then_some(state.dp_size),
            priority: Priority::from_thousandths(state.priority_thousandths).json(),
            models: state.models,
        }
    }
}

fn as_in_a_document<S: Serializer>(value: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let structured = value.starts_with(['[', '{']).then(|| serde_json::from_str::<Json>(value).ok()).flatten();
    structured.unwrap_or_else(|| Json::from(value)).serialize(serializer)
}

/// An option of a route.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct OptionView {
    pub(crate) name: String,
    /// As the catalogue prints it. In JSON and YAML, what is a list of objects or an object is one, as in a document.
    #[serde(serialize_with = "as_in_a_document")]
    pub(crate) value: String,
    /// Stands in the route document, else the default holds.
    pub(crate) is_set: bool,
}

/// A route now.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RouteView {
    pub(crate) name: String,
    pub(crate) is_default: bool,
    /// `none`, `gateway`, `openresty`.
    pub(crate) preset: String,
    pub(crate) waiting: u32,
    /// Slots taken for requests whose body is still coming in.
    pub(crate) reserved: u32,
    pub(crate) sessions: u64,
    pub(crate) complaints: Vec<String>,
    /// What should be known although nothing is wrong, such as rules that are set and off.
    pub(crate) notes: Vec<String>,
    pub(crate) options: Vec<OptionView>,
    pub(crate) backends: Vec<BackendView>,
    /// Run-time switches and limits that are set.
    pub(crate) toggles: Vec<ToggleView>,
    /// One, or one for each model.
    pub(crate) pools: Vec<PoolView>,
    /// What replicas have counted.
    pub(crate) payload: PayloadView,
}

impl From<v1::RouteState> for RouteView {
    fn from(state: v1::RouteState) -> Self {
        let option =
            |option: v1::OptionState| OptionView { name: option.name, value: option.value, is_set: option.is_set };
        let mut view = Self {
            name: state.name,
            is_default: state.is_default,
            preset: some(state.preset).unwrap_or_else(|| "none".to_owned()),
            waiting: state.waiting,
            reserved: state.reserved,
            sessions: state.sessions,
            complaints: state.complaints,
            notes: Vec::new(),
            options: state.options.into_iter().map(option).collect(),
            backends: state.backends.into_iter().map(Into::into).collect(),
            toggles: state.toggles.into_iter().map(Into::into).collect(),
            pools: state.pools.into_iter().map(Into::into).collect(),
            payload: PayloadView::new(state.payload_counts, state.rule_hits),
        };
        view.notes.extend(rules::off_note(&view));
        view
    }
}

impl RouteView {
    /// The effective value of an option.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|option| option.name == name).map(|option| option.value.as_str())
    }
}

/// `route list`, `route show`.
#[derive(Debug, Serialize)]
pub(crate) struct RouteList {
    pub(crate) routes: Vec<RouteView>,
}

/// `backend list`, `drain`, `undrain`, `ban`, `unban`.
#[derive(Debug, Serialize)]
pub(crate) struct BackendListing {
    pub(crate) backends: Vec<BackendView>,
}

impl From<Vec<v1::BackendState>> for BackendListing {
    fn from(states: Vec<v1::BackendState>) -> Self {
        Self { backends: states.into_iter().map(Into::into).collect() }
    }
}

/// A session's binding.
#[derive(Debug, Serialize)]
pub(crate) struct SessionView {
    pub(crate) route: String,
    pub(crate) fingerprint: String,
    pub(crate) backend: String,
    pub(crate) created_unix_ms: u64,
    pub(crate) last_used_unix_ms: u64,
    pub(crate) requests: u64,
    pub(crate) moves: u32,
    pub(crate) in_flight: u32,
    pub(crate) dp_rank: Option<u32>,
}

impl From<v1::SessionState> for SessionView {
    fn from(state: v1::SessionState) -> Self {
        let v1::SessionState {
            route,
            fingerprint,
            backend,
            created_unix_ms,
            last_used_unix_ms,
            requests,
            moves,
            in_flight,
            dp_rank,
        } = state;
        Self { route, fingerprint, backend, created_unix_ms, last_used_unix_ms, requests, moves, in_flight, dp_rank }
    }
}

/// `session list`.
#[derive(Debug, Serialize)]
pub(crate) struct SessionList {
    pub(crate) sessions: Vec<SessionView>,
    /// How many match, listed or not.
    pub(crate) total: u64,
}

/// `session show`.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct SessionDetail(pub(crate) SessionView);

/// `session forget`.
#[derive(Debug, Serialize)]
pub(crate) struct Forgotten {
    pub(crate) forgotten: u64,
}

/// A client key, without its secret.
#[derive(Debug, Serialize)]
pub(crate) struct KeyView {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) sha256_prefix: String,
    /// Null for a key of a file, which does not say.
    pub(crate) created_unix_ms: Option<u64>,
    /// `database`, or `file`: the key store file that the control plane follows.
    pub(crate) source: &'static str,
}

impl From<v1::KeyState> for KeyView {
    fn from(state: v1::KeyState) -> Self {
        let source = match state.source() {
            v1::KeySource::File => "file",
            // A control plane that knows no other place says nothing.
            v1::KeySource::Database | v1::KeySource::Unspecified => "database",
        };
        let v1::KeyState { id, name, sha256_prefix, created_unix_ms, source: _ } = state;
        let created_unix_ms = (created_unix_ms != 0).then_some(created_unix_ms);
        Self { id, name, sha256_prefix, created_unix_ms, source }
    }
}

/// `key list`.
#[derive(Debug, Serialize)]
pub(crate) struct KeyList {
    pub(crate) keys: Vec<KeyView>,
}

/// `key add`: the only time that the secret is seen.
#[derive(Serialize)]
pub(crate) struct NewKey {
    #[serde(flatten)]
    pub(crate) key: KeyView,
    pub(crate) secret: String,
}

/// `key revoke`.
#[derive(Debug, Serialize)]
pub(crate) struct RevokedKey {
    pub(crate) revoked: KeyView,
    /// What is to be known besides; null for nothing.
    pub(crate) note: Option<String>,
}

impl RevokedKey {
    pub(crate) fn new(revoked: KeyView, note: String) -> Self {
        Self { revoked, note: some(note) }
    }
}

/// One field of a route document, before and after.
#[derive(Debug, Serialize)]
pub(crate) struct FieldView {
    pub(crate) field: String,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

impl From<v1::FieldChange> for FieldView {
    fn from(change: v1::FieldChange) -> Self {
        Self { field: change.field, before: change.before, after: change.after }
    }
}

/// What happens to one route.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeView {
    pub(crate) route: String,
    /// `added`, `changed`, `removed`.
    pub(crate) action: &'static str,
    pub(crate) fields: Vec<FieldView>,
}

impl From<v1::RouteChange> for ChangeView {
    fn from(change: v1::RouteChange) -> Self {
        let action = match change.action() {
            v1::route_change::Action::Added => "added",
            v1::route_change::Action::Removed => "removed",
            v1::route_change::Action::Changed | v1::route_change::Action::Unspecified => "changed",
        };
        Self { route: change.route, action, fields: change.fields.into_iter().map(Into::into).collect() }
    }
}

/// `apply`, `diff`, `route add`, `route set`, `backend set`.
#[derive(Debug, Serialize)]
pub(crate) struct Changes {
    pub(crate) changes: Vec<ChangeView>,
    /// False for `diff` and `apply --dry-run`.
    pub(crate) is_applied: bool,
}

/// `route remove`, `backend remove`.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "scripts read `removed`")]
pub(crate) struct Removed {
    /// What was removed.
    pub(crate) removed: String,
    /// Requests that were in flight; they end by themselves.
    pub(crate) in_flight: u32,
    /// Null where bindings are not counted.
    pub(crate) sessions_forgotten: Option<u64>,
}

/// `backend add`.
#[derive(Debug, Serialize)]
pub(crate) struct BackendAdded {
    pub(crate) route: String,
    pub(crate) added: String,
}

/// A dataplane process.
#[derive(Debug, Serialize)]
pub(crate) struct ReplicaView {
    pub(crate) replica_id: String,
    pub(crate) version: String,
    pub(crate) listen: String,
    pub(crate) connected: bool,
    pub(crate) last_seen_ms: u64,
    pub(crate) leases: u32,
}

/// A file that the control plane follows or writes.
#[derive(Debug, Serialize)]
pub(crate) struct FileView {
    /// `key-store`, `control-file`, `backend-state`.
    pub(crate) flag: String,
    pub(crate) path: String,
    /// What is wrong with it and what that means; null when all is well.
    pub(crate) problem: Option<String>,
    /// What is to be known of it although nothing is wrong; null for nothing.
    pub(crate) note: Option<String>,
    /// When it was last read or written with success; null for never.
    pub(crate) good_unix_ms: Option<u64>,
}

impl From<v1::FileState> for FileView {
    fn from(state: v1::FileState) -> Self {
        let v1::FileState { flag, path, problem, note, good_unix_ms } = state;
        let good_unix_ms = (good_unix_ms != 0).then_some(good_unix_ms);
        Self { flag, path, problem: some(problem), note: some(note), good_unix_ms }
    }
}

/// `status`.
#[derive(Debug, Serialize)]
pub(crate) struct StatusView {
    pub(crate) version: String,
    pub(crate) epoch: u64,
    pub(crate) uptime_ms: u64,
    pub(crate) database: String,
    pub(crate) database_ok: bool,
    pub(crate) database_error: Option<String>,
    pub(crate) keys: u32,
    pub(crate) snapshot_version: u64,
    /// The files that the control plane was told to follow or to write.
    pub(crate) files: Vec<FileView>,
    pub(crate) replicas: Vec<ReplicaView>,
    pub(crate) routes: Vec<RouteView>,
}

impl From<v1::GetStatusReply> for StatusView {
    fn from(reply: v1::GetStatusReply) -> Self {
        let replica = |state: v1::ReplicaState| {
            let v1::ReplicaState { replica_id, version, listen, connected, last_seen_ms, leases } = state;
            ReplicaView { replica_id, version, listen, connected, last_seen_ms, leases }
        };
        Self {
            version: reply.version,
            epoch: reply.epoch,
            uptime_ms: reply.uptime_ms,
            database: reply.database,
            database_ok: reply.database_ok,
            database_error: some(reply.database_error),
            keys: reply.keys,
            snapshot_version: reply.snapshot_version,
            files: reply.files.into_iter().map(Into::into).collect(),
            replicas: reply.replicas.into_iter().map(replica).collect(),
            routes: reply.routes.into_iter().map(Into::into).collect(),
        }
    }
}
