//! The database of a cluster under test: a file, or a Postgres database of its own.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::postgres::TestDatabase;

/// Which database a test runs on. Every promise is kept on both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    /// A file in the cluster's folder.
    Sqlite,
    /// A Postgres database; tests of one process share its server.
    Postgres,
    /// A Postgres server that belongs to this cluster alone and may be killed.
    PrivatePostgres,
}

/// A database that runs.
pub enum Database {
    /// The file.
    Sqlite(PathBuf),
    /// The database in a server.
    Postgres(TestDatabase),
}

impl Database {
    /// Makes a new, empty one.
    ///
    /// # Errors
    /// When Postgres can't be started.
    pub async fn start(kind: DatabaseKind, folder: &Path) -> anyhow::Result<Self> {
        match kind {
            DatabaseKind::Sqlite => Ok(Self::Sqlite(folder.join("state.db"))),
            DatabaseKind::Postgres => Ok(Self::Postgres(TestDatabase::start().await?)),
            DatabaseKind::PrivatePostgres => Ok(Self::Postgres(TestDatabase::start_private().await?)),
        }
    }

    /// What `--database-url` takes.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(server) => server.url(),
        }
    }

    /// The server, to kill it or to look into it.
    ///
    /// # Errors
    /// When the database is a file.
    pub fn server(&self) -> anyhow::Result<&TestDatabase> {
        match self {
            Self::Postgres(server) => Ok(server),
            Self::Sqlite(_) => bail!("SQLite has no server"),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.write_str(match self {
            Self::Sqlite(_) => "Sqlite",
            Self::Postgres(_) => "Postgres",
        })
    }
}
