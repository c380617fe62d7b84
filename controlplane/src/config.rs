//! The control plane's flags, each with its environment twin. Everything is checked before a port opens.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use router_policy::gateway_file::key_store::MAX_BYTES;
use router_policy::ids::RouteName;
use router_policy::option::kind::parse_duration;

use crate::files::bounded_read::{SHARED_BITS, read_bounded};
use crate::files::private_paths::{self, Guarded, Use};
use crate::files::{FileConfig, KeyStoreFile, RouteFile, key_store};
use crate::store::{SqliteSync, sqlite_path};

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
    /// Key store (JSON): SHA-256 hashes of client keys, beside those in the database; followed while running
    #[arg(long, env = "ROUTER_KEY_STORE", value_name = "FILE")]
    pub key_store: Option<PathBuf>,
    /// Control file (JSON): the ports that are admitted; followed while running, and rewritten by `routerctl drain`
    #[arg(long, env = "ROUTER_CONTROL_FILE", value_name = "FILE")]
    pub control_file: Option<PathBuf>,
    /// Backend state (JSON), written at each change: health, drains, requests in flight
    #[arg(long, env = "ROUTER_BACKEND_STATE", value_name = "FILE")]
    pub backend_state: Option<PathBuf>,
    /// The route that --control-file and --backend-state speak of
    #[arg(long, env = "ROUTER_GATEWAY_ROUTE", default_value = "default", value_name = "NAME")]
    pub gateway_route: String,
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
    /// Key store, control file, backend state.
    pub files: FileConfig,
}

impl ControlPlaneArgs {
    /// Checks every flag and reads every file; all complaints at once. `token` is what callers must present, `token_file`
    /// where it was read.
    pub fn validate(&self, token: Option<&str>, token_file: Option<&Path>) -> Result<Config, Vec<String>> {
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
        let files = self.files(&database_url, token_file, &mut complaints);
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
                files,
            }),
            _ => Err(complaints),
        }
    }

    /// Checks the paths against each other and reads the key store.
    fn files(&self, database_url: &str, token_file: Option<&Path>, complaints: &mut Vec<String>) -> FileConfig {
        let database = if self.database_url_file.is_some() { "--database-url-file" } else { "--database-url" };
        let paths = [
            ("--key-store", self.key_store.clone(), Use::Private),
            ("--control-file", self.control_file.clone(), Use::OwnerWrites),
            ("--backend-state", self.backend_state.clone(), Use::Private),
            (database, sqlite_path(database_url), Use::Database),
            ("--bootstrap", self.bootstrap.clone(), Use::Input),
            ("--database-url-file", self.database_url_file.clone(), Use::Input),
            ("--token-file", token_file.map(Path::to_owned), Use::Input),
        ];
        let is_used = |used_as: &Use| !matches!(used_as, Use::Database | Use::Input);
        // A database alone is checked where it is opened.
        let mut guarded = Vec::new();
        if paths.iter().any(|(_, path, used_as)| path.is_some() && is_used(used_as)) {
            let given =
                paths.into_iter().filter_map(|(flag, path, used_as)| Some(Guarded { flag, path: path?, used_as }));
            guarded.extend(given);
            complaints.extend(private_paths::check(&guarded));
        }
        let key_store = self.key_store.as_ref().and_then(|path| match read_key_store(path) {
            Ok(keys) => Some(KeyStoreFile { path: path.clone(), keys }),
            Err(problems) => {
                for problem in problems {
                    let complaint = format!("--key-store: {}: {problem}", path.display());
                    // Its mode was complained of already.
                    if !complaints.contains(&complaint) {
                        complaints.push(complaint);
                    }
                }
                None
            }
        });
        let route = RouteName::new(&self.gateway_route);
        if let Err(invalid) = &route {
            complaints.push(format!("--gateway-route: route name expected; {invalid}"));
        }
        let of_route =
            |path: &Option<PathBuf>| Some(RouteFile { path: path.clone()?, route: route.as_ref().ok()?.clone() });
        FileConfig {
            key_store,
            control_file: of_route(&self.control_file),
            backend_state: of_route(&self.backend_state),
            guarded,
        }
    }
}

fn read_key_store(path: &Path) -> Result<Vec<key_store::FileKey>, Vec<String>> {
    let bytes = read_bounded(path, MAX_BYTES, SHARED_BITS).map_err(|problem| vec![problem.to_string()])?;
    key_store::parse(&bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ControlPlaneArgs,
    }

    fn checked(folder: &Path, flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let mut line = vec!["controlplane".to_owned(), "--database-url".to_owned()];
        line.push(format!("sqlite:{}", folder.join("router.db").display()));
        for (flag, value) in flags {
            let is_path = *flag != "--gateway-route";
            let value = if is_path { folder.join(value).display().to_string() } else { (*value).to_owned() };
            line.extend([(*flag).to_owned(), value]);
        }
        Line::parse_from(line).args.validate(None, Some(&folder.join("token")))
    }

    fn put(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn files_are_checked_before_anything_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let record = r#"{"sha256": "HASH", "active": true}"#.replace("HASH", &"ab".repeat(32));
        put(&path.join("keys"), &format!(r#"{{"version": 1, "records": [{record}]}}"#), 0o600);
        let all = [("--key-store", "keys"), ("--control-file", "control"), ("--backend-state", "state")];
        let config = checked(path, &[all.as_slice(), &[("--gateway-route", "chat")]].concat()).unwrap();
        assert_eq!(config.files.key_store.unwrap().keys.len(), 1);
        assert_eq!(config.files.control_file.unwrap().route.as_str(), "chat");
        assert_eq!(checked(path, &all).unwrap().files.backend_state.unwrap().route.as_str(), "default");
        assert!(checked(path, &[]).unwrap().files.backend_state.is_none());
        assert!(!path.join("router.db").exists() && !path.join("state").exists());
    }

    #[test]
    fn every_complaint_about_files_comes_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        put(&path.join("keys"), r#"{"version": 3, "records": [{"active": 1}]}"#, 0o600);
        put(&path.join("control"), "{}", 0o622);
        let flags = [
            ("--key-store", "keys"),
            ("--control-file", "control"),
            ("--backend-state", "router.db-wal"),
            ("--gateway-route", "Not A Route"),
        ];
        let complaints = checked(path, &flags).err().unwrap();
        let starts =
            ["--control-file:", "--backend-state", "--key-store:", "--key-store:", "--key-store:", "--gateway-route:"];
        assert_eq!(complaints.len(), starts.len(), "{complaints:#?}");
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
        }
        assert!(complaints[0].contains("chmod go-w") && complaints[1].contains("--database-url"), "{complaints:#?}");

        let token = checked(path, &[("--backend-state", "token")]).err().unwrap();
        assert!(token.len() == 1 && token[0].contains("--token-file") && token[0].contains("overlap"), "{token:#?}");
        let missing = checked(path, &[("--key-store", "nowhere")]).err().unwrap();
        assert_eq!(missing, [format!("--key-store: {}: does not exist", path.join("nowhere").display())]);
        put(&path.join("keys"), r#"{"version": 1, "records": []}"#, 0o644);
        let wide = checked(path, &[("--key-store", "keys")]).err().unwrap();
        assert_eq!(wide.len(), 1, "{wide:#?}");
        assert!(wide[0].contains("run: chmod 600"), "{wide:#?}");
    }
}
