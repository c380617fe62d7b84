//! How a promise becomes tests: one per database, each with a time limit of its own.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::front_proxy::NotInstalled;
use crate::log;
use crate::postgres::PostgresError;

/// No test may take longer; a hang fails here with its logs instead of in the runner without them.
const TEST_PATIENCE: Duration = Duration::from_secs(150);

/// Why a test failed, in one line per cause and without a backtrace through the runtime.
pub struct Failed(anyhow::Error);

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

/// Runs one test to its end on a runtime of its own. Where no Postgres or no front proxy is installed, tests that need one say `SKIP` and
/// pass, unless `CI` is set.
///
/// # Errors
/// The test's, or the time limit's.
pub fn run(test: impl Future<Output = anyhow::Result<()>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = runtime.context("start a runtime").map_err(Failed)?.block_on(async {
        match tokio::time::timeout(TEST_PATIENCE, Box::pin(test)).await {
            Ok(result) => result,
            Err(_) => bail!("the test still ran after {TEST_PATIENCE:?}"),
        }
    });
    match result {
        Err(error) if may_skip(&error) => {
            log::show(&format!("SKIP: {error}\n"));
            Ok(())
        }
        other => other.map_err(Failed),
    }
}

fn may_skip(error: &anyhow::Error) -> bool {
    let has_no_postgres = matches!(error.downcast_ref(), Some(PostgresError::NoBinaries { .. }));
    (has_no_postgres || error.is::<NotInstalled>()) && std::env::var_os("CI").is_none()
}

/// Turns `async fn promise(kind: DatabaseKind) -> anyhow::Result<()>` into the tests `sqlite::promise` and
/// `postgres::promise`.
#[macro_export]
macro_rules! on_both_databases {
    ($($promise:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[test]
                fn $promise() -> Result<(), $crate::suite::Failed> {
                    $crate::suite::run(super::$promise($crate::database::DatabaseKind::Sqlite))
                }
            )+
        }
        mod postgres {
            $(
                #[test]
                fn $promise() -> Result<(), $crate::suite::Failed> {
                    $crate::suite::run(super::$promise($crate::database::DatabaseKind::Postgres))
                }
            )+
        }
    };
}

/// Turns `async fn promise() -> anyhow::Result<()>` into a test, for promises that no database is part of.
#[macro_export]
macro_rules! on_any_database {
    ($($promise:ident),+ $(,)?) => {
        mod alone {
            $(
                #[test]
                fn $promise() -> Result<(), $crate::suite::Failed> {
                    $crate::suite::run(super::$promise())
                }
            )+
        }
    };
}
