//! Columns ↔ rows, and how a batch shrinks to its last word per row; the same for both databases.
//!
//! A value that the database holds but the domain does not allow is [`StoreError::Corrupt`], never passed on.

use std::collections::{BTreeMap, HashMap};

use router_policy::ids::{BackendId, Fingerprint, InvalidId, LeaseId, RouteName};

use super::{
    BindingRow, BindingTouch, BindingWrite, FlowRow, KeyRow, LeaseRow, MarkKind, MarkRow, PayloadCountsRow, ReplicaRow,
    RouteRow, StoreError, ToggleRow,
};

pub(super) type RouteColumns = (String, String);
pub(super) type BindingColumns = (String, Vec<u8>, String, Option<i64>, i64, i64, i64, i64);
pub(super) type LeaseColumns = (i64, String, String, String, Option<Vec<u8>>, i64);
pub(super) type MarkColumns = (String, String, String, Option<i64>, String);
pub(super) type FlowColumns = (String, String, String, i64);
pub(super) type PayloadColumns = (String, String, i64);
pub(super) type ToggleColumns = (String, String, String, String, Option<i64>, Option<String>);
pub(super) type KeyColumns = (String, String, Vec<u8>, i64);
pub(super) type ReplicaColumns = (String, String, String, i64);

pub(super) const SELECT_ROUTES: &str = "SELECT name, document FROM routes ORDER BY name";
pub(super) const SELECT_BINDINGS: &str = "SELECT route, fingerprint, backend, dp_rank, created_unix_ms, \
     last_used_unix_ms, requests, moves FROM bindings";
pub(super) const SELECT_LEASES: &str =
    "SELECT lease, route, backend, replica, fingerprint, granted_unix_ms FROM leases";
pub(super) const SELECT_MARKS: &str = "SELECT route, backend, kind, until_unix_ms, reason FROM marks";
pub(super) const SELECT_FLOWS: &str = "SELECT route, model, state, updated_unix_ms FROM flows";
pub(super) const SELECT_PAYLOADS: &str = "SELECT route, state, updated_unix_ms FROM payload_counts";
pub(super) const SELECT_TOGGLES: &str = "SELECT route, name, model, value, until_unix_ms, standing FROM toggles";
pub(super) const SELECT_KEYS: &str = "SELECT id, name, sha256, created_unix_ms FROM keys ORDER BY name";
pub(super) const SELECT_REPLICAS: &str =
    "SELECT replica, version, listen, last_seen_unix_ms FROM replicas ORDER BY replica";

/// Reads everything in the transaction `$tx` of either database into a [`super::Stored`].
macro_rules! load_all {
    ($tx:expr) => {{
        use futures_util::TryStreamExt as _;
        use $crate::store::row;

        let mut decoder = row::Decoder::default();
        let mut stored = $crate::store::Stored::default();
        let mut rows = sqlx::query_as::<_, row::RouteColumns>(row::SELECT_ROUTES).fetch(&mut *$tx);
        while let Some(columns) = rows.try_next().await? {
            stored.routes.push(decoder.route(columns)?);
        }
        drop(rows);
        let mut rows = sqlx::query_as::<_, row::BindingColumns>(row::SELECT_BINDINGS).fetch(&mut *$tx);
        while let Some(columns) = rows.try_next().await? {
            stored.bindings.push(decoder.binding(columns)?);
        }
        drop(rows);
        let mut rows = sqlx::query_as::<_, row::LeaseColumns>(row::SELECT_LEASES).fetch(&mut *$tx);
        while let Some(columns) = rows.try_next().await? {
            stored.leases.push(decoder.lease(columns)?);
        }
        drop(rows);
        for columns in sqlx::query_as::<_, row::MarkColumns>(row::SELECT_MARKS).fetch_all(&mut *$tx).await? {
            stored.marks.push(decoder.mark(columns)?);
        }
        for columns in sqlx::query_as::<_, row::FlowColumns>(row::SELECT_FLOWS).fetch_all(&mut *$tx).await? {
            stored.flows.push(decoder.flow(columns)?);
        }
        for columns in sqlx::query_as::<_, row::PayloadColumns>(row::SELECT_PAYLOADS).fetch_all(&mut *$tx).await? {
            stored.payload_counts.push(decoder.payload(columns)?);
        }
        for columns in sqlx::query_as::<_, row::ToggleColumns>(row::SELECT_TOGGLES).fetch_all(&mut *$tx).await? {
            stored.toggles.push(decoder.toggle(columns)?);
        }
        for columns in sqlx::query_as::<_, row::KeyColumns>(row::SELECT_KEYS).fetch_all(&mut *$tx).await? {
            stored.keys.push(row::key(columns)?);
        }
        for columns in sqlx::query_as::<_, row::ReplicaColumns>(row::SELECT_REPLICAS).fetch_all(&mut *$tx).await? {
            stored.replicas.push(row::replica(columns)?);
        }
        stored
    }};
}
pub(super) use load_all;

/// A number as the databases keep it.
pub(super) fn to_i64(number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::Other("number above 2^63 can't be stored".into()))
}

pub(super) fn to_u64(what: &'static str, number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::Corrupt { what, problem: "negative number".into() })
}

fn to_u32(what: &'static str, number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::Corrupt { what, problem: "number outside of 0..2^32".into() })
}

pub(super) fn to_bytes<const N: usize>(what: &'static str, bytes: &[u8]) -> Result<[u8; N], StoreError> {
    bytes.try_into().map_err(|_| StoreError::Corrupt { what, problem: "wrong number of bytes".into() })
}

/// What the `kind` column says.
pub(super) fn mark_text(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Drain => "drain",
        MarkKind::FileDrain => "file_drain",
        MarkKind::Ban => "ban",
        MarkKind::Unhealthy => "unhealthy",
    }
}

fn mark_kind(text: &str) -> Result<MarkKind, StoreError> {
    match text {
        "drain" => Ok(MarkKind::Drain),
        "file_drain" => Ok(MarkKind::FileDrain),
        "ban" => Ok(MarkKind::Ban),
        "unhealthy" => Ok(MarkKind::Unhealthy),
        _ => Err(StoreError::Corrupt { what: "mark", problem: "unknown kind".into() }),
    }
}

/// Decodes rows; equal names share one allocation, so that a million bindings don't hold a million copies.
#[derive(Default)]
pub(super) struct Decoder {
    routes: HashMap<String, RouteName>,
    backends: HashMap<String, BackendId>,
}

fn shared<T: Clone>(
    known: &mut HashMap<String, T>,
    what: &'static str,
    text: String,
    parse: fn(&str) -> Result<T, InvalidId>,
) -> Result<T, StoreError> {
    if let Some(name) = known.get(&text) {
        return Ok(name.clone());
    }
    let name = parse(&text).map_err(|invalid| StoreError::Corrupt { what, problem: invalid.to_string() })?;
    known.insert(text, name.clone());
    Ok(name)
}

impl Decoder {
    fn route_name(&mut self, what: &'static str, text: String) -> Result<RouteName, StoreError> {
        shared(&mut self.routes, what, text, RouteName::new)
    }

    fn backend(&mut self, what: &'static str, text: String) -> Result<BackendId, StoreError> {
        shared(&mut self.backends, what, text, BackendId::new)
    }

    pub(super) fn route(&mut self, (name, document): RouteColumns) -> Result<RouteRow, StoreError> {
        Ok(RouteRow { name: self.route_name("route", name)?, document })
    }

    pub(super) fn binding(&mut self, columns: BindingColumns) -> Result<BindingRow, StoreError> {
        const WHAT: &str = "binding";
        let (route, fingerprint, backend, dp_rank, created_unix_ms, last_used_unix_ms, requests, moves) = columns;
        Ok(BindingRow {
            route: self.route_name(WHAT, route)?,
            fingerprint: Fingerprint(to_bytes(WHAT, &fingerprint)?),
            backend: self.backend(WHAT, backend)?,
            dp_rank: dp_rank.map(|rank| to_u32(WHAT, rank)).transpose()?,
            created_unix_ms: to_u64(WHAT, created_unix_ms)?,
            last_used_unix_ms: to_u64(WHAT, last_used_unix_ms)?,
            requests: to_u64(WHAT, requests)?,
            moves: to_u32(WHAT, moves)?,
        })
    }

    pub(super) fn lease(&mut self, columns: LeaseColumns) -> Result<LeaseRow, StoreError> {
        const WHAT: &str = "lease";
        let (lease, route, backend, replica, fingerprint, granted_unix_ms) = columns;
        let fingerprint = fingerprint.map(|bytes| to_bytes(WHAT, &bytes)).transpose()?;
        Ok(LeaseRow {
            lease: LeaseId(to_u64(WHAT, lease)?),
            route: self.route_name(WHAT, route)?,
            backend: self.backend(WHAT, backend)?,
            replica,
            fingerprint: fingerprint.map(Fingerprint),
            granted_unix_ms: to_u64(WHAT, granted_unix_ms)?,
        })
    }

    pub(super) fn mark(&mut self, columns: MarkColumns) -> Result<MarkRow, StoreError> {
        const WHAT: &str = "mark";
        let (route, backend, kind, until_unix_ms, reason) = columns;
        Ok(MarkRow {
            route: self.route_name(WHAT, route)?,
            backend: self.backend(WHAT, backend)?,
            kind: mark_kind(&kind)?,
            until_unix_ms: until_unix_ms.map(|until| to_u64(WHAT, until)).transpose()?,
            reason,
        })
    }

    pub(super) fn flow(&mut self, columns: FlowColumns) -> Result<FlowRow, StoreError> {
        const WHAT: &str = "flow";
        let (route, model, state, updated) = columns;
        let (route, updated_unix_ms) = (self.route_name(WHAT, route)?, to_u64(WHAT, updated)?);
        Ok(FlowRow { route, model, state, updated_unix_ms })
    }

    pub(super) fn payload(&mut self, (route, state, updated): PayloadColumns) -> Result<PayloadCountsRow, StoreError> {
        const WHAT: &str = "payload count";
        let (route, updated_unix_ms) = (self.route_name(WHAT, route)?, to_u64(WHAT, updated)?);
        Ok(PayloadCountsRow { route, state, updated_unix_ms })
    }

    pub(super) fn toggle(&mut self, columns: ToggleColumns) -> Result<ToggleRow, StoreError> {
        const WHAT: &str = "toggle";
        let (route, name, model, value, until, standing) = columns;
        let until_unix_ms = until.map(|until| to_u64(WHAT, until)).transpose()?;
        Ok(ToggleRow { route: self.route_name(WHAT, route)?, name, model, value, until_unix_ms, standing })
    }
}

pub(super) fn key((id, name, sha256, created_unix_ms): KeyColumns) -> Result<KeyRow, StoreError> {
    Ok(KeyRow { id, name, sha256: to_bytes("key", &sha256)?, created_unix_ms: to_u64("key", created_unix_ms)? })
}

pub(super) fn replica((replica, version, listen, seen): ReplicaColumns) -> Result<ReplicaRow, StoreError> {
    Ok(ReplicaRow { replica, version, listen, last_seen_unix_ms: to_u64("replica", seen)? })
}

/// The last of each key, ordered by key: one statement can't write a row twice, and writers that lock rows in one order
/// don't deadlock.
pub(super) fn last_by<'a, T, K: Ord>(rows: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<&'a T> {
    rows.iter().map(|row| (key(row), row)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// What is left of binding writes when each session's last one counts.
pub(super) fn last_writes(writes: &[BindingWrite]) -> (Vec<&BindingRow>, Vec<(&RouteName, Fingerprint)>) {
    let session = |write: &BindingWrite| match write {
        BindingWrite::Put(row) => (row.fingerprint, row.route.clone()),
        BindingWrite::Forget { route, fingerprint } => (*fingerprint, route.clone()),
    };
    let mut put = Vec::with_capacity(writes.len());
    let mut forget = Vec::new();
    for write in last_by(writes, session) {
        match write {
            BindingWrite::Put(row) => put.push(row),
            BindingWrite::Forget { route, fingerprint } => forget.push((route, *fingerprint)),
        }
    }
    (put, forget)
}

/// One touch per session: the newest time, the sum of the requests.
pub(super) fn summed(touches: &[BindingTouch]) -> Vec<BindingTouch> {
    let mut sums: BTreeMap<(Fingerprint, &RouteName), BindingTouch> = BTreeMap::new();
    for touch in touches {
        sums.entry((touch.fingerprint, &touch.route))
            .and_modify(|sum| {
                sum.last_used_unix_ms = sum.last_used_unix_ms.max(touch.last_used_unix_ms);
                sum.more_requests = sum.more_requests.saturating_add(touch.more_requests);
            })
            .or_insert_with(|| touch.clone());
    }
    sums.into_values().collect()
}
