//! `routerctl` as an operator runs it: arguments in; exit code, stdout and stderr out.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::binary::routerctl;

/// The longest that a command may take.
const COMMAND_PATIENCE: Duration = Duration::from_secs(60);

/// What a command said.
#[derive(Debug, Clone)]
pub struct Said {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its data.
    pub stdout: String,
    /// Everything else.
    pub stderr: String,
}

impl Said {
    /// The stdout of a command that went well.
    ///
    /// # Errors
    /// With everything it said, when its exit code is not 0.
    pub fn ok(self) -> anyhow::Result<String> {
        if self.code == Some(0) { Ok(self.stdout) } else { bail!("exit code 0 expected, got {self:?}") }
    }

    /// stderr without the lines that are only log at level INFO or below.
    pub fn complaint(&self) -> String {
        let is_log = |line: &&str| line.contains(" INFO ") || line.contains(" DEBUG ");
        self.stderr.lines().filter(|line| !is_log(line)).collect::<Vec<_>>().join("\n")
    }
}

/// Runs `routerctl ARGS`, wherever it leads.
///
/// # Errors
/// When it can't be started, or runs for more than a minute.
pub async fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>, stdin: Option<&str>) -> anyhow::Result<Said> {
    run_within(COMMAND_PATIENCE, args, stdin).await
}

/// [`run`] with a patience of its own.
///
/// # Errors
/// As there.
pub async fn run_within<A: AsRef<OsStr>>(
    patience: Duration,
    args: impl IntoIterator<Item = A>,
    stdin: Option<&str>,
) -> anyhow::Result<Said> {
    let args: Vec<PathBuf> = args.into_iter().map(|arg| PathBuf::from(arg.as_ref())).collect();
    let mut command = Command::new(routerctl()?);
    command.args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().context("start routerctl")?;
    if let (Some(text), Some(mut pipe)) = (stdin, child.stdin.take()) {
        pipe.write_all(text.as_bytes()).await.context("write to routerctl's stdin")?;
    }
    let output = tokio::time::timeout(patience, child.wait_with_output()).await;
    let output = output.with_context(|| format!("routerctl {args:?} still ran after {patience:?}"))??;
    Ok(Said {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The operator's tool, pointed at one control plane.
#[derive(Debug, Clone)]
pub struct Ctl {
    control_plane: String,
}

impl Ctl {
    /// Talks to the control plane at that URL.
    pub fn at(control_plane: impl Into<String>) -> Self {
        Self { control_plane: control_plane.into() }
    }

    /// Runs a verb.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Said> {
        run(self.with_address(args), None).await
    }

    /// Runs a verb with text on stdin.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn run_with_stdin(&self, args: &[&str], stdin: &str) -> anyhow::Result<Said> {
        run(self.with_address(args), Some(stdin)).await
    }

    /// Runs a verb that must go well, and returns its stdout.
    ///
    /// # Errors
    /// As [`run`] and [`Said::ok`].
    pub async fn ok(&self, args: &[&str]) -> anyhow::Result<String> {
        self.run(args).await?.ok()
    }

    /// Runs a verb with `-o json` and reads what it prints.
    ///
    /// # Errors
    /// As [`Ctl::ok`], and when stdout is not JSON.
    pub async fn json(&self, args: &[&str]) -> anyhow::Result<Json> {
        let text = self.ok(&[args, &["-o", "json"]].concat()).await?;
        serde_json::from_str(&text).with_context(|| format!("JSON expected from {args:?}, got {text:?}"))
    }

    fn with_address<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [&["--control-plane", self.control_plane.as_str()], args].concat()
    }
}
