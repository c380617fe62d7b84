//! Runs a script of this folder in the suite's virtual environment, which is made once per content of requirements.txt.

use std::path::{Path, PathBuf};
use std::process::{Command as BlockingCommand, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A script that runs longer hangs.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(120);

/// Runs `sdk/SCRIPT` with `environment`.
pub(crate) async fn run(script: &str, environment: &[(String, String)]) -> anyhow::Result<()> {
    let mut command = command(script, environment).await?;
    let output = tokio::time::timeout(SCRIPT_PATIENCE, command.output()).await;
    told(&output.with_context(|| format!("{script} still ran after {SCRIPT_PATIENCE:?}"))??, script)
}

async fn command(script: &str, environment: &[(String, String)]) -> anyhow::Result<Command> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = || MADE.get_or_init(|| environment_python().map_err(|error| format!("{error:#}"))).clone();
    let python = tokio::task::spawn_blocking(make).await?.map_err(anyhow::Error::msg)?;
    let mut command = Command::new(python);
    command.arg(folder().join(script)).kill_on_drop(true).env("PYTHONDONTWRITEBYTECODE", "1");
    // A proxy between the test and a loopback address would be tested instead of the router.
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// A script that runs beside the test: it prints `progress N` and `failed JSON`, and ends when its stdin does.
pub(crate) struct Script {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    progress: u64,
    failures: Vec<Json>,
}

impl Script {
    /// Starts `sdk/SCRIPT` with `environment`.
    pub(crate) async fn start(script: &str, environment: &[(String, String)]) -> anyhow::Result<Self> {
        let mut command = command(script, environment).await?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the script")?;
        let stdout = child.stdout.take().context("the script's stdout is piped")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines(), progress: 0, failures: Vec::new() })
    }

    /// Waits for so many more answers.
    pub(crate) async fn until_more(&mut self, more: u64) -> anyhow::Result<()> {
        let goal = self.progress + more;
        while self.progress < goal {
            if !self.read_line().await? {
                bail!("the script ended after {} answers; failures: {:#?}", self.progress, self.failures);
            }
        }
        Ok(())
    }

    /// Lets it end; every failure that it has told.
    pub(crate) async fn finish(mut self) -> anyhow::Result<Vec<Json>> {
        drop(self.child.stdin.take());
        while self.read_line().await? {}
        let status = self.child.wait().await?;
        if status.success() { Ok(self.failures) } else { bail!("the script: {status}") }
    }

    /// False at its end.
    async fn read_line(&mut self) -> anyhow::Result<bool> {
        let line = tokio::time::timeout(SCRIPT_PATIENCE, self.lines.next_line()).await;
        let Some(line) = line.context("the script is silent")?? else { return Ok(false) };
        match line.split_once(' ') {
            Some(("progress", count)) => self.progress = count.parse()?,
            Some(("failed", what)) => self.failures.push(serde_json::from_str(what)?),
            _ => {}
        }
        Ok(true)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk")
}

/// The environment's interpreter; makes the environment when it is missing or its requirements have changed.
fn environment_python() -> anyhow::Result<PathBuf> {
    // Beside the test binary, in the target folder that cargo uses.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(&target)?;
    let lock = std::fs::File::create(target.join("sdk-venv.lock"))?;
    lock.lock().context("wait for another test process that makes the environment")?;
    let (environment, stamp) = (target.join("sdk-venv"), target.join("sdk-venv.stamp"));
    let python = environment.join("bin/python");
    let requirements = folder().join("requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)?;
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) && python.is_file() {
        return Ok(python);
    }
    let make = |program: &Path, args: &[&str]| {
        let output =
            BlockingCommand::new(program).args(args).output().with_context(|| format!("run {}", program.display()));
        told(&output?, &args.join(" "))
    };
    let (environment, requirements) = (environment.display().to_string(), requirements.display().to_string());
    make(Path::new("python3"), &["-m", "venv", "--clear", &environment])
        .context("needs python3 with its venv module")?;
    let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"];
    make(&python, &[&quiet[..], &["-r", &requirements]].concat())?;
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}

fn told(output: &Output, what: &str) -> anyhow::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    bail!("{what}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
