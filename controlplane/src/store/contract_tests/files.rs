//! What a `SQLite` file must be, and what a killed process leaves behind.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use super::{Installation, binding, put, route_row};
use crate::store::{MarkKind, OpenError, SqliteSync, Store, open};

async fn open_file(path: &Path) -> Result<Arc<dyn Store>, OpenError> {
    open(&format!("sqlite://{}", path.display()), SqliteSync::Full).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn refusal(path: &Path) -> OpenError {
    match open_file(path).await {
        Ok(_) => panic!("opened"),
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            error
        }
    }
}

#[tokio::test]
async fn files_are_made_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.db");
    let store = open_file(&path).await.unwrap();
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["router.db", "router.db-shm", "router.db-wal", "router.db.lock"]);
}

#[tokio::test]
async fn files_that_others_can_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.db");
    drop(open_file(&path).await.unwrap());
    for bits in [0o640, 0o604, 0o620, 0o602, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        let error = refusal(&path).await;
        assert!(matches!(&error, OpenError::FileMode { mode, .. } if *mode == bits), "{error}");
        assert!(error.to_string().contains(&format!("chmod 600 {}", path.display())), "{error}");
    }
    for bits in [0o600, 0o700] {
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        drop(open_file(&path).await.unwrap());
    }
}

#[tokio::test]
async fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.db");
    drop(open_file(&path).await.unwrap());
    let link = folder.path().join("link.db");
    symlink(&path, &link).unwrap();
    let dangling = folder.path().join("dangling.db");
    symlink(folder.path().join("nowhere"), &dangling).unwrap();
    for (path, kind) in
        [(link.as_path(), "a symbolic link"), (&dangling, "a symbolic link"), (folder.path(), "a folder")]
    {
        let error = refusal(path).await;
        assert!(matches!(&error, OpenError::FileKind { found, .. } if *found == kind), "{error}");
    }
    assert!(!folder.path().join("nowhere").exists());
    assert!(!folder.path().join("link.db.lock").exists());

    let text = folder.path().join("notes.txt");
    fs::write(&text, "not a database, but long enough to be looked at".repeat(100)).unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o600)).unwrap();
    let error = refusal(&text).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    let error = refusal(&folder.path().join("no/such/folder/router.db")).await;
    assert!(matches!(error, OpenError::File { .. }), "{error}");
}

#[tokio::test]
async fn one_file_has_one_opener() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.db");
    let store = open_file(&path).await.unwrap();
    let error = refusal(&path).await;
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    store.ping().await.unwrap();
    drop(store);
    drop(open_file(&path).await.unwrap());
}

#[tokio::test]
async fn a_predecessor_that_is_just_ending_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.db");
    let first = open_file(&path).await.unwrap();
    let opening = open_file(&path);
    tokio::pin!(opening);
    assert!(futures_util::poll!(&mut opening).is_pending(), "the file is held");
    drop(first);
    drop(opening.await.unwrap());
}

/// The files as they are on disk right after an answer, with nothing closed or flushed: what kill -9 leaves.
#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let installation = Installation::sqlite();
    let Installation::Sqlite(folder) = &installation else { unreachable!() };
    let store = installation.open().await;
    store.save_routes(&[route_row("chat")], &[]).await.unwrap();
    for number in 0..100 {
        store.save_bindings(&[put("chat", number)]).await.unwrap();
    }
    let copy = tempfile::tempdir().unwrap();
    for name in ["router.db", "router.db-wal"] {
        fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    drop(store);
    let survivor = Installation::Sqlite(copy).open().await;
    let stored = survivor.load().await.unwrap();
    assert_eq!(stored.routes, [route_row("chat")]);
    assert_eq!(stored.bindings, (0..100).map(|number| binding("chat", number)).collect::<Vec<_>>());
}

#[tokio::test]
async fn drains_that_only_their_reason_told_apart_get_their_kinds() {
    use sqlx::{Connection as _, SqliteConnection};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("router.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut before = SqliteConnection::connect_with(&options).await.unwrap();
    let first = sqlx::migrate::Migrator {
        migrations: crate::store::sqlite::MIGRATIONS.iter().take(1).cloned().collect(),
        ..sqlx::migrate::Migrator::DEFAULT
    };
    first.run(&mut before).await.unwrap();
    let rows = "INSERT INTO routes VALUES ('chat', '{}'); \
        INSERT INTO marks VALUES ('chat', 'a:1', 'drain', NULL, 'not in enabled_ports of the control file'), \
        ('chat', 'a:2', 'drain', NULL, 'drained by an operator'), ('chat', 'a:3', 'ban', 7, 'banned by an operator')";
    sqlx::raw_sql(rows).execute(&mut before).await.unwrap();
    before.close().await.unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let marks = open_file(&path).await.unwrap().load().await.unwrap().marks;
    let mut kinds: Vec<_> = marks.iter().map(|mark| (mark.backend.as_str(), mark.kind)).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [("a:1", MarkKind::FileDrain), ("a:2", MarkKind::Drain), ("a:3", MarkKind::Ban)]);
    assert_eq!(marks.iter().filter_map(|mark| mark.until_unix_ms).collect::<Vec<_>>(), [7]);
}
