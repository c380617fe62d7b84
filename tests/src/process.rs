//! One real process under test: its arguments, its ports, its stdout as events, its stderr as a log file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::await_event::PATIENCE;
use crate::binary::routerctl;
use crate::log;

/// A signal that a test may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ends gracefully.
    Term,
    /// As Ctrl-C.
    Interrupt,
    /// Freezes: the sockets stay open, nothing answers.
    Stop,
    /// Thaws.
    Continue,
}

/// A `routerctl` process. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    log_path: PathBuf,
    child: Option<Child>,
    addresses: BTreeMap<String, SocketAddr>,
    lines: watch::Receiver<Stdout>,
    reader: JoinSet<()>,
}

#[derive(Debug, Default, Clone)]
struct Stdout {
    lines: Vec<String>,
    is_closed: bool,
}

impl Process {
    /// Starts `routerctl ARGS` and waits for its `listening` line. Logs go to `FOLDER/NAME.log`.
    ///
    /// # Errors
    /// When it ends before it listens, with the end of its log.
    pub async fn start(name: &str, args: &[&str], folder: &Path) -> anyhow::Result<Self> {
        let mut process = Self::spawn(name, args, &[], folder)?;
        process.learn_addresses().await?;
        Ok(process)
    }

    /// Starts `routerctl ARGS` with extra environment variables, and waits for nothing.
    ///
    /// # Errors
    /// When it can't be started at all.
    pub fn spawn(name: &str, args: &[&str], env: &[(&str, &str)], folder: &Path) -> anyhow::Result<Self> {
        let mut process = Self {
            name: name.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: env.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            log_path: folder.join(format!("{name}.log")),
            child: None,
            addresses: BTreeMap::new(),
            lines: watch::channel(Stdout::default()).1,
            reader: JoinSet::new(),
        };
        process.launch()?;
        Ok(process)
    }

    fn launch(&mut self) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log_path);
        let log: File = log.with_context(|| format!("open {}", self.log_path.display()))?;
        let mut command = Command::new(routerctl()?);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        let mut child = command.spawn().with_context(|| format!("start routerctl {}", self.args.join(" ")))?;
        let stdout = child.stdout.take().context("the child's stdout is piped")?;
        let (sender, receiver) = watch::channel(Stdout::default());
        self.reader = JoinSet::new();
        self.reader.spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                sender.send_modify(|stdout| stdout.lines.push(line));
            }
            sender.send_modify(|stdout| stdout.is_closed = true);
        });
        self.lines = receiver;
        self.child = Some(child);
        Ok(())
    }

    async fn learn_addresses(&mut self) -> anyhow::Result<()> {
        let line = self.line("listening ").await?;
        for word in line.split_whitespace() {
            if let Some((key, value)) = word.split_once('=')
                && let Ok(address) = value.parse()
            {
                self.addresses.insert(key.to_owned(), address);
            }
        }
        Ok(())
    }

    /// Waits for a line on stdout that starts with `prefix`.
    ///
    /// # Errors
    /// When the process ends first, or after [`PATIENCE`].
    pub async fn line(&self, prefix: &str) -> anyhow::Result<String> {
        self.nth_line_within(1, prefix, PATIENCE).await
    }

    /// [`Process::line`] with a patience of its own, and for the line that is the `nth` of its kind, from 1.
    ///
    /// # Errors
    /// As there.
    pub async fn nth_line_within(&self, nth: usize, prefix: &str, patience: Duration) -> anyhow::Result<String> {
        let find = |stdout: &Stdout| {
            let mut matching = stdout.lines.iter().filter(|line| line.starts_with(prefix));
            matching.nth(nth.saturating_sub(1)).cloned()
        };
        let mut lines = self.lines.clone();
        let has_it = |stdout: &Stdout| stdout.is_closed || find(stdout).is_some();
        let waited = tokio::time::timeout(patience, lines.wait_for(has_it)).await.map(drop);
        let found = find(&self.lines.borrow());
        match (found, waited) {
            (Some(line), _) => Ok(line),
            (None, Err(_)) => bail!("{}: no line {prefix:?} within {patience:?}\n{}", self.name, self.log_tail()),
            (None, Ok(())) => bail!("{}: ended without a line {prefix:?}\n{}", self.name, self.log_tail()),
        }
    }

    /// Waits for its `ready` line.
    ///
    /// # Errors
    /// As [`Process::line`].
    pub async fn ready(&self) -> anyhow::Result<()> {
        self.line("ready ").await.map(drop)
    }

    /// Everything it has written to stdout so far.
    pub fn stdout(&self) -> Vec<String> {
        self.lines.borrow().lines.clone()
    }

    /// The address that its `listening` line gives for `key` (`http`, `admin`, `grpc`).
    ///
    /// # Errors
    /// When the line had no such word.
    pub fn address(&self, key: &str) -> anyhow::Result<SocketAddr> {
        self.addresses.get(key).copied().with_context(|| format!("{}: its listening line has no {key}=", self.name))
    }

    /// What the harness calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// The most memory that it has held at once, in bytes.
    ///
    /// # Errors
    /// When it doesn't run.
    pub fn peak_memory(&self) -> anyhow::Result<u64> {
        let pid = self.pid().with_context(|| format!("{} doesn't run", self.name))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("read the process's status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the peak is stated")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("a number of kB")?;
        Ok(kib * 1024)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.pid().with_context(|| format!("{} doesn't run", self.name))?;
        let word = match signal {
            Signal::Term => "TERM",
            Signal::Interrupt => "INT",
            Signal::Stop => "STOP",
            Signal::Continue => "CONT",
        };
        let status = Command::new("sh").arg("-c").arg(format!("kill -s {word} {pid}")).status().await?;
        if status.success() { Ok(()) } else { bail!("send {word} to {}: {status}", self.name) }
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn kill9(&mut self) -> anyhow::Result<()> {
        let child = self.child.as_mut().with_context(|| format!("{} doesn't run", self.name))?;
        child.kill().await.with_context(|| format!("kill {}", self.name))?;
        self.child = None;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// After `patience`.
    pub async fn ended(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let child = self.child.as_mut().with_context(|| format!("{} doesn't run", self.name))?;
        match tokio::time::timeout(patience, child.wait()).await {
            Ok(status) => {
                self.child = None;
                Ok(status?)
            }
            Err(_) => bail!("{} still runs after {patience:?}\n{}", self.name, self.log_tail()),
        }
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// After `patience`.
    pub async fn sigterm(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::Term).await?;
        self.ended(patience).await
    }

    /// Starts it again on the ports it had, and waits until it listens.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.pin_ports();
        let started = std::time::Instant::now();
        loop {
            self.launch()?;
            let error = match self.learn_addresses().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // The port may for a moment belong to somebody's outgoing connection.
            let is_taken = self.log_tail().contains("in use");
            self.child = None;
            if !is_taken || started.elapsed() > PATIENCE {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Replaces each port 0 among the arguments by the port that was taken.
    fn pin_ports(&mut self) {
        let mut flag = String::new();
        for arg in &mut self.args {
            let key = match flag.as_str() {
                "--listen" | "--http-listen" => "http",
                "--admin-listen" => "admin",
                "--grpc-listen" => "grpc",
                _ => "",
            };
            if arg.ends_with(":0")
                && let Some(address) = self.addresses.get(key)
            {
                *arg = address.to_string();
            }
            flag.clone_from(arg);
        }
    }

    /// The log so far.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn log(&self) -> anyhow::Result<String> {
        let bytes = std::fs::read(&self.log_path).with_context(|| format!("read {}", self.log_path.display()))?;
        Ok(log::without_colours(&String::from_utf8_lossy(&bytes)))
    }

    /// The end of the log, headed by the name, for a failed test.
    pub fn log_tail(&self) -> String {
        let log = self.log().unwrap_or_else(|error| format!("{error:#}"));
        log::tail(&self.name, &log)
    }
}
