//! From a database URL to a [`Store`] that is ready: schema in place, exclusive where it must be.
//!
//! Nothing that is printed names a password: errors speak of the host, port and database only.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Store, StoreError};

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
    #[error("{} is in use by another control plane; stop it, or use Postgres to run several", path.display())]
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

/// Opens the database, creates its file when it is `SQLite`, and brings the schema up to date.
pub async fn open(database_url: &str, _sync: SqliteSync) -> Result<Arc<dyn Store>, OpenError> {
    let _ = database_url;
    Err(OpenError::Url { problem: "not written yet".into() })
}
