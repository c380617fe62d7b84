//! `routerctl up`: a control plane and its replicas on one machine, for trying out and for small installations.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser as _, ValueEnum as _};
use router_dataplane::bodylog::settings::BodyLogArgs;
use router_policy::option::Preset;
use router_proto::v1;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use self::summary::Target;
use crate::args::{Assignment, Cli, Command, Connect, assignment, duration};
use crate::backends::BackendList;
use crate::client::Admin;
use crate::command::{controlplane, export};
use crate::failure::{Failure, Outcome};
use crate::gateway_flags::GatewayFlags;
use crate::overlay::Overlay;
use crate::process::LogFormat;
use crate::supervise::{Lines, Supervisor};

mod state;
mod summary;

/// The route that backends and options on the command line make or change.
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
    /// Set an option of the route `default`. Repeat for several.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = assignment)]
    options: Vec<Assignment>,
    /// Where the route `default` takes the defaults of unset options from. `gateway` without backends makes it with the ports
    /// 19001 and 19002 of this machine.
    #[arg(long, env = "ROUTER_PRESET", value_parser = Preset::NAMES)]
    preset: Option<String>,
    /// At shutdown: time for running streams to end.
    #[arg(long, value_name = "TIME", env = "ROUTER_GRACE", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// Replicas also serve their status pages and toggles (`/<route>/_...`) on the traffic port, to loopback clients.
    #[arg(
        long, env = "ROUTER_DEBUG_ENDPOINTS", value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set
    )]
    debug_endpoints: bool,
    #[command(flatten)]
    bodylog: BodyLogArgs,
    #[command(flatten)]
    gateway: GatewayFlags,
    #[command(flatten)]
    files: Files,
}

/// Files of a session gateway that the control plane goes on following. Handed to it as they are; it checks them.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Session gateway's files")]
struct Files {
    /// Client keys by SHA-256 (`version: 1`): the file stays the place where they are made and ended. To move them into the
    /// database instead: `routerctl import gateway`.
    #[arg(long, value_name = "FILE", env = "ROUTER_KEY_STORE")]
    key_store: Option<PathBuf>,
    /// Which backends are admitted (`enabled_ports`).
    #[arg(long, value_name = "FILE", env = "ROUTER_CONTROL_FILE")]
    control_file: Option<PathBuf>,
    /// Where the backends' states are written for others to read.
    #[arg(long, value_name = "FILE", env = "ROUTER_BACKEND_STATE")]
    backend_state: Option<PathBuf>,
}

impl Files {
    /// The control plane's flags for those that were given.
    fn flags(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let all = [
            ("key-store", &self.key_store),
            ("control-file", &self.control_file),
            ("backend-state", &self.backend_state),
        ];
        all.into_iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?.clone().into_os_string())))
    }
}

impl UpArgs {
    /// Checks everything before anything is started, and tells every complaint.
    pub(crate) fn check(&self) -> Outcome {
        let mut complaints = self.port_complaints();
        complaints.extend(self.bodylog.validate().err().unwrap_or_default());
        let route = self.overlay(&mut complaints);
        // The files are checked against the database's place, and may be in the same directory: it must be there. What was
        // made for a start that does not happen goes again.
        let needs_it = self.files.flags().next().is_some();
        let made = if needs_it { state::missing(&self.state_dir) } else { Vec::new() };
        let database = if needs_it { state::prepare(&self.state_dir) } else { state::database(&self.state_dir) };
        match database {
            Err(complaint) => complaints.push(complaint),
            Ok(database) => {
                // Without backends the flags speak of a stored route: only a database that is not there is known to have none.
                if !route.is_empty() && (!route.backends.is_empty() || !database.exists()) {
                    complaints.extend(route.over(&Json::Null).err().unwrap_or_default());
                }
                complaints.extend(self.controlplane_complaints(&database));
            }
        }
        if complaints.is_empty() {
            return Ok(());
        }
        for dir in made {
            // One that somebody else uses by now is not empty, and stays.
            drop(std::fs::remove_dir(dir));
        }
        Err(Failure::complaints(&complaints))
    }

    fn port_complaints(&self) -> Vec<String> {
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
        complaints
    }

    /// The control plane checks its own flags when it starts. The same check first, here: then all complaints come at once.
    fn controlplane_complaints(&self, database: &Path) -> Vec<String> {
        let role = ["routerctl".into(), "controlplane".into()];
        let words = role.into_iter().chain(flag_words(self.controlplane_flags(database)));
        match Cli::try_parse_from(words) {
            Ok(Cli { command: Command::ControlPlane(role), .. }) => {
                let failure = controlplane::check(&role).err();
                failure.map(|failure| failure.message.lines().map(str::to_owned).collect()).unwrap_or_default()
            }
            // What it reads from the environment may be wrong too.
            Err(error) => {
                let text = error.to_string();
                vec![text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()]
            }
            Ok(_) => Vec::new(),
        }
    }

    fn controlplane_flags(&self, database: &Path) -> Vec<(&'static str, OsString)> {
        let own = [
            ("grpc-listen", self.grpc_listen.to_string().into()),
            ("http-listen", self.http_listen.to_string().into()),
            // UTF-8, or it had been refused.
            ("database-url", database_url(&database.to_string_lossy()).into()),
            // Stated, or a stray variable of the environment would name another.
            ("gateway-route", ROUTE.into()),
        ];
        own.into_iter().chain(self.files.flags()).collect()
    }

    fn dataplane_flags(
        &self,
        listen: SocketAddr,
        admin_listen: SocketAddr,
        grpc: &str,
    ) -> Vec<(&'static str, OsString)> {
        vec![
            ("listen", listen.to_string().into()),
            ("admin-listen", admin_listen.to_string().into()),
            ("control-plane", grpc.into()),
            ("grace", format!("{}ms", self.grace.as_millis()).into()),
            ("debug-endpoints", self.debug_endpoints.to_string().into()),
            ("bodylog-host", self.bodylog.bodylog_host.clone().into()),
            ("bodylog-port", self.bodylog.bodylog_port.to_string().into()),
            ("bodylog-zone", self.bodylog.bodylog_zone.clone().into()),
            ("bodylog-buffer", self.bodylog.bodylog_buffer.clone().into()),
        ]
    }

    /// What the flags say of the route.
    fn overlay(&self, complaints: &mut Vec<String>) -> Overlay {
        let settings = self.gateway.read(complaints);
        let overlay = Overlay::new(ROUTE, &self.options, settings, complaints);
        Overlay { preset: self.preset.clone(), backends: self.backends.backends(), ..overlay }
    }
}

/// `--flag=value` words.
fn flag_words(flags: Vec<(&'static str, OsString)>) -> impl Iterator<Item = OsString> {
    flags.into_iter().map(|(flag, value)| {
        let mut word = OsString::from(format!("--{flag}="));
        word.push(value);
        word
    })
}

/// The same address `index` ports further; port 0 stays.
fn offset(first: SocketAddr, index: u16) -> Option<SocketAddr> {
    let port = if first.port() == 0 { Some(0) } else { first.port().checked_add(index) };
    port.map(|port| SocketAddr::new(first.ip(), port))
}

/// Starts everything, waits for `shutdown` or a child that does not stay up, stops everything.
pub(crate) async fn run(args: UpArgs, log_format: LogFormat, shutdown: CancellationToken) -> Outcome {
    let database = state::prepare(&args.state_dir).map_err(Failure::usage)?;
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

/// Starts everything; ends when a child does not stay up.
async fn run_children(args: &UpArgs, log_format: LogFormat, database: &Path, supervisor: &mut Supervisor) -> Outcome {
    start(args, log_format, database, supervisor).await?;
    let error = supervisor.keep_up().await;
    // Said at once: stopping the rest may take as long as the grace.
    tracing::error!("{error}, again and again; stopping the rest");
    Err(Failure::failed(format!("{error}; it did not stay up")).hint("its log above says why"))
}

/// The URL of an `SQLite` file. The control plane takes the path as it stands.
pub(crate) fn database_url(path: &str) -> String {
    format!("sqlite:{path}")
}

async fn start(args: &UpArgs, log_format: LogFormat, database: &Path, supervisor: &mut Supervisor) -> Outcome {
    let fail = |error: crate::supervise::Error| Failure::failed(error.to_string());
    let format = log_format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let role = |name: &str, flags: Vec<(&'static str, OsString)>| -> Vec<OsString> {
        let common = ["--exit-on-stdin-eof".into(), format!("--log-format={format}").into(), name.into()];
        common.into_iter().chain(flag_words(flags)).collect()
    };
    supervisor.start("controlplane", &role("controlplane", args.controlplane_flags(database))).map_err(fail)?;
    supervisor.announced("controlplane", "ready", PATIENCE).await.map_err(fail)?;
    let grpc = format!("http://{}", supervisor.address("controlplane", "grpc", PATIENCE).await.map_err(fail)?);
    let http = supervisor.address("controlplane", "http", PATIENCE).await.map_err(fail)?;
    let status = store_route(args, &grpc).await?;
    let names: Vec<String> = (0..args.replicas).map(|index| format!("dataplane-{index}")).collect();
    for (index, name) in (0..args.replicas).zip(&names) {
        let listen = offset(args.listen, index).unwrap_or(args.listen);
        let admin = offset(args.admin_listen, index).unwrap_or(args.admin_listen);
        supervisor.start(name, &role("dataplane", args.dataplane_flags(listen, admin, &grpc))).map_err(fail)?;
    }
    let mut traffic = Vec::new();
    for name in &names {
        supervisor.announced(name, "ready", PATIENCE).await.map_err(fail)?;
        traffic.push(supervisor.address(name, "http", PATIENCE).await.map_err(fail)?);
    }
    let target = Target::of(&status, args.listen.ip().is_loopback());
    let text = summary::text(&grpc, &http, &traffic, target.as_ref(), status.keys > 0);
    let text = format!("{text}{}", summary::problems(&status.files));
    // Lost when nobody reads stderr.
    drop(io::stderr().lock().write_all(text.as_bytes()));
    Ok(())
}

/// Stores the route that the flags describe; other routes stay. Returns what there is then.
async fn store_route(args: &UpArgs, grpc: &str) -> Result<v1::GetStatusReply, Failure> {
    let connect = Connect { control_plane: Some(grpc.to_owned()), token_file: None };
    let mut admin = Admin::connect(&connect).await?;
    // Complaints were told by `check`.
    let overlay = args.overlay(&mut Vec::new());
    if !overlay.is_empty() {
        let stored = export::document("", &mut admin).await?;
        let route = overlay.over(&stored).map_err(|complaints| Failure::complaints(&complaints))?;
        let request = v1::ApplyRequest { document_json: route.to_string(), ..Default::default() };
        let answer = admin.rpc.apply(request).await;
        admin.answer(answer)?;
    }
    let answer = admin.rpc.get_status(v1::GetStatusRequest {}).await;
    admin.answer(answer)
}

#[cfg(test)]
mod tests;
