//! From a database URL to a [`Store`] that is ready: schema in place, exclusive where it must be.
//!
//! Nothing that is printed names a password: errors speak of the host, port and database only.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::postgres::PgConnectOptions;

use super::postgres::PostgresStore;
use super::sqlite::{self, SqliteStore};
use super::{Store, StoreError};

/// How long a predecessor that is just ending may keep the file's lock; and how often it is looked at.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// How hard `SQLite` makes a commit (`PRAGMA synchronous`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SqliteSync {
    /// Survives kill -9 of the process; a power loss may take the last commits.
    #[default]
    Normal,
    /// Survives a power loss too; one fsync per commit.
    Full,
}

/// Why the database could not be opened. Each text is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Not a URL of a known database.
    #[error(
        "database URL not understood ({problem}); allowed: sqlite:PATH, postgres://USER:PASSWORD@HOST:PORT/DATABASE"
    )]
    Url {
        /// What is wrong with it, without repeating it.
        problem: String,
    },
    /// Other users can read or write the file.
    #[error("{} can be read or written by other users (mode {mode:04o}); run: chmod 600 {}", path.display(), path.display())]
    FileMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link, a folder, a device.
    #[error("{} is {found}, not a regular file; name the database file itself", path.display())]
    FileKind {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file can't be created or opened.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's words.
        problem: std::io::Error,
    },
    /// Another process runs on this file.
    #[error("{} is in use by another control plane; stop it", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// No connection.
    #[error("database at {place} can't be reached: {problem}; check that it runs and that --database-url is right")]
    Unreachable {
        /// Host, port and database, or the file.
        place: String,
        /// The cause.
        problem: String,
    },
    /// The schema can't be brought up to date.
    #[error("database schema at {place}: {problem}")]
    Schema {
        /// Host, port and database, or the file.
        place: String,
        /// The cause.
        problem: String,
    },
    /// The database answers with an error.
    #[error("database at {place}: {problem}")]
    Refused {
        /// Host, port and database, or the file.
        place: String,
        /// The cause.
        problem: StoreError,
    },
}

/// A database URL, understood.
#[derive(Debug)]
enum Target {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

fn parse(database_url: &str) -> Result<Target, OpenError> {
    let wrong = |problem: &str| OpenError::Url { problem: problem.into() };
    let (scheme, rest) = database_url.split_once(':').ok_or_else(|| wrong("no scheme"))?;
    match scheme {
        "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
            "" => Err(wrong("no path after sqlite:")),
            ":memory:" => Err(wrong("a database in memory would lose everything at a restart")),
            path if path.contains('?') => Err(wrong("options after ? are not taken")),
            path => Ok(Target::Sqlite(path.into())),
        },
        "postgres" | "postgresql" => match database_url.parse::<PgConnectOptions>() {
            Ok(options) => Ok(Target::Postgres(Box::new(options))),
            // The text of the cause may repeat a part of the URL.
            Err(_) => Err(wrong("not a valid Postgres URL; is every special character of the password %-encoded?")),
        },
        _ => Err(wrong("unknown scheme")),
    }
}

/// Opens the database, creates its file when it is `SQLite`, and brings the schema up to date.
pub async fn open(database_url: &str, sync: SqliteSync) -> Result<Arc<dyn Store>, OpenError> {
    match parse(database_url)? {
        Target::Sqlite(path) => open_sqlite(path, sync).await,
        Target::Postgres(options) => open_postgres(*options).await,
    }
}

/// The file that a database URL names, when it names one.
pub fn sqlite_path(database_url: &str) -> Option<PathBuf> {
    match parse(database_url) {
        Ok(Target::Sqlite(path)) => Some(path),
        Ok(Target::Postgres(_)) | Err(_) => None,
    }
}

/// The file's lock. One that is held is waited for a little: its holder may be about to end, and the kernel gives a lock
/// back only when the last copy of its descriptor is closed, a child's between fork and exec included.
async fn claim_sqlite(path: &Path) -> Result<File, OpenError> {
    let deadline = tokio::time::Instant::now() + LOCK_WAIT;
    loop {
        // A few system calls on a local file.
        match sqlite::file::claim(path) {
            Err(OpenError::InUse { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            ended => return ended,
        }
    }
}

async fn open_sqlite(path: PathBuf, sync: SqliteSync) -> Result<Arc<dyn Store>, OpenError> {
    let place = path.display().to_string();
    let exclusive = claim_sqlite(&path).await?;
    let opened = SqliteStore::open(&sqlite::file::options(&path, sync), exclusive).await;
    let store = opened.map_err(|error| OpenError::Refused { place: place.clone(), problem: error.into() })?;
    store.migrate().await.map_err(|error| schema(place, error))?;
    Ok(Arc::new(store))
}

async fn open_postgres(options: PgConnectOptions) -> Result<Arc<dyn Store>, OpenError> {
    let host = options.get_socket().map_or_else(|| options.get_host().to_owned(), |path| path.display().to_string());
    let place = format!("{host}:{}/{}", options.get_port(), options.get_database().unwrap_or_default());
    let store = match PostgresStore::open(options).await {
        Ok(store) => store,
        Err(StoreError::Unreachable(problem)) => return Err(OpenError::Unreachable { place, problem }),
        Err(problem) => return Err(OpenError::Refused { place, problem }),
    };
    store.migrate().await.map_err(|error| schema(place, error))?;
    Ok(Arc::new(store))
}

fn schema(place: String, error: MigrateError) -> OpenError {
    let problem = match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => StoreError::from(error).to_string(),
        MigrateError::VersionMissing(version) => {
            format!("it was written by a newer version (migration {version}); run that version or a newer one")
        }
        error => error.to_string(),
    };
    OpenError::Schema { place, problem }
}

#[cfg(test)]
mod tests;
