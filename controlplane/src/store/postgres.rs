//! The store in Postgres: a small pool that survives outages.
//!
//! A call that gets no connection within 2 s, or no answer within [`CALL_TIMEOUT`], is [`StoreError::Unreachable`]; its
//! connection is thrown away and the next call makes a new one. A batch is one statement per table over arrays.

use std::time::Duration;

use async_trait::async_trait;
use router_policy::ids::{BackendId, LeaseId, RouteName};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgRow};
use sqlx::query::{Query, QueryScalar};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, FromRow, Postgres};

use self::columns::{BindingArrays, LeaseArrays, MarkArrays, flow_rows, payload_rows, toggle_rows};
use super::row::{last_by, last_writes, load_all, mark_text, summed, to_bytes, to_i64, to_u64};
use super::sql_error::CONNECT_TIMEOUT;
use super::{
    BindingTouch, BindingWrite, FlowRow, KeyRow, LeaseRow, MarkKind, MarkRow, PayloadCountsRow, ReplicaRow, RouteRow,
    Store, StoreError, Stored, ToggleRow,
};

mod columns;

pub(super) static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations/postgres");

/// How long a call may take once it has a connection.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a call may take that touches everything, or all of a route.
const LONG_TIMEOUT: Duration = Duration::from_secs(120);
/// One for the committer, one for the journal, the others for operators.
const CONNECTIONS: u32 = 4;
/// A connection that was used less long ago is trusted without a test.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

const PUT_ROUTES: &str = "INSERT INTO routes (name, document) SELECT * FROM unnest($1::text[], $2::text[]) \
     ON CONFLICT (name) DO UPDATE SET document = excluded.document";

const REMOVE_ROUTES: &str = "DELETE FROM routes WHERE name = ANY($1::text[])";

// `FOR KEY SHARE`: a route that is being removed at the same time is waited for, and its rows are then passed over.
const PUT_BINDINGS: &str = "WITH known AS (SELECT name FROM routes WHERE name = ANY($1::text[]) FOR KEY SHARE) \
     INSERT INTO bindings (route, fingerprint, backend, dp_rank, created_unix_ms, last_used_unix_ms, requests, moves) \
     SELECT row.* FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], \
     $7::bigint[], $8::bigint[]) AS row (route, fingerprint, backend, dp_rank, created, used, requests, moves) \
     JOIN known ON known.name = row.route \
     ON CONFLICT (route, fingerprint) DO UPDATE SET backend = excluded.backend, dp_rank = excluded.dp_rank, \
     created_unix_ms = excluded.created_unix_ms, last_used_unix_ms = excluded.last_used_unix_ms, \
     requests = excluded.requests, moves = excluded.moves";

const FORGET_BINDINGS: &str = "DELETE FROM bindings WHERE (route, fingerprint) IN \
     (SELECT * FROM unnest($1::text[], $2::bytea[]))";

const TOUCH_BINDINGS: &str = "UPDATE bindings SET last_used_unix_ms = greatest(last_used_unix_ms, used.at), \
     requests = requests + used.more \
     FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) AS used (route, fingerprint, at, more) \
     WHERE bindings.route = used.route AND bindings.fingerprint = used.fingerprint";

const PUT_LEASES: &str = "WITH known AS (SELECT name FROM routes WHERE name = ANY($2::text[]) FOR KEY SHARE) \
     INSERT INTO leases (lease, route, backend, replica, fingerprint, granted_unix_ms) \
     SELECT row.* FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[]) \
     AS row (lease, route, backend, replica, fingerprint, granted) JOIN known ON known.name = row.route \
     ON CONFLICT (lease) DO UPDATE SET route = excluded.route, backend = excluded.backend, \
     replica = excluded.replica, fingerprint = excluded.fingerprint, granted_unix_ms = excluded.granted_unix_ms";

const REMOVE_LEASES: &str = "DELETE FROM leases WHERE lease = ANY($1::bigint[])";

const PUT_MARKS: &str = "WITH known AS (SELECT name FROM routes WHERE name = ANY($1::text[]) FOR KEY SHARE) \
     INSERT INTO marks (route, backend, kind, until_unix_ms, reason) \
     SELECT row.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[]) \
     AS row (route, backend, kind, until, reason) JOIN known ON known.name = row.route \
     ON CONFLICT (route, backend, kind) DO UPDATE SET until_unix_ms = excluded.until_unix_ms, \
     reason = excluded.reason";

const REMOVE_MARKS: &str = "DELETE FROM marks WHERE (route, backend, kind) IN \
     (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))";

const PUT_FLOWS: &str = "WITH known AS (SELECT name FROM routes WHERE name = ANY($1::text[]) FOR KEY SHARE) \
     INSERT INTO flows (route, model, state, updated_unix_ms) \
     SELECT row.* FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS row (route, model, state, updated) \
     JOIN known ON known.name = row.route \
     ON CONFLICT (route, model) DO UPDATE SET state = excluded.state, updated_unix_ms = excluded.updated_unix_ms";

const PUT_PAYLOADS: &str = "WITH known AS (SELECT name FROM routes WHERE name = ANY($1::text[]) FOR KEY SHARE) \
     INSERT INTO payload_counts (route, state, updated_unix_ms) \
     SELECT row.* FROM unnest($1::text[], $2::text[], $3::bigint[]) AS row (route, state, updated) \
     JOIN known ON known.name = row.route \
     ON CONFLICT (route) DO UPDATE SET state = excluded.state, updated_unix_ms = excluded.updated_unix_ms";

const PUT_TOGGLES: &str = "WITH known AS (SELECT name FROM routes WHERE name = ANY($1::text[]) FOR KEY SHARE) \
     INSERT INTO toggles (route, name, model, value, until_unix_ms, standing) \
     SELECT row.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[]) \
     AS row (route, name, model, value, until, standing) JOIN known ON known.name = row.route \
     ON CONFLICT (route, name, model) DO UPDATE SET value = excluded.value, until_unix_ms = excluded.until_unix_ms, \
     standing = excluded.standing";

const REMOVE_TOGGLES: &str = "DELETE FROM toggles WHERE (route, name, model) IN \
     (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))";

const PUT_KEY: &str = "INSERT INTO keys (id, name, sha256, created_unix_ms) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (id) DO UPDATE SET name = excluded.name, sha256 = excluded.sha256, \
     created_unix_ms = excluded.created_unix_ms";

const PUT_REPLICAS: &str = "INSERT INTO replicas (replica, version, listen, last_seen_unix_ms) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) \
     ON CONFLICT (replica) DO UPDATE SET version = excluded.version, listen = excluded.listen, \
     last_seen_unix_ms = excluded.last_seen_unix_ms";

/// Names the claim among the database's advisory locks.
const CLAIM_KEY: i64 = 0x0072_6f75_7465_7201;
/// How long a predecessor may take to let go.
const CLAIM_WITHIN: Duration = Duration::from_secs(3);
const CLAIM_AGAIN: Duration = Duration::from_millis(50);

/// The pool.
pub(super) struct PostgresStore {
    pool: PgPool,
    options: PgConnectOptions,
    /// Holds the claim: the server lets go of it when this connection ends.
    claim: tokio::sync::Mutex<Option<PgConnection>>,
}

type Step<'q> = Query<'q, Postgres, PgArguments>;

impl PostgresStore {
    /// Makes one connection, to know that it works, and the pool.
    pub(super) async fn open(options: PgConnectOptions) -> Result<Self, StoreError> {
        let options = options.application_name("routerctl controlplane").disable_statement_logging();
        let first = tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&options)).await;
        first.map_err(|_| no_answer(CONNECT_TIMEOUT))??.close().await?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            // Never reached: the health says what a log line would.
            .acquire_slow_threshold(CONNECT_TIMEOUT * 2)
            .test_before_acquire(false)
            .before_acquire(|connection, usage| {
                Box::pin(async move {
                    let is_stale = usage.idle_for > TRUSTED_IDLE;
                    Ok(!is_stale || connection.ping().await.is_ok())
                })
            })
            .connect_lazy_with(options.clone());
        Ok(Self { pool, options, claim: tokio::sync::Mutex::default() })
    }

    pub(super) async fn migrate(&self) -> Result<(), sqlx::migrate::MigrateError> {
        MIGRATIONS.run_direct(None, &mut *self.pool.acquire().await?, false).await
    }

    /// Runs the steps in one transaction; one alone is its own.
    async fn write<const N: usize>(&self, steps: [Option<Step<'_>>; N]) -> Result<(), StoreError> {
        self.write_within(CALL_TIMEOUT, steps).await
    }

    async fn write_within<const N: usize>(
        &self,
        limit: Duration,
        steps: [Option<Step<'_>>; N],
    ) -> Result<(), StoreError> {
        let steps: Vec<Step<'_>> = steps.into_iter().flatten().collect();
        if steps.is_empty() {
            return Ok(());
        }
        let mut connection = self.pool.acquire().await?;
        let outcome = tokio::time::timeout(limit, run(&mut connection, steps)).await;
        settle(connection, outcome.unwrap_or_else(|_| Err(no_answer(limit))))
    }

    /// Runs one statement that returns one value.
    async fn ask<T>(&self, query: QueryScalar<'_, Postgres, T, PgArguments>) -> Result<T, StoreError>
    where
        T: Send + Unpin,
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        let mut connection = self.pool.acquire().await?;
        let outcome = match tokio::time::timeout(CALL_TIMEOUT, query.fetch_one(&mut *connection)).await {
            Ok(answer) => answer.map_err(StoreError::from),
            Err(_) => Err(no_answer(CALL_TIMEOUT)),
        };
        settle(connection, outcome)
    }
}

async fn run(connection: &mut PgConnection, mut steps: Vec<Step<'_>>) -> Result<(), StoreError> {
    if steps.len() == 1 {
        if let Some(only) = steps.pop() {
            connection.execute(only).await?;
        }
        return Ok(());
    }
    let mut tx = connection.begin().await?;
    for step in steps {
        tx.execute(step).await?;
    }
    Ok(tx.commit().await?)
}

fn no_answer(limit: Duration) -> StoreError {
    StoreError::Unreachable(format!("no answer within {} s", limit.as_secs()))
}

/// Gives the connection back, unless it may be broken.
fn settle<T>(connection: PoolConnection<Postgres>, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
    if outcome.as_ref().is_err_and(StoreError::is_transient) {
        drop(connection.detach());
    }
    outcome
}

fn names(routes: &[RouteName]) -> Vec<String> {
    routes.iter().map(|route| route.as_str().to_owned()).collect()
}

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn begin_epoch(&self) -> Result<u64, StoreError> {
        let sql = "UPDATE installation SET epoch = epoch + 1 RETURNING epoch";
        to_u64("epoch", self.ask(sqlx::query_scalar(sql)).await?)
    }

    async fn fingerprint_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let sql = "UPDATE installation SET fingerprint_key = coalesce(fingerprint_key, $1) RETURNING fingerprint_key";
        let key: Vec<u8> = self.ask(sqlx::query_scalar(sql).bind(fresh.to_vec())).await?;
        to_bytes("fingerprint key", &key)
    }

    async fn load(&self) -> Result<Stored, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let outcome = tokio::time::timeout(LONG_TIMEOUT, load(&mut connection)).await;
        settle(connection, outcome.unwrap_or_else(|_| Err(no_answer(LONG_TIMEOUT))))
    }

    async fn save_routes_marked(
        &self,
        put: &[RouteRow],
        remove: &[RouteName],
        marks: &[MarkRow],
    ) -> Result<(), StoreError> {
        let marks = last_by(marks, |row| (&row.route, &row.backend, row.kind));
        let arrays = MarkArrays::new(&marks)?;
        let rows = last_by(put, |row| &row.name);
        let put_names: Vec<_> = rows.iter().map(|row| row.name.as_str().to_owned()).collect();
        let documents: Vec<_> = rows.iter().map(|row| row.document.clone()).collect();
        self.write_within(
            LONG_TIMEOUT,
            [
                (!remove.is_empty()).then(|| sqlx::query(REMOVE_ROUTES).bind(names(remove))),
                (!rows.is_empty()).then(|| sqlx::query(PUT_ROUTES).bind(put_names).bind(documents)),
                (!marks.is_empty()).then(|| arrays.bind(sqlx::query(PUT_MARKS))),
            ],
        )
        .await
    }

    async fn save_bindings(&self, writes: &[BindingWrite]) -> Result<(), StoreError> {
        let (put, forget) = last_writes(writes);
        let (routes, fingerprints): (Vec<_>, Vec<_>) =
            forget.iter().map(|(route, session)| (route.as_str().to_owned(), session.0.to_vec())).unzip();
        let arrays = BindingArrays::new(&put)?;
        self.write([
            (!forget.is_empty()).then(|| sqlx::query(FORGET_BINDINGS).bind(routes).bind(fingerprints)),
            (!put.is_empty()).then(|| arrays.bind(sqlx::query(PUT_BINDINGS))),
        ])
        .await
    }

    async fn touch_bindings(&self, touches: &[BindingTouch]) -> Result<(), StoreError> {
        let sums = summed(touches);
        let routes: Vec<_> = sums.iter().map(|touch| touch.route.as_str().to_owned()).collect();
        let fingerprints: Vec<_> = sums.iter().map(|touch| touch.fingerprint.0.to_vec()).collect();
        let at = sums.iter().map(|touch| to_i64(touch.last_used_unix_ms)).collect::<Result<Vec<_>, _>>()?;
        let more = sums.iter().map(|touch| to_i64(touch.more_requests)).collect::<Result<Vec<_>, _>>()?;
        let query = || sqlx::query(TOUCH_BINDINGS).bind(routes).bind(fingerprints).bind(at).bind(more);
        self.write([(!sums.is_empty()).then(query)]).await
    }

    async fn save_leases(&self, put: &[LeaseRow], remove: &[LeaseId]) -> Result<(), StoreError> {
        let removed = remove.iter().map(|lease| to_i64(lease.0)).collect::<Result<Vec<_>, _>>()?;
        let rows = last_by(put, |row| row.lease);
        let arrays = LeaseArrays::new(&rows)?;
        self.write([
            (!removed.is_empty()).then(|| sqlx::query(REMOVE_LEASES).bind(removed)),
            (!rows.is_empty()).then(|| arrays.bind(sqlx::query(PUT_LEASES))),
        ])
        .await
    }

    async fn save_marks(&self, put: &[MarkRow], remove: &[(RouteName, BackendId, MarkKind)]) -> Result<(), StoreError> {
        let routes: Vec<_> = remove.iter().map(|(route, ..)| route.as_str().to_owned()).collect();
        let backends: Vec<_> = remove.iter().map(|(_, backend, _)| backend.as_str().to_owned()).collect();
        let kinds: Vec<_> = remove.iter().map(|(.., kind)| mark_text(*kind)).collect();
        let rows = last_by(put, |row| (&row.route, &row.backend, row.kind));
        let arrays = MarkArrays::new(&rows)?;
        self.write([
            (!remove.is_empty()).then(|| sqlx::query(REMOVE_MARKS).bind(routes).bind(backends).bind(kinds)),
            (!rows.is_empty()).then(|| arrays.bind(sqlx::query(PUT_MARKS))),
        ])
        .await
    }

    async fn save_flows(&self, flows: &[FlowRow]) -> Result<(), StoreError> {
        let rows = last_by(flows, |row| (&row.route, &row.model));
        let put = flow_rows(sqlx::query(PUT_FLOWS), &rows)?;
        self.write([(!rows.is_empty()).then_some(put)]).await
    }

    async fn save_payload_counts(&self, counts: &[PayloadCountsRow]) -> Result<(), StoreError> {
        let rows = last_by(counts, |row| &row.route);
        let put = payload_rows(sqlx::query(PUT_PAYLOADS), &rows)?;
        self.write([(!rows.is_empty()).then_some(put)]).await
    }

    async fn save_toggles(&self, put: &[ToggleRow], remove: &[(RouteName, String, String)]) -> Result<(), StoreError> {
        let routes: Vec<_> = remove.iter().map(|(route, ..)| route.as_str().to_owned()).collect();
        let names: Vec<_> = remove.iter().map(|(_, name, _)| name.clone()).collect();
        let models: Vec<_> = remove.iter().map(|(.., model)| model.clone()).collect();
        let rows = last_by(put, |row| (&row.route, &row.name, &row.model));
        let put = toggle_rows(sqlx::query(PUT_TOGGLES), &rows)?;
        self.write([
            (!remove.is_empty()).then(|| sqlx::query(REMOVE_TOGGLES).bind(routes).bind(names).bind(models)),
            (!rows.is_empty()).then_some(put),
        ])
        .await
    }

    async fn add_key(&self, key: &KeyRow) -> Result<(), StoreError> {
        let created = to_i64(key.created_unix_ms)?;
        let query = sqlx::query(PUT_KEY).bind(&key.id).bind(&key.name).bind(key.sha256.to_vec()).bind(created);
        self.write([Some(query)]).await
    }

    async fn remove_key(&self, id: &str) -> Result<(), StoreError> {
        self.write([Some(sqlx::query("DELETE FROM keys WHERE id = $1").bind(id))]).await
    }

    async fn save_replicas(&self, replicas: &[ReplicaRow]) -> Result<(), StoreError> {
        let rows = last_by(replicas, |row| &row.replica);
        let ids: Vec<_> = rows.iter().map(|row| row.replica.clone()).collect();
        let versions: Vec<_> = rows.iter().map(|row| row.version.clone()).collect();
        let listens: Vec<_> = rows.iter().map(|row| row.listen.clone()).collect();
        let seen = rows.iter().map(|row| to_i64(row.last_seen_unix_ms)).collect::<Result<Vec<_>, _>>()?;
        let query = || sqlx::query(PUT_REPLICAS).bind(ids).bind(versions).bind(listens).bind(seen);
        self.write([(!rows.is_empty()).then(query)]).await
    }

    async fn remove_replica(&self, replica: &str) -> Result<(), StoreError> {
        self.write([
            Some(sqlx::query("DELETE FROM leases WHERE replica = $1").bind(replica)),
            Some(sqlx::query("DELETE FROM replicas WHERE replica = $1").bind(replica)),
        ])
        .await
    }

    async fn claim(&self) -> Result<bool, StoreError> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let deadline = tokio::time::Instant::now() + CLAIM_WITHIN;
        loop {
            let asked = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(CLAIM_KEY);
            if asked.fetch_one(&mut connection).await? {
                *self.claim.lock().await = Some(connection);
                return Ok(true);
            }
            // A predecessor that was killed is gone as soon as the server has noticed.
            if tokio::time::Instant::now() >= deadline {
                return Ok(false);
            }
            tokio::time::sleep(CLAIM_AGAIN).await;
        }
    }

    async fn ping(&self) -> Result<(), StoreError> {
        // A write that changes nothing: a full disk or a standby still answers reads.
        self.write([Some(sqlx::query("UPDATE installation SET epoch = epoch"))]).await
    }
}

async fn load(connection: &mut PgConnection) -> Result<Stored, StoreError> {
    let mut tx = connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let stored = load_all!(tx);
    tx.commit().await?;
    Ok(stored)
}
