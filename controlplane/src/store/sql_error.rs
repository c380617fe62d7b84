//! What a database error means to the domain; the only place that reads error codes.

use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

use super::StoreError;

/// Time that Postgres has for a connection.
pub(super) const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// `SQLITE_BUSY`, `LOCKED`, `READONLY`, `IOERR`, `FULL`, `CANTOPEN`: the file is held, or its disk is in trouble.
const SQLITE_UNREACHABLE: [i32; 6] = [5, 6, 8, 10, 13, 14];

/// Connection exceptions, out of resources, shutdown, I/O error, rollbacks that ask for a retry, and a server that is
/// read-only (a standby that was just promoted or demoted).
const POSTGRES_UNREACHABLE: [&str; 7] = ["08", "53", "57P", "57014", "58", "40", "25006"];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
                    postgres(error)
                } else if let Some(error) = error.try_downcast_ref::<SqliteError>() {
                    sqlite(error)
                } else {
                    Self::Other(error.message().to_owned())
                }
            }
            sqlx::Error::Io(error) => Self::Unreachable(error.to_string()),
            sqlx::Error::PoolTimedOut => {
                Self::Unreachable(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()))
            }
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::BeginFailed => {
                Self::Unreachable("connection closed".into())
            }
            // A server that goes away while it answers is read as half a message.
            sqlx::Error::Protocol(problem) => Self::Unreachable(problem),
            error => Self::Other(error.to_string()),
        }
    }
}

fn postgres(error: &PgDatabaseError) -> StoreError {
    use sqlx::error::DatabaseError as _;

    let code = error.code();
    if POSTGRES_UNREACHABLE.iter().any(|class| code.starts_with(class)) {
        return StoreError::Unreachable(error.message().to_owned());
    }
    match error.constraint() {
        Some(constraint) if error.is_unique_violation() => StoreError::Conflict { constraint: constraint.to_owned() },
        _ => StoreError::Other(error.message().to_owned()),
    }
}

fn sqlite(error: &SqliteError) -> StoreError {
    use sqlx::error::DatabaseError as _;

    // The lowest byte of the extended code is the plain code.
    let code = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default() & 0xff;
    if SQLITE_UNREACHABLE.contains(&code) {
        return StoreError::Unreachable(error.message().to_owned());
    }
    // SQLite names the column where Postgres names the constraint, which is called after it: `keys.name`, `keys_name`.
    match error.message().strip_prefix("UNIQUE constraint failed: ") {
        Some(column) if error.is_unique_violation() => StoreError::Conflict { constraint: column.replace('.', "_") },
        _ => StoreError::Other(error.message().to_owned()),
    }
}
