//! The database file: private to its owner, a regular file, and open in one process at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::super::open::{OpenError, SqliteSync};
use crate::files::atomic_write::with_suffix;
use crate::files::bounded_read::SHARED_BITS;

/// Checks the file and the ones that belong to it, creates what is missing with mode 0600, and takes the lock that the
/// kernel gives back when this process ends, however it ends.
pub(crate) fn claim(path: &Path) -> Result<File, OpenError> {
    let lock_path = with_suffix(path, ".lock");
    // The file first: nothing is put beside a path that isn't ours.
    for path in [path, &lock_path] {
        create_private(path)?;
        check_private(path)?;
    }
    // The log and its index get the file's mode from SQLite; those that are there already are checked.
    check_private(&with_suffix(path, "-wal"))?;
    check_private(&with_suffix(path, "-shm"))?;
    let lock = OpenOptions::new()
        .write(true)
        .open(&lock_path)
        .map_err(|problem| OpenError::File { path: lock_path.clone(), problem })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(problem)) => Err(OpenError::File { path: lock_path, problem }),
    }
}

fn create_private(path: &Path) -> Result<(), OpenError> {
    // `create_new` follows no symbolic link.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(problem) if problem.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(problem) => Err(OpenError::File { path: path.to_owned(), problem }),
    }
}

fn check_private(path: &Path) -> Result<(), OpenError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(problem) if problem.kind() == ErrorKind::NotFound => return Ok(()),
        Err(problem) => return Err(OpenError::File { path: path.to_owned(), problem }),
    };
    let found = match metadata.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_symlink() => Some("a symbolic link"),
        kind if kind.is_dir() => Some("a folder"),
        _ => Some("a device, socket or pipe"),
    };
    if let Some(found) = found {
        return Err(OpenError::FileKind { path: path.to_owned(), found });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & SHARED_BITS != 0 {
        return Err(OpenError::FileMode { path: path.to_owned(), mode });
    }
    Ok(())
}

pub(crate) fn options(path: &Path, sync: SqliteSync) -> SqliteConnectOptions {
    let synchronous = match sync {
        SqliteSync::Normal => SqliteSynchronous::Normal,
        SqliteSync::Full => SqliteSynchronous::Full,
    };
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .foreign_keys(true)
        // Only an operator's shell can hold the file besides us.
        .busy_timeout(Duration::from_secs(2))
        .disable_statement_logging()
}
