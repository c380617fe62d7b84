//! A fleet that reads its files when a test says so, on either database.

use std::path::PathBuf;

use router_policy::ids::RouteName;
use router_tests::postgres::{TestDatabase, required_or_skipped};
use serde_json::json;

use super::*;
use crate::files::{KeyStoreFile, RouteFile, key_store};
use crate::fleet::Selector;
use crate::store::MarkKind;

/// A database and a folder that outlive the fleets on them.
pub(super) struct Place {
    pub folder: tempfile::TempDir,
    database: Option<TestDatabase>,
}

impl Place {
    pub(super) fn sqlite() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: None }
    }

    pub(super) async fn postgres() -> Option<Self> {
        let database = required_or_skipped(TestDatabase::start().await)?;
        Some(Self { database: Some(database), ..Self::sqlite() })
    }

    /// A server of its own, which may be stopped.
    pub(super) async fn private_postgres() -> Option<Self> {
        let database = required_or_skipped(TestDatabase::start_private().await)?;
        Some(Self { database: Some(database), ..Self::sqlite() })
    }

    pub(super) fn database(&self) -> &TestDatabase {
        self.database.as_ref().unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn put(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;

        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(super) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    /// A control plane that does nothing by itself. Follows the key store that is there, and a control file.
    pub(super) async fn start(&self) -> Still {
        self.start_following(Some("default")).await
    }

    /// The control file, if any, speaks of this route.
    pub(super) async fn start_following(&self, route: Option<&str>) -> Still {
        let keys = self.path("keys");
        let key_store = keys.exists().then(|| KeyStoreFile {
            keys: key_store::parse(&std::fs::read(&keys).unwrap()).unwrap(),
            path: keys.clone(),
        });
        let control = |route| RouteFile { path: self.path("control"), route: RouteName::new(route).unwrap() };
        let sqlite = || format!("sqlite:{}", self.path("router.db").display());
        let config = Config {
            database_url: self.database.as_ref().map_or_else(sqlite, TestDatabase::url),
            sqlite_sync: SqliteSync::Normal,
            bootstrap: None,
            lease_ttl: Duration::from_secs(600),
            token: None,
            files: FileConfig { key_store, control_file: route.map(control), ..FileConfig::default() },
        };
        let (tracker, stop, stop_store) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let (fleet, _) = start(&config, String::new(), &tracker, &stop, &stop_store).await.unwrap();
        Still { fleet, tracker, stop, stop_store }
    }
}

pub(super) struct Still {
    pub fleet: Arc<Fleet>,
    pub tracker: TaskTracker,
    stop: CancellationToken,
    stop_store: CancellationToken,
}

impl Still {
    pub(super) async fn apply(&self, backends: &[&str]) {
        let document = json!({"name": "default", "default": true, "options": {"health_failures": 1000},
            "backends": backends});
        self.fleet.apply(&document, ApplyMode::default()).await.unwrap();
    }

    /// What is drained, and why.
    pub(super) fn drained(&self) -> Vec<(String, String)> {
        let states = self.fleet.pool("default").unwrap().backend_states();
        let drained = states.into_iter().filter(|state| state.condition.unwrap().draining);
        drained.map(|state| (state.address, state.reason)).collect()
    }

    pub(super) fn drained_names(&self) -> Vec<String> {
        self.drained().into_iter().map(|(address, _)| address).collect()
    }

    pub(super) async fn drain(&self, backend: &str, is_draining: bool) -> Result<(), tonic::Status> {
        let selector = Selector { backend, ..Selector::default() };
        self.fleet.set_drain(selector, is_draining).await.map(|_| ()).map_err(Into::into)
    }

    /// The drains in the database once everything that is queued has been written.
    pub(super) async fn stored_drains(&self) -> Vec<String> {
        self.fleet.context.marks.flush(&*self.fleet.store).await;
        self.drains_in_database().await
    }

    pub(super) async fn drains_in_database(&self) -> Vec<String> {
        let marks = self.fleet.store.load().await.unwrap().marks;
        let drains = marks.into_iter().filter(|mark| matches!(mark.kind, MarkKind::Drain | MarkKind::FileDrain));
        let mut names: Vec<String> = drains.map(|mark| mark.backend.to_string()).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(super) fn problem(&self, flag: &str) -> String {
        self.file(flag).problem
    }

    pub(super) fn note(&self, flag: &str) -> String {
        self.file(flag).note
    }

    fn file(&self, flag: &str) -> v1::FileState {
        self.fleet.files().into_iter().find(|file| file.flag == flag).unwrap()
    }

    /// Ends without a last word, as kill -9 does.
    pub(super) async fn kill(self) {
        self.stop.cancel();
        self.stop_store.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Runs each promise on both databases.
macro_rules! on_both_databases {
    ($($promise:ident,)*) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $promise() {
                    super::$promise(super::Place::sqlite()).await;
                }
            )*
        }

        #[tokio::test]
        async fn postgres_keeps_every_promise() {
            let Some(_held) = Place::postgres().await else { return };
            $(
                let Some(place) = Place::postgres().await else { return };
                $promise(place).await;
            )*
        }
    };
}
pub(super) use on_both_databases;
