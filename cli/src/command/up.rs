//! `routerctl up`: a control plane and its replicas on one machine, for trying out and for small installations.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use router_proto::v1;
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::args::{Assignment, BackendList, Connect, assignment, duration};
use crate::client::Admin;
use crate::command::export;
use crate::document;
use crate::failure::{Failure, Outcome};
use crate::process::LogFormat;
use crate::supervise::{Lines, Supervisor};

/// The route that `--backend` and `--backend-port` fill.
const ROUTE: &str = "default";

/// Until a child must have announced that it is ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a child gets beyond its own grace before it is killed.
const EXTRA_GRACE: Duration = Duration::from_secs(5);

/// Arguments of `up`.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Dataplane replicas. Replica i listens on the ports of `--listen` and `--admin-listen` plus i.
    #[arg(long, value_name = "N", env = "ROUTER_REPLICAS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    replicas: u16,
    /// Where clients connect to the first replica. Port 0 takes free ones.
    #[arg(long, value_name = "HOST:PORT", env = "ROUTER_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Health and metrics of the first replica.
    #[arg(long, value_name = "HOST:PORT", env = "ROUTER_ADMIN_LISTEN", default_value = "127.0.0.1:8090")]
    admin_listen: SocketAddr,
    /// Where the control plane takes gRPC.
    #[arg(long, value_name = "HOST:PORT", env = "ROUTER_GRPC_LISTEN", default_value = "127.0.0.1:7400")]
    grpc_listen: SocketAddr,
    /// Where the control plane takes HTTP.
    #[arg(long, value_name = "HOST:PORT", env = "ROUTER_HTTP_LISTEN", default_value = "127.0.0.1:7480")]
    http_listen: SocketAddr,
    /// Directory of the database; made with mode 0700 if it is not there.
    #[arg(long, value_name = "DIR", env = "ROUTER_STATE_DIR", default_value = "router-state")]
    state_dir: PathBuf,
    #[command(flatten)]
    backends: BackendList,
    /// Set an option of the route `default` that the given backends make. Repeat for several.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = assignment)]
    options: Vec<Assignment>,
    /// At shutdown: time for running streams to end.
    #[arg(long, value_name = "TIME", env = "ROUTER_GRACE", default_value = "30s", value_parser = duration)]
    grace: Duration,
}

impl UpArgs {
    /// Checks everything before anything is started.
    pub(crate) fn check(&self) -> Outcome {
        let mut complaints = Vec::new();
        let mut taken: Vec<(String, SocketAddr)> = Vec::new();
        let singles = [("--grpc-listen".to_owned(), self.grpc_listen), ("--http-listen".to_owned(), self.http_listen)];
        let replicas = (0..self.replicas).flat_map(|index| {
            [("--listen", self.listen), ("--admin-listen", self.admin_listen)]
                .map(|(flag, first)| (format!("{flag} of replica {index}"), (first, index)))
        });
        let mut wanted: Vec<(String, SocketAddr)> = singles.into();
        for (label, (first, index)) in replicas {
            match offset(first, index) {
                Some(address) => wanted.push((label, address)),
                None => complaints.push(format!("{label}: port {} + {index} is above 65535", first.port())),
            }
        }
        for (label, address) in wanted {
            if let Some((other, _)) = taken.iter().find(|(_, one)| *one == address && address.port() != 0) {
                complaints.push(format!("{label}: {address} is taken by {other} already; choose ports further apart"));
            }
            taken.push((label, address));
        }
        if self.backends.addresses().is_empty() && !self.options.is_empty() {
            complaints
                .push("--set: needs --backend or --backend-port; for a stored route: `routerctl route set`".into());
        }
        if let Some(route) = self.route(&Json::Null, true)
            && let Err(problems) = router_policy::route::parse_document(&route)
        {
            complaints.extend(problems.0.iter().map(|one| format!("{}: {}", one.field, one.problem)));
        }
        if complaints.is_empty() { Ok(()) } else { Err(Failure::complaints(&complaints)) }
    }

    /// The route document to apply: what is stored of it, with these backends and options. `None` without backends.
    fn route(&self, stored: &Json, is_default: bool) -> Option<Json> {
        let addresses = self.backends.addresses();
        if addresses.is_empty() {
            return None;
        }
        let known = stored.get("backends").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let backend = |address: String| {
            let same = known.iter().find(|one| one.get("address").and_then(Json::as_str) == Some(&address));
            same.cloned().unwrap_or_else(|| json!(address))
        };
        let mut route = stored.as_object().cloned().unwrap_or_default();
        let mut options: Map<String, Json> =
            stored.get("options").and_then(Json::as_object).cloned().unwrap_or_default();
        if let Json::Object(set) = document::options_json(&self.options) {
            options.extend(set);
        }
        route.insert("name".to_owned(), json!(ROUTE));
        route.insert("default".to_owned(), json!(is_default));
        route.insert("options".to_owned(), Json::Object(options));
        route.insert("backends".to_owned(), addresses.into_iter().map(backend).collect());
        Some(Json::Object(route))
    }
}

/// The same address `index` ports further; port 0 stays.
fn offset(first: SocketAddr, index: u16) -> Option<SocketAddr> {
    let port = if first.port() == 0 { Some(0) } else { first.port().checked_add(index) };
    port.map(|port| SocketAddr::new(first.ip(), port))
}

/// Starts everything, waits for `shutdown` or a child's end, stops everything.
pub(crate) async fn run(args: UpArgs, log_format: LogFormat, shutdown: CancellationToken) -> Outcome {
    let database = prepare(&args.state_dir)?;
    let executable = std::env::current_exe().map_err(|error| Failure::failed(format!("find this program: {error}")))?;
    let mut supervisor = Supervisor::new(executable, Lines::new(io::stdout()), Lines::new(io::stderr()));
    let outcome = tokio::select! {
        outcome = run_children(&args, log_format, &database, &mut supervisor) => outcome,
        () = shutdown.cancelled() => Ok(()),
    };
    let mut killed = supervisor.stop("dataplane", args.grace + EXTRA_GRACE).await;
    killed.extend(supervisor.stop("controlplane", EXTRA_GRACE * 2).await);
    match outcome {
        Ok(()) if killed.is_empty() => Ok(()),
        Ok(()) => Err(Failure::failed(format!("killed after the grace: {}", killed.join(", ")))),
        failed => failed,
    }
}

/// Starts everything; ends when a child does.
async fn run_children(args: &UpArgs, log_format: LogFormat, database: &str, supervisor: &mut Supervisor) -> Outcome {
    start(args, log_format, database, supervisor).await?;
    let error = supervisor.first_end().await;
    // Said at once: stopping the rest may take as long as the grace.
    tracing::error!("{error}; stopping the rest");
    Err(Failure::failed(error.to_string())
        .hint("`up` restarts nothing: for that, run each role under a service manager"))
}

/// Makes the state directory and returns the database's URL.
fn prepare(dir: &Path) -> Result<String, Failure> {
    let complain = |problem: &str| Failure::usage(format!("--state-dir {}: {problem}", dir.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| complain(&error.to_string()))?;
    let found = std::fs::metadata(dir).map_err(|error| complain(&error.to_string()))?;
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        let advice = format!("open to other users (mode {mode:o}); close it with `chmod 700 {}`", dir.display());
        return Err(complain(&advice));
    }
    let dir = std::path::absolute(dir).map_err(|error| complain(&error.to_string()))?;
    let path = dir.join("router.db");
    let path = path.to_str().ok_or_else(|| complain("not UTF-8; choose another"))?;
    if path.contains('?') {
        return Err(complain("a ? can't stand in the database's path; choose another"));
    }
    Ok(database_url(path))
}

/// The URL of an `SQLite` file. The control plane takes the path as it stands.
pub(crate) fn database_url(path: &str) -> String {
    format!("sqlite:{path}")
}

async fn start(args: &UpArgs, log_format: LogFormat, database: &str, supervisor: &mut Supervisor) -> Outcome {
    let fail = |error: crate::supervise::Error| Failure::failed(error.to_string());
    let format = log_format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let role = |name: &str, flags: &[(&str, String)]| -> Vec<OsString> {
        let mut all = vec!["--exit-on-stdin-eof".into(), format!("--log-format={format}").into(), name.into()];
        all.extend(flags.iter().map(|(flag, value)| OsString::from(format!("--{flag}={value}"))));
        all
    };
    let flags = [
        ("grpc-listen", args.grpc_listen.to_string()),
        ("http-listen", args.http_listen.to_string()),
        ("database-url", database.to_owned()),
    ];
    supervisor.start("controlplane", &role("controlplane", &flags)).map_err(fail)?;
    supervisor.announced("controlplane", "ready", PATIENCE).await.map_err(fail)?;
    let grpc = format!("http://{}", supervisor.address("controlplane", "grpc", PATIENCE).await.map_err(fail)?);
    let http = supervisor.address("controlplane", "http", PATIENCE).await.map_err(fail)?;
    let has_route = quick_route(args, &grpc).await?;
    let names: Vec<String> = (0..args.replicas).map(|index| format!("dataplane-{index}")).collect();
    for (index, name) in (0..args.replicas).zip(&names) {
        let listen = offset(args.listen, index).unwrap_or(args.listen);
        let admin = offset(args.admin_listen, index).unwrap_or(args.admin_listen);
        let flags = [
            ("listen", listen.to_string()),
            ("admin-listen", admin.to_string()),
            ("control-plane", grpc.clone()),
            ("grace", format!("{}ms", args.grace.as_millis())),
        ];
        supervisor.start(name, &role("dataplane", &flags)).map_err(fail)?;
    }
    let mut traffic = Vec::new();
    for name in &names {
        supervisor.announced(name, "ready", PATIENCE).await.map_err(fail)?;
        traffic.push(supervisor.address(name, "http", PATIENCE).await.map_err(fail)?);
    }
    // Lost when nobody reads stderr.
    drop(io::stderr().lock().write_all(summary(&grpc, &http, &traffic, has_route).as_bytes()));
    Ok(())
}

/// Stores the route that the backends on the command line make. Other routes stay.
async fn quick_route(args: &UpArgs, grpc: &str) -> Result<bool, Failure> {
    if args.backends.addresses().is_empty() {
        return Ok(false);
    }
    let connect = Connect { control_plane: Some(grpc.to_owned()), token_file: None };
    let mut admin = Admin::connect(&connect).await?;
    let stored = export::document("", &mut admin).await?;
    let routes = stored.get("routes").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let own = routes.iter().find(|route| route.get("name").and_then(Json::as_str) == Some(ROUTE));
    // An operator may have made another route the default since.
    let is_default = routes
        .iter()
        .filter(|route| route.get("name").and_then(Json::as_str) != Some(ROUTE))
        .all(|route| route.get("default").and_then(Json::as_bool) != Some(true));
    if let Some(route) = args.route(own.unwrap_or(&Json::Null), is_default) {
        let request = v1::ApplyRequest { document_json: route.to_string(), ..Default::default() };
        let answer = admin.rpc.apply(request).await;
        admin.answer(answer)?;
    }
    Ok(true)
}

fn summary(grpc: &str, http: &str, traffic: &[String], has_route: bool) -> String {
    let flag = if grpc.ends_with(":7400") { String::new() } else { format!(" --control-plane {grpc}") };
    let first = traffic.first().map(String::as_str).unwrap_or_default();
    let next = if has_route {
        format!(
            "try:\n  curl http://{first}/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Session-Id: me' \\\n    \
             -d '{{\"model\": \"MODEL\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n"
        )
    } else {
        format!("add a route:\n  routerctl route add NAME --default --backend HOST:PORT{flag}\n")
    };
    format!(
        "\nup: control plane {grpc} (HTTP http://{http}), traffic on {}\n{next}see:\n  routerctl status{flag}\nstop: Ctrl-C\n\n",
        traffic.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests;
