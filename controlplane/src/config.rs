//! The control plane's flags, each with its environment twin. Everything is checked before a port opens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use router_policy::option::kind::parse_duration;

use crate::store::SqliteSync;

/// Shortest token, in characters.
const MIN_TOKEN: usize = 16;

/// Flags of `routerctl controlplane`.
#[derive(Debug, Clone, Args)]
pub struct ControlPlaneArgs {
    /// Address for dataplanes and routerctl (gRPC)
    #[arg(long, env = "ROUTER_GRPC_LISTEN", default_value = "127.0.0.1:7400", value_name = "ADDR")]
    pub grpc_listen: SocketAddr,
    /// Address for /healthz, /readyz and /metrics (HTTP)
    #[arg(long, env = "ROUTER_HTTP_LISTEN", default_value = "127.0.0.1:7480", value_name = "ADDR")]
    pub http_listen: SocketAddr,
    /// `sqlite:FILE` or `postgres://USER:PASSWORD@HOST/NAME`
    #[arg(long, env = "DATABASE_URL", default_value = "sqlite:router.db", value_name = "URL", hide_env_values = true)]
    pub database_url: String,
    /// File that holds the database URL, in place of --database-url
    #[arg(long, env = "DATABASE_URL_FILE", value_name = "FILE", conflicts_with = "database_url")]
    pub database_url_file: Option<PathBuf>,
    /// SQLite durability: normal is safe against kill -9, full against power loss too
    #[arg(long, env = "ROUTER_SQLITE_SYNC", default_value = "normal", value_name = "MODE")]
    pub sqlite_sync: SqliteSyncArg,
    /// Route document (JSON) applied when the database holds no route yet
    #[arg(long, env = "ROUTER_BOOTSTRAP", value_name = "FILE")]
    pub bootstrap: Option<PathBuf>,
    /// A replica that is silent for this long loses its leases (1s to 10m)
    #[arg(long, env = "ROUTER_LEASE_TTL", default_value = "10s", value_name = "TIME")]
    pub lease_ttl: String,
}

/// [`SqliteSync`] on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SqliteSyncArg {
    /// Safe against kill -9.
    Normal,
    /// Safe against power loss too.
    Full,
}

/// A checked configuration.
#[derive(Clone)]
pub struct Config {
    /// Database to open.
    pub database_url: String,
    /// SQLite durability.
    pub sqlite_sync: SqliteSync,
    /// Text of the bootstrap document.
    pub bootstrap: Option<String>,
    /// Silence after which a replica loses its leases.
    pub lease_ttl: Duration,
    /// What callers must present.
    pub token: Option<String>,
}

impl ControlPlaneArgs {
    /// Checks every flag and reads every file; all complaints at once. `token` is what callers must present.
    pub fn validate(&self, token: Option<&str>) -> Result<Config, Vec<String>> {
        let mut complaints = Vec::new();
        let mut read = |flag: &str, path: &PathBuf| match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) => {
                complaints.push(format!("{flag}: read {}: {error}", path.display()));
                None
            }
        };
        let database_url = match &self.database_url_file {
            Some(path) => read("--database-url-file", path).map(|text| text.trim().to_owned()).unwrap_or_default(),
            None => self.database_url.clone(),
        };
        let bootstrap = self.bootstrap.as_ref().and_then(|path| read("--bootstrap", path));
        if token.is_some_and(|token| token.len() < MIN_TOKEN || !token.bytes().all(|c| c.is_ascii_graphic())) {
            complaints.push(format!("token: one line of {MIN_TOKEN} or more printable characters expected"));
        }
        if token.is_none() && !self.grpc_listen.ip().is_loopback() {
            complaints.push(format!(
                "--grpc-listen: {} is not a loopback address; set --token-file or ROUTER_TOKEN so that only your replicas and operators \
                 can call it",
                self.grpc_listen
            ));
        }
        let span = Duration::from_secs(1)..=Duration::from_secs(600);
        let lease_ttl = parse_duration(&self.lease_ttl).filter(|ttl| span.contains(ttl));
        if lease_ttl.is_none() {
            complaints.push("--lease-ttl: a time expected; allowed: 1s..=10m".to_owned());
        }
        match lease_ttl {
            Some(lease_ttl) if complaints.is_empty() => Ok(Config {
                database_url,
                sqlite_sync: match self.sqlite_sync {
                    SqliteSyncArg::Normal => SqliteSync::Normal,
                    SqliteSyncArg::Full => SqliteSync::Full,
                },
                bootstrap,
                lease_ttl,
                token: token.map(str::to_owned),
            }),
            _ => Err(complaints),
        }
    }
}
