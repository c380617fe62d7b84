//! The proxies that are compared: how each is configured and started in front of one engine.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::client::{Connection, chat_request};
use crate::process::{Process, find_program, free_address};

/// How long a started proxy may take until a request through it succeeds.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// nginx modules for the session-hash peer, in load order.
const LUA_MODULES: [&str; 2] =
    ["/usr/lib/nginx/modules/ndk_http_module.so", "/usr/lib/nginx/modules/ngx_http_lua_module.so"];

/// A proxy to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PeerKind {
    /// No proxy: the engine itself.
    Direct,
    /// nginx as a plain proxy; the yardstick of the ratios.
    Nginx,
    /// nginx with a session hash in Lua.
    NginxLua,
    Haproxy,
    /// This router: one control plane and one dataplane.
    Router,
}

impl PeerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::NginxLua => "nginx-lua",
            Self::Haproxy => "haproxy",
            Self::Router => "router",
        }
    }
}

/// What a peer is configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Small answers.
    Short,
    /// Event streams, whose events must leave at once.
    Streams,
}

/// How the router is started and given its route.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RouterArgs {
    /// The routerctl to measure; default: the one beside this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) routerctl: Option<PathBuf>,
    /// Worker threads of the dataplane.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) threads: u8,
    /// `max_concurrency` of the route; default: what the measurement needs.
    #[arg(long, value_name = "N")]
    pub(crate) max_concurrency: Option<u32>,
}

impl RouterArgs {
    /// The path of routerctl.
    pub(crate) fn program(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = &self.routerctl {
            return Ok(path.clone());
        }
        let own = std::env::current_exe().context("find this program")?;
        let beside = own.with_file_name("routerctl");
        if !beside.is_file() {
            bail!("{} is missing: build it, or name another with --routerctl", beside.display());
        }
        Ok(beside)
    }
}

/// A peer that serves.
pub(crate) struct Peer {
    pub(crate) kind: PeerKind,
    pub(crate) address: SocketAddr,
    /// Each with its role.
    pub(crate) processes: Vec<(&'static str, Process)>,
    /// Its files live as long as its processes.
    _folder: TempDir,
}

impl Peer {
    /// Starts a peer in front of `engine` and waits until a request through it succeeds.
    pub(crate) async fn start(
        kind: PeerKind,
        engine: SocketAddr,
        traffic: Traffic,
        router: &RouterArgs,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("router-load-").tempdir().context("make a folder")?;
        let (address, processes) = match kind {
            PeerKind::Direct => (engine, Vec::new()),
            PeerKind::Nginx => nginx(folder.path(), engine, traffic, false).await?,
            PeerKind::NginxLua => nginx(folder.path(), engine, traffic, true).await?,
            PeerKind::Haproxy => haproxy(folder.path(), engine).await?,
            PeerKind::Router => start_router(folder.path(), engine, router).await?,
        };
        let peer = Self { kind, address, processes, _folder: folder };
        peer.answers().await?;
        Ok(peer)
    }

    /// CPU seconds of all its processes so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.processes.iter().fold(0.0, |sum, (_, process)| sum + process.cpu_seconds())
    }

    /// Ends its processes, the one that serves first.
    pub(crate) async fn stop(self) {
        for (_, process) in self.processes {
            process.stop().await;
        }
    }

    async fn answers(&self) -> anyhow::Result<()> {
        let request = chat_request(0, 200, false, 1);
        let start = Instant::now();
        loop {
            let answer = async { Connection::open(self.address).await?.exchange(&request).await };
            let problem = match tokio::time::timeout(READY_TIMEOUT, answer).await {
                Ok(Ok(200)) => return Ok(()),
                Ok(Ok(status)) => format!("it answers {status}"),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "it does not answer".into(),
            };
            if start.elapsed() > READY_TIMEOUT {
                bail!("no request succeeds within {} s: {problem}", READY_TIMEOUT.as_secs());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

type Started = (SocketAddr, Vec<(&'static str, Process)>);

fn installed(name: &str) -> anyhow::Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not installed"))
}

/// nginx with one worker; `with_lua` picks between two upstreams by CRC-32 of the session, both being the one engine.
async fn nginx(folder: &Path, engine: SocketAddr, traffic: Traffic, with_lua: bool) -> anyhow::Result<Started> {
    let program = installed("nginx")?;
    if let Some(missing) = LUA_MODULES.iter().find(|module| with_lua && !Path::new(module).exists()) {
        bail!("{missing} is not installed");
    }
    let address = free_address()?;
    let here = folder.display();
    let modules: String =
        if with_lua { LUA_MODULES.map(|module| format!("load_module {module};\n")).concat() } else { String::new() };
    let target = if with_lua {
        "set_by_lua_block $peer { return 'engine' .. (ngx.crc32_short(ngx.var.http_x_session_id or '') % 2) } \
         proxy_pass http://$peer;"
    } else {
        "proxy_pass http://engine0;"
    };
    let upstream = |index: u8| {
        format!("upstream engine{index} {{ server {engine}; keepalive 64; keepalive_requests 1000000000; }}\n")
    };
    let buffering = match traffic {
        Traffic::Short => "",
        Traffic::Streams => "proxy_buffering off;",
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {here}/{kind}_temp;\n"))
        .concat();
    let config = format!(
        "{modules}daemon off;\npid {here}/nginx.pid;\nerror_log {here}/error.log;\nworker_processes 1;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\n{temporary}{}{}\
         server {{ listen {address};\nlocation / {{ {target} proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\n{buffering} }} }}\n}}\n",
        upstream(0),
        upstream(1),
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config).context("write nginx.conf")?;
    let log = folder.join("start.log");
    let arguments = ["-c".as_ref(), file.as_os_str(), "-e".as_ref(), log.as_os_str()];
    let mut process = Process::start(folder, "nginx", &program, arguments)?;
    process.accepts(address).await?;
    Ok((address, vec![("nginx", process)]))
}

/// `HAProxy` with one thread.
async fn haproxy(folder: &Path, engine: SocketAddr) -> anyhow::Result<Started> {
    let program = installed("haproxy")?;
    let address = free_address()?;
    let config = format!(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n  option http-keep-alive\n  http-reuse always\nfrontend in\n  bind {address}\n  \
         default_backend engine\nbackend engine\n  server engine0 {engine}\n"
    );
    let file = folder.join("haproxy.cfg");
    fs::write(&file, config).context("write haproxy.cfg")?;
    let arguments = ["-db".as_ref(), "-f".as_ref(), file.as_os_str()];
    let mut process = Process::start(folder, "haproxy", &program, arguments)?;
    process.accepts(address).await?;
    Ok((address, vec![("haproxy", process)]))
}

/// A control plane on a fresh `SQLite` file, one dataplane, and a default route to the engine.
async fn start_router(folder: &Path, engine: SocketAddr, args: &RouterArgs) -> anyhow::Result<Started> {
    let program = args.program()?;
    let (grpc, http) = (free_address()?, free_address()?);
    let (traffic, admin) = (free_address()?, free_address()?);
    let control_plane_url = format!("http://{grpc}");
    let arguments = [
        "controlplane".to_owned(),
        format!("--grpc-listen={grpc}"),
        format!("--http-listen={http}"),
        format!("--database-url=sqlite:{}", folder.join("router.db").display()),
    ];
    let mut control_plane = Process::start(folder, "controlplane", &program, arguments)?;
    control_plane.accepts(grpc).await.context("routerctl controlplane")?;

    let max_concurrency = args.max_concurrency.unwrap_or(64);
    let output = tokio::process::Command::new(&program)
        .args(["--control-plane", &control_plane_url, "route", "add", "default", "--default"])
        .args(["--backend", &engine.to_string(), "--set", "auth=off"])
        .args(["--set", &format!("max_concurrency={max_concurrency}")])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(READY_TIMEOUT, output).await.context("routerctl route add: timed out")?;
    let output = output.context("start routerctl route add")?;
    if !output.status.success() {
        bail!("routerctl route add: {}", String::from_utf8_lossy(&output.stderr).trim());
    }

    let arguments = [
        "dataplane".to_owned(),
        format!("--listen={traffic}"),
        format!("--admin-listen={admin}"),
        format!("--control-plane={control_plane_url}"),
        format!("--threads={}", args.threads),
    ];
    let mut dataplane = Process::start(folder, "dataplane", &program, arguments)?;
    dataplane.accepts(traffic).await.context("routerctl dataplane")?;
    Ok((traffic, vec![("dataplane", dataplane), ("controlplane", control_plane)]))
}
