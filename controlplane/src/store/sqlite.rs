//! The store in one `SQLite` file: one connection, one process.
//!
//! Every write is one statement per table over a JSON list, its only bound value: a batch of any size costs one step of
//! the connection's thread, and one transaction.

use std::fs::File;

use async_trait::async_trait;
use router_policy::ids::{BackendId, LeaseId, RouteName};
use serde_json::to_string;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Executor as _};
use tokio::sync::Mutex;

use super::row::{last_by, last_writes, load_all, mark_text, summed, to_bytes, to_i64, to_u64};
use super::{
    BindingTouch, BindingWrite, FlowRow, KeyRow, LeaseRow, MarkKind, MarkRow, PayloadCountsRow, ReplicaRow, RouteRow,
    Store, StoreError, Stored, ToggleRow,
};

pub(super) mod file;

pub(super) static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations/sqlite");

const PUT_ROUTES: &str = "INSERT INTO routes (name, document) SELECT value ->> 0, value ->> 1 FROM json_each(?1) \
     WHERE true ON CONFLICT (name) DO UPDATE SET document = excluded.document";

const REMOVE_ROUTES: &str = "DELETE FROM routes WHERE name IN (SELECT value FROM json_each(?1))";

const PUT_BINDINGS: &str = "INSERT INTO bindings (route, fingerprint, backend, dp_rank, created_unix_ms, \
     last_used_unix_ms, requests, moves) \
     SELECT value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, \
     value ->> 7 FROM json_each(?1) WHERE EXISTS (SELECT 1 FROM routes WHERE name = value ->> 0) \
     ON CONFLICT (route, fingerprint) DO UPDATE SET backend = excluded.backend, dp_rank = excluded.dp_rank, \
     created_unix_ms = excluded.created_unix_ms, last_used_unix_ms = excluded.last_used_unix_ms, \
     requests = excluded.requests, moves = excluded.moves";

const FORGET_BINDINGS: &str = "DELETE FROM bindings WHERE (route, fingerprint) IN \
     (SELECT value ->> 0, unhex(value ->> 1) FROM json_each(?1))";

const TOUCH_BINDINGS: &str = "UPDATE bindings SET last_used_unix_ms = max(bindings.last_used_unix_ms, used.at), \
     requests = requests + used.more \
     FROM (SELECT value ->> 0 AS route, unhex(value ->> 1) AS fingerprint, value ->> 2 AS at, value ->> 3 AS more \
     FROM json_each(?1)) AS used \
     WHERE bindings.route = used.route AND bindings.fingerprint = used.fingerprint";

const PUT_LEASES: &str = "INSERT INTO leases (lease, route, backend, replica, fingerprint, granted_unix_ms) \
     SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, unhex(value ->> 4), value ->> 5 FROM json_each(?1) \
     WHERE EXISTS (SELECT 1 FROM routes WHERE name = value ->> 1) \
     ON CONFLICT (lease) DO UPDATE SET route = excluded.route, backend = excluded.backend, \
     replica = excluded.replica, fingerprint = excluded.fingerprint, granted_unix_ms = excluded.granted_unix_ms";

const REMOVE_LEASES: &str = "DELETE FROM leases WHERE lease IN (SELECT value FROM json_each(?1))";

const PUT_MARKS: &str = "INSERT INTO marks (route, backend, kind, until_unix_ms, reason) \
     SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?1) \
     WHERE EXISTS (SELECT 1 FROM routes WHERE name = value ->> 0) \
     ON CONFLICT (route, backend, kind) DO UPDATE SET until_unix_ms = excluded.until_unix_ms, \
     reason = excluded.reason";

const REMOVE_MARKS: &str = "DELETE FROM marks WHERE (route, backend, kind) IN \
     (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))";

const PUT_FLOWS: &str = "INSERT INTO flows (route, model, state, updated_unix_ms) \
     SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?1) \
     WHERE EXISTS (SELECT 1 FROM routes WHERE name = value ->> 0) \
     ON CONFLICT (route, model) DO UPDATE SET state = excluded.state, updated_unix_ms = excluded.updated_unix_ms";

const PUT_PAYLOADS: &str = "INSERT INTO payload_counts (route, state, updated_unix_ms) \
     SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1) \
     WHERE EXISTS (SELECT 1 FROM routes WHERE name = value ->> 0) \
     ON CONFLICT (route) DO UPDATE SET state = excluded.state, updated_unix_ms = excluded.updated_unix_ms";

const PUT_TOGGLES: &str = "INSERT INTO toggles (route, name, model, value, until_unix_ms, standing) \
     SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(?1) \
     WHERE EXISTS (SELECT 1 FROM routes WHERE name = value ->> 0) \
     ON CONFLICT (route, name, model) DO UPDATE SET value = excluded.value, until_unix_ms = excluded.until_unix_ms, \
     standing = excluded.standing";

const REMOVE_TOGGLES: &str = "DELETE FROM toggles WHERE (route, name, model) IN \
     (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))";

const PUT_KEY: &str = "INSERT INTO keys (id, name, sha256, created_unix_ms) \
     SELECT value ->> 0, value ->> 1, unhex(value ->> 2), value ->> 3 FROM json_each(?1) WHERE true \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, sha256 = excluded.sha256, \
     created_unix_ms = excluded.created_unix_ms";

const REMOVE_KEY: &str = "DELETE FROM keys WHERE id IN (SELECT value FROM json_each(?1))";

const PUT_REPLICAS: &str = "INSERT INTO replicas (replica, version, listen, last_seen_unix_ms) \
     SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?1) WHERE true \
     ON CONFLICT (replica) DO UPDATE SET version = excluded.version, listen = excluded.listen, \
     last_seen_unix_ms = excluded.last_seen_unix_ms";

const REMOVE_REPLICA_LEASES: &str = "DELETE FROM leases WHERE replica IN (SELECT value FROM json_each(?1))";

const REMOVE_REPLICA: &str = "DELETE FROM replicas WHERE replica IN (SELECT value FROM json_each(?1))";

/// The open file.
pub(super) struct SqliteStore {
    connection: Mutex<SqliteConnection>,
    /// Held for life, so that no second process opens the file; dropped after the connection.
    _exclusive: File,
}

/// A statement and the JSON list that it works on.
type Step = (&'static str, String);

/// `None` when there is nothing to do.
fn step(sql: &'static str, rows: usize, json: serde_json::Result<String>) -> Result<Option<Step>, StoreError> {
    let json = json.map_err(|error| StoreError::Other(error.to_string()))?;
    Ok((rows > 0).then_some((sql, json)))
}

fn put_marks(marks: &[MarkRow]) -> Result<Option<Step>, StoreError> {
    let mut rows = Vec::with_capacity(marks.len());
    for row in last_by(marks, |row| (&row.route, &row.backend, row.kind)) {
        rows.push((
            row.route.as_str(),
            row.backend.as_str(),
            mark_text(row.kind),
            row.until_unix_ms.map(to_i64).transpose()?,
            &row.reason,
        ));
    }
    step(PUT_MARKS, rows.len(), to_string(&rows))
}

fn hex(bytes: &[u8; 32]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl SqliteStore {
    pub(super) async fn open(options: &SqliteConnectOptions, exclusive: File) -> Result<Self, sqlx::Error> {
        let connection = SqliteConnection::connect_with(options).await?;
        Ok(Self { connection: Mutex::new(connection), _exclusive: exclusive })
    }

    pub(super) async fn migrate(&self) -> Result<(), sqlx::migrate::MigrateError> {
        MIGRATIONS.run_direct(None, &mut *self.connection.lock().await, false).await
    }

    /// Runs the steps in one transaction; one alone is its own.
    async fn write<const N: usize>(&self, steps: [Option<Step>; N]) -> Result<(), StoreError> {
        let mut steps: Vec<Step> = steps.into_iter().flatten().collect();
        let Some((last_sql, last_json)) = steps.pop() else { return Ok(()) };
        let mut connection = self.connection.lock().await;
        if steps.is_empty() {
            connection.execute(sqlx::query(last_sql).bind(last_json)).await?;
            return Ok(());
        }
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        for (sql, json) in steps {
            tx.execute(sqlx::query(sql).bind(json)).await?;
        }
        tx.execute(sqlx::query(last_sql).bind(last_json)).await?;
        Ok(tx.commit().await?)
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    async fn begin_epoch(&self) -> Result<u64, StoreError> {
        let sql = "UPDATE installation SET epoch = epoch + 1 RETURNING epoch";
        let epoch: i64 = sqlx::query_scalar(sql).fetch_one(&mut *self.connection.lock().await).await?;
        to_u64("epoch", epoch)
    }

    async fn fingerprint_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let sql = "UPDATE installation SET fingerprint_key = coalesce(fingerprint_key, ?1) RETURNING fingerprint_key";
        let query = sqlx::query_scalar(sql).bind(fresh.to_vec());
        let key: Vec<u8> = query.fetch_one(&mut *self.connection.lock().await).await?;
        to_bytes("fingerprint key", &key)
    }

    async fn load(&self) -> Result<Stored, StoreError> {
        let mut connection = self.connection.lock().await;
        let mut tx = connection.begin().await?;
        Ok(load_all!(tx))
    }

    async fn save_routes_marked(
        &self,
        put: &[RouteRow],
        remove: &[RouteName],
        marks: &[MarkRow],
    ) -> Result<(), StoreError> {
        let removed: Vec<_> = remove.iter().map(RouteName::as_str).collect();
        let put: Vec<_> =
            last_by(put, |row| &row.name).into_iter().map(|row| (row.name.as_str(), &row.document)).collect();
        self.write([
            step(REMOVE_ROUTES, removed.len(), to_string(&removed))?,
            step(PUT_ROUTES, put.len(), to_string(&put))?,
            put_marks(marks)?,
        ])
        .await
    }

    async fn save_bindings(&self, writes: &[BindingWrite]) -> Result<(), StoreError> {
        let (put, forget) = last_writes(writes);
        let forget: Vec<_> = forget.iter().map(|(route, session)| (route.as_str(), session.to_string())).collect();
        let mut rows = Vec::with_capacity(put.len());
        for row in put {
            rows.push((
                row.route.as_str(),
                row.fingerprint.to_string(),
                row.backend.as_str(),
                row.dp_rank,
                to_i64(row.created_unix_ms)?,
                to_i64(row.last_used_unix_ms)?,
                to_i64(row.requests)?,
                row.moves,
            ));
        }
        self.write([
            step(FORGET_BINDINGS, forget.len(), to_string(&forget))?,
            step(PUT_BINDINGS, rows.len(), to_string(&rows))?,
        ])
        .await
    }

    async fn touch_bindings(&self, touches: &[BindingTouch]) -> Result<(), StoreError> {
        let sums = summed(touches);
        let mut rows = Vec::with_capacity(sums.len());
        for touch in &sums {
            let fingerprint = touch.fingerprint.to_string();
            rows.push((
                touch.route.as_str(),
                fingerprint,
                to_i64(touch.last_used_unix_ms)?,
                to_i64(touch.more_requests)?,
            ));
        }
        self.write([step(TOUCH_BINDINGS, rows.len(), to_string(&rows))?]).await
    }

    async fn save_leases(&self, put: &[LeaseRow], remove: &[LeaseId]) -> Result<(), StoreError> {
        let removed = remove.iter().map(|lease| to_i64(lease.0)).collect::<Result<Vec<_>, _>>()?;
        let mut rows = Vec::with_capacity(put.len());
        for row in last_by(put, |row| row.lease) {
            rows.push((
                to_i64(row.lease.0)?,
                row.route.as_str(),
                row.backend.as_str(),
                &row.replica,
                row.fingerprint.map(|fingerprint| fingerprint.to_string()),
                to_i64(row.granted_unix_ms)?,
            ));
        }
        self.write([
            step(REMOVE_LEASES, removed.len(), to_string(&removed))?,
            step(PUT_LEASES, rows.len(), to_string(&rows))?,
        ])
        .await
    }

    async fn save_marks(&self, put: &[MarkRow], remove: &[(RouteName, BackendId, MarkKind)]) -> Result<(), StoreError> {
        let removed: Vec<_> =
            remove.iter().map(|(route, backend, kind)| (route.as_str(), backend.as_str(), mark_text(*kind))).collect();
        self.write([step(REMOVE_MARKS, removed.len(), to_string(&removed))?, put_marks(put)?]).await
    }

    async fn save_flows(&self, flows: &[FlowRow]) -> Result<(), StoreError> {
        let mut rows = Vec::with_capacity(flows.len());
        for row in last_by(flows, |row| (&row.route, &row.model)) {
            rows.push((row.route.as_str(), &row.model, &row.state, to_i64(row.updated_unix_ms)?));
        }
        self.write([step(PUT_FLOWS, rows.len(), to_string(&rows))?]).await
    }

    async fn save_payload_counts(&self, counts: &[PayloadCountsRow]) -> Result<(), StoreError> {
        let mut rows = Vec::with_capacity(counts.len());
        for row in last_by(counts, |row| &row.route) {
            rows.push((row.route.as_str(), &row.state, to_i64(row.updated_unix_ms)?));
        }
        self.write([step(PUT_PAYLOADS, rows.len(), to_string(&rows))?]).await
    }

    async fn save_toggles(&self, put: &[ToggleRow], remove: &[(RouteName, String, String)]) -> Result<(), StoreError> {
        let removed: Vec<_> = remove.iter().map(|(route, name, model)| (route.as_str(), name, model)).collect();
        let mut rows = Vec::with_capacity(put.len());
        for row in last_by(put, |row| (&row.route, &row.name, &row.model)) {
            let until = row.until_unix_ms.map(to_i64).transpose()?;
            rows.push((row.route.as_str(), &row.name, &row.model, &row.value, until, &row.standing));
        }
        self.write([
            step(REMOVE_TOGGLES, removed.len(), to_string(&removed))?,
            step(PUT_TOGGLES, rows.len(), to_string(&rows))?,
        ])
        .await
    }

    async fn add_key(&self, key: &KeyRow) -> Result<(), StoreError> {
        let row = (&key.id, &key.name, hex(&key.sha256), to_i64(key.created_unix_ms)?);
        self.write([step(PUT_KEY, 1, to_string(&[row]))?]).await
    }

    async fn remove_key(&self, id: &str) -> Result<(), StoreError> {
        self.write([step(REMOVE_KEY, 1, to_string(&[id]))?]).await
    }

    async fn save_replicas(&self, replicas: &[ReplicaRow]) -> Result<(), StoreError> {
        let mut rows = Vec::with_capacity(replicas.len());
        for row in last_by(replicas, |row| &row.replica) {
            rows.push((&row.replica, &row.version, &row.listen, to_i64(row.last_seen_unix_ms)?));
        }
        self.write([step(PUT_REPLICAS, rows.len(), to_string(&rows))?]).await
    }

    async fn remove_replica(&self, replica: &str) -> Result<(), StoreError> {
        self.write([
            step(REMOVE_REPLICA_LEASES, 1, to_string(&[replica]))?,
            step(REMOVE_REPLICA, 1, to_string(&[replica]))?,
        ])
        .await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        // A write that changes nothing: a full or failing disk still answers reads.
        let query = sqlx::query("UPDATE installation SET epoch = epoch");
        self.connection.lock().await.execute(query).await?;
        Ok(())
    }
}
