//! What [`Store`] promises, run on both databases. Each promise starts with an empty installation.

use std::sync::Arc;

use router_policy::ids::{BackendId, Fingerprint, LeaseId, RouteName};
use router_tests::postgres::{TestDatabase, required_or_skipped};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tempfile::TempDir;

use super::{
    BindingRow, BindingWrite, KeyRow, LeaseRow, MarkKind, MarkRow, ReplicaRow, RouteRow, SqliteSync, Store, open,
};

mod files;
mod outage;
mod promises;

pub(super) fn route(name: &str) -> RouteName {
    RouteName::new(name).unwrap()
}

pub(super) fn backend(name: &str) -> BackendId {
    BackendId::new(name).unwrap()
}

pub(super) fn session(number: u32) -> Fingerprint {
    let mut bytes = [0xa5; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Fingerprint(bytes)
}

pub(super) fn route_row(name: &str) -> RouteRow {
    RouteRow { name: route(name), document: format!(r#"{{"name":"{name}","quote":"it's \"ü\" 漢"}}"#) }
}

pub(super) fn binding(name: &str, number: u32) -> BindingRow {
    BindingRow {
        route: route(name),
        fingerprint: session(number),
        backend: backend("10.0.0.1:8000"),
        dp_rank: None,
        created_unix_ms: 1_700_000_000_000,
        last_used_unix_ms: 1_700_000_000_000,
        requests: 1,
        moves: 0,
    }
}

pub(super) fn put(name: &str, number: u32) -> BindingWrite {
    BindingWrite::Put(binding(name, number))
}

pub(super) fn forget(name: &str, number: u32) -> BindingWrite {
    BindingWrite::Forget { route: route(name), fingerprint: session(number) }
}

pub(super) fn lease(name: &str, number: u64, replica: &str) -> LeaseRow {
    LeaseRow {
        lease: LeaseId::new(3, number),
        route: route(name),
        backend: backend("10.0.0.1:8000"),
        replica: replica.into(),
        fingerprint: Some(session(1)),
        granted_unix_ms: 1_700_000_000_000,
    }
}

fn mark(name: &str, kind: MarkKind) -> MarkRow {
    MarkRow {
        route: route(name),
        backend: backend("[::1]:8000"),
        kind,
        until_unix_ms: None,
        reason: "operator: \"maintenance\"\nrack 7's switch".into(),
    }
}

fn key(id: &str, name: &str, secret: u8) -> KeyRow {
    KeyRow { id: id.into(), name: name.into(), sha256: [secret; 32], created_unix_ms: 5 }
}

fn replica(id: &str) -> ReplicaRow {
    ReplicaRow { replica: id.into(), version: "0.1.0".into(), listen: "127.0.0.1:8080".into(), last_seen_unix_ms: 9 }
}

/// An empty database of its own.
enum Installation {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

impl Installation {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("router.db").display()),
            Self::Postgres(database) => database.url(),
        }
    }

    async fn open(&self) -> Arc<dyn Store> {
        open(&self.url(), SqliteSync::Normal).await.unwrap()
    }

    /// Past the store, as an operator with a shell could.
    async fn sql(&self, text: &'static str) {
        match self {
            Self::Sqlite(folder) => {
                let options = SqliteConnectOptions::new().filename(folder.path().join("router.db"));
                let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
                connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres(database) => {
                database.sql(text).await.unwrap();
            }
        }
    }
}

macro_rules! on_both_databases {
    ($($promise:ident,)*) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $promise() {
                    super::promises::$promise(super::Installation::sqlite()).await;
                }
            )*
        }

        /// One test, so that a runner with a process per test starts one cluster.
        #[tokio::test]
        async fn postgres_keeps_every_promise() {
            // Keeps the shared cluster up from one promise to the next.
            let Some(_held) = required_or_skipped(TestDatabase::start().await) else { return };
            $(
                let Some(database) = required_or_skipped(TestDatabase::start().await) else { return };
                promises::$promise(Installation::Postgres(database)).await;
            )*
        }
    };
}

on_both_databases![
    an_empty_installation_holds_nothing,
    epochs_count_up_over_restarts,
    the_first_fingerprint_key_stays,
    all_rows_come_back_after_a_restart,
    a_repeated_call_changes_nothing,
    the_last_write_of_a_session_counts,
    the_last_row_of_a_pool_a_payload_and_a_toggle_counts,
    touches_add_up_and_never_revive,
    rows_of_unknown_routes_are_passed_over,
    a_removed_route_takes_its_rows_along,
    a_removed_replica_takes_its_leases_along,
    conflicts_name_the_constraint,
    a_failing_batch_leaves_nothing,
    invalid_rows_are_refused,
    numbers_that_do_not_fit_are_refused,
    large_batches_are_one_call,
];

#[tokio::test]
async fn two_openers_of_one_postgres_agree() {
    let Some(database) = required_or_skipped(TestDatabase::start().await) else { return };
    let installation = Installation::Postgres(database);
    let (one, two) = tokio::join!(installation.open(), installation.open());
    let (first, second) = tokio::join!(one.fingerprint_key([1; 32]), two.fingerprint_key([2; 32]));
    assert_eq!(first.unwrap(), second.unwrap());
    let (first, second) = tokio::join!(one.begin_epoch(), two.begin_epoch());
    let mut epochs = [first.unwrap(), second.unwrap()];
    epochs.sort_unstable();
    assert_eq!(epochs, [1, 2]);

    // The other's removal of a route and writes for it, at the same time: whatever comes first, no orphan and no error.
    for _ in 0..20 {
        one.save_routes(&[route_row("chat")], &[]).await.unwrap();
        let writes: Vec<_> = (0..50).map(|number| put("chat", number)).collect();
        let name = [route("chat")];
        let (written, removed) = tokio::join!(one.save_bindings(&writes), two.save_routes(&[], &name));
        written.unwrap();
        removed.unwrap();
        assert!(one.load().await.unwrap().bindings.is_empty());
    }
}

#[tokio::test]
async fn one_postgres_has_one_control_plane() {
    let Some(database) = required_or_skipped(TestDatabase::start().await) else { return };
    let installation = Installation::Postgres(database);
    let (one, two) = tokio::join!(installation.open(), installation.open());
    assert!(one.claim().await.unwrap());
    assert!(!two.claim().await.unwrap(), "it is taken");
    drop(one);
    assert!(two.claim().await.unwrap(), "its holder has ended");
}
