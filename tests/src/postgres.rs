//! Postgres for tests.
//!
//! [`TestDatabase::start`] makes a fresh, empty database: in the server that `ROUTER_TEST_POSTGRES_URL` names (its user may
//! create databases), else in a private cluster of local binaries that the tests of one process share while any of them
//! holds a database. [`TestDatabase::start_private`] has a cluster to itself, which may be stopped, killed and restarted.
//!
//! A cluster listens on a free port of 127.0.0.1, keeps its files in a folder of its own and syncs nothing to disk. The
//! last holder's drop stops it and removes the folder; if the test process is killed, the kernel ends the server with it
//! where `setpriv` exists. Needs no async runtime of a special kind: what blocks runs on its own threads.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use self::cluster::Cluster;

mod cluster;
mod server;

/// The server to use instead of a private one: `postgres://user:password@host:port/database`.
pub const URL_VARIABLE: &str = "ROUTER_TEST_POSTGRES_URL";

/// Why there is no database for the test.
#[derive(Debug)]
pub enum PostgresError {
    /// No server is named and none can be started: this program is missing.
    NoBinaries {
        /// The program.
        program: &'static str,
    },
    /// A program failed.
    Failed {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it printed.
        output: String,
    },
    /// The server does not take connections.
    NotReady {
        /// The command line.
        command: String,
        /// How long was waited.
        seconds: u64,
        /// The end of the server's log.
        output: String,
    },
    /// A call that only a private cluster allows.
    Shared,
    /// The operating system.
    Io {
        /// What was tried.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBinaries { program } => write!(
                f,
                "no Postgres: `{program}` is neither in PATH nor in /usr/lib/postgresql/*/bin, and {URL_VARIABLE} is not set"
            ),
            Self::Failed { command, status, output } => write!(f, "`{command}` failed ({status}): {output}"),
            Self::NotReady { command, seconds, output } => {
                write!(f, "`{command}` takes no connection within {seconds} s: {output}")
            }
            Self::Shared => {
                f.write_str("others share this server: only a database of TestDatabase::start_private can be stopped")
            }
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for PostgresError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::NoBinaries { .. } | Self::Failed { .. } | Self::NotReady { .. } | Self::Shared => None,
        }
    }
}

type Result<T> = std::result::Result<T, PostgresError>;

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> PostgresError {
    move |source| PostgresError::Io { what: what.into(), source }
}

/// A test without Postgres: `None` and a line on stderr, except where `CI` is set: there it must run.
///
/// # Panics
/// When Postgres can't be started although its binaries are there, or when `CI` is set and there is none.
#[expect(clippy::panic, clippy::print_stderr, reason = "called by tests: their way to fail and to be seen skipping")]
pub fn required_or_skipped(started: Result<TestDatabase>) -> Option<TestDatabase> {
    match started {
        Ok(database) => Some(database),
        Err(error @ PostgresError::NoBinaries { .. }) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

enum Server {
    /// Named by the environment; the URL up to the database's name.
    External {
        admin_url: String,
    },
    Cluster {
        cluster: Arc<Cluster>,
        is_private: bool,
    },
}

/// An empty database of its own, dropped with this value.
pub struct TestDatabase {
    server: Server,
    name: String,
}

static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
static COUNT: AtomicU64 = AtomicU64::new(0);

fn shared_cluster() -> Result<Arc<Cluster>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cluster) = shared.upgrade() {
        return Ok(cluster);
    }
    let cluster = Arc::new(Cluster::start()?);
    *shared = Arc::downgrade(&cluster);
    Ok(cluster)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(PostgresError::Io { what: "run in the background".into(), source: io::Error::other(error) }),
    }
}

impl TestDatabase {
    /// A fresh database in a server that others use too.
    pub async fn start() -> Result<Self> {
        blocking(|| match std::env::var(URL_VARIABLE) {
            Ok(admin_url) => Self::create(Server::External { admin_url }),
            Err(_) => Self::create(Server::Cluster { cluster: shared_cluster()?, is_private: false }),
        })
        .await
    }

    /// A fresh database in a private cluster, for tests of outages.
    pub async fn start_private() -> Result<Self> {
        blocking(|| Self::create(Server::Cluster { cluster: Arc::new(Cluster::start()?), is_private: true })).await
    }

    fn create(server: Server) -> Result<Self> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let database = Self { server, name: format!("router_test_{}_{count}", std::process::id()) };
        database.admin(&format!("CREATE DATABASE {}", database.name))?;
        Ok(database)
    }

    /// For `--database-url`.
    pub fn url(&self) -> String {
        match &self.server {
            Server::External { admin_url } => replace_database(admin_url, &self.name),
            Server::Cluster { cluster, .. } => cluster.url(&self.name),
        }
    }

    /// Runs SQL in this database and returns what it prints, one row per line, columns separated by `|`.
    pub async fn sql(&self, sql: &str) -> Result<String> {
        let (url, sql) = (self.url(), sql.to_owned());
        blocking(move || psql(&url, &sql)).await
    }

    /// Stops the private cluster in order: clients are disconnected.
    pub async fn stop(&self) -> Result<()> {
        let cluster = self.private()?;
        blocking(move || cluster.stop()).await
    }

    /// Kills the private cluster's server: no goodbye to clients.
    pub async fn kill9(&self) -> Result<()> {
        let cluster = self.private()?;
        blocking(move || cluster.kill9()).await
    }

    /// Starts the private cluster again, on the same port with the same data.
    pub async fn restart(&self) -> Result<()> {
        let cluster = self.private()?;
        blocking(move || cluster.restart()).await
    }

    fn private(&self) -> Result<Arc<Cluster>> {
        match &self.server {
            Server::Cluster { cluster, is_private: true } => Ok(Arc::clone(cluster)),
            Server::Cluster { .. } | Server::External { .. } => Err(PostgresError::Shared),
        }
    }

    fn admin(&self, sql: &str) -> Result<String> {
        match &self.server {
            Server::External { admin_url } => psql(admin_url, sql),
            Server::Cluster { cluster, .. } => psql(&cluster.url("postgres"), sql),
        }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // A cluster goes as a whole; a server that stays must not fill up.
        if matches!(self.server, Server::External { .. }) {
            let _ = self.admin(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        }
    }
}

/// `postgres://user@host:port/old?options` with another database.
fn replace_database(url: &str, name: &str) -> String {
    let (base, options) = url.split_once('?').map_or((url, None), |(base, options)| (base, Some(options)));
    let host_start = base.find("://").map_or(0, |colon| colon + 3);
    let end = base.get(host_start..).and_then(|rest| rest.find('/')).map_or(base.len(), |slash| host_start + slash);
    let server = base.get(..end).unwrap_or(base);
    options.map_or_else(|| format!("{server}/{name}"), |options| format!("{server}/{name}?{options}"))
}

fn psql(url: &str, sql: &str) -> Result<String> {
    let mut command = Command::new(program("psql")?);
    command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
    command.args(["--command", sql, "--dbname", url]);
    let output = run(&mut command)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The command line, without URLs: they may hold a password.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_string_lossy());
    words.map(|word| if word.contains("://") { "URL".into() } else { word }).collect::<Vec<_>>().join(" ")
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().map_err(io_error(format!("run `{}`", line(command))))?;
    if output.status.success() {
        return Ok(output);
    }
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    Err(PostgresError::Failed {
        command: line(command),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&text).trim_end().to_owned(),
    })
}

/// Finds a program: PATH first, then the newest version where Debian keeps them.
fn program(name: &'static str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    in_path.or_else(|| newest_version(name)).ok_or(PostgresError::NoBinaries { program: name })
}

fn newest_version(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(io::Result::ok);
    let number = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok();
    versions
        .map(|version| version.path())
        .filter(|folder| folder.join("bin").join(name).is_file())
        .max_by_key(|folder| number(folder))
        .map(|folder| folder.join("bin").join(name))
}

#[cfg(test)]
mod tests;
