//! A real nginx or HAProxy in front of replicas, configured by the very files that the documentation shows.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};

use crate::await_event::{PATIENCE, until};
use crate::client::Client;

/// The page that shows the files.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/moving-from-one-gateway.md");

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontProxyKind {
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
}

/// It is not installed here.
#[derive(Debug)]
pub struct NotInstalled(&'static str);

impl NotInstalled {
    /// The program of that name is missing.
    pub fn program(name: &'static str) -> Self {
        Self(name)
    }
}

impl fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not installed (Debian: apt-get install {})", self.0, self.0)
    }
}

impl std::error::Error for NotInstalled {}

/// A running proxy. Killed when dropped.
#[derive(Debug)]
pub struct FrontProxy {
    address: SocketAddr,
    folder: PathBuf,
    _child: Child,
}

impl FrontProxy {
    /// Starts one in front of `replicas` and waits until it finds one of them ready. Its files go to `folder`.
    ///
    /// # Errors
    /// [`NotInstalled`]; or when it does not serve, with the end of its log.
    pub async fn start(kind: FrontProxyKind, replicas: &[SocketAddr], folder: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let config = folder.join(kind.program()).with_extension("conf");
        std::fs::write(&config, kind.config(address, replicas, folder)?)?;
        let log = std::fs::File::create(folder.join("front-proxy.log"))?;
        let mut command = Command::new(find_program(kind.program())?);
        match kind {
            FrontProxyKind::Nginx => {
                let globals = format!("daemon off; pid {};", folder.join("nginx.pid").display());
                command.arg("-c").arg(&config).arg("-e").arg(folder.join("nginx-error.log")).args(["-g", &globals]);
            }
            FrontProxyKind::Haproxy => {
                command.arg("-f").arg(&config);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("start {}", kind.program()))?;
        let proxy = Self { address, folder: folder.to_owned(), _child: child };
        let client = Client::http1();
        let serves = || async {
            let answer = client.get(address, "/readyz").await;
            Ok(answer.is_ok_and(|answer| answer.status.is_success()).then_some(()))
        };
        if let Err(error) = until("the front proxy serves", PATIENCE, serves).await {
            bail!("{error:#}\n{}", proxy.logs());
        }
        Ok(proxy)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything that it has logged.
    pub fn logs(&self) -> String {
        let files = ["front-proxy.log", "nginx-error.log", "access.log"];
        files.iter().filter_map(|name| std::fs::read_to_string(self.folder.join(name)).ok()).collect()
    }
}

impl FrontProxyKind {
    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }

    /// The page's file, with this test's ports and folders in it.
    fn config(self, address: SocketAddr, replicas: &[SocketAddr], folder: &Path) -> anyhow::Result<String> {
        let page = std::fs::read_to_string(PAGE).with_context(|| format!("read {PAGE}"))?;
        let fence = format!("```{}\n", self.program());
        let (_, rest) = page.split_once(&fence).with_context(|| format!("{PAGE} has no block {fence:?}"))?;
        let (shown, _) = rest.split_once("\n```").context("the block ends")?;
        let mut config = String::new();
        for line in shown.lines().filter(|line| !line.contains("127.0.0.1:8081")) {
            if line.contains("127.0.0.1:8080") {
                for (index, replica) in replicas.iter().enumerate() {
                    let own = line.replace("127.0.0.1:8080", &replica.to_string());
                    config.extend([own.replace("replica-0", &format!("replica-{index}")), "\n".to_owned()]);
                }
            } else {
                config.extend([line, "\n"]);
            }
        }
        let listen = address.to_string();
        let folder = folder.display().to_string();
        Ok(match self {
            Self::Haproxy => config.replace("bind :8000", &format!("bind {listen}")),
            Self::Nginx => {
                let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
                let folders = folders.map(|name| format!("    {name}_temp_path {folder}/{name};\n")).concat();
                config
                    .replace("listen 8000", &format!("listen {listen}"))
                    .replace("/var/log/nginx/router.log", &format!("{folder}/access.log"))
                    .replace("http {\n", &format!("http {{\n{folders}"))
            }
        })
    }
}

fn find_program(name: &'static str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps servers where only root looks for them.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| NotInstalled(name).into())
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?.local_addr()?)
}
