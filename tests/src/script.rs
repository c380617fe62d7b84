//! Clients written in Python or for Node.js: scripts of a suite's folder, run with pinned packages that are installed once,
//! under `target/`: those of `sdk/requirements.txt` for all suites, and of the folder's own `package-lock.json`.

use std::path::{Path, PathBuf};
use std::process::{Command as BlockingCommand, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::front_proxy::NotInstalled;

/// A script that runs longer hangs.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(120);

/// Where a suite's scripts stand.
#[derive(Debug, Clone, Copy)]
pub struct Scripts {
    /// Their folder.
    pub folder: &'static str,
    /// The suite's `CARGO_TARGET_TMPDIR`.
    pub target: &'static str,
}

impl Scripts {
    /// Runs `SCRIPT` (`.py` or `.mjs`) with `environment`.
    ///
    /// # Errors
    /// When it fails, with what it printed; [`NotInstalled`] without Node.js.
    pub async fn run(&self, script: &str, environment: &[(String, String)]) -> anyhow::Result<()> {
        let mut command = self.command(script, environment).await?;
        let output = tokio::time::timeout(SCRIPT_PATIENCE, command.output()).await;
        told(&output.with_context(|| format!("{script} still ran after {SCRIPT_PATIENCE:?}"))??, script)
    }

    /// Starts `SCRIPT` with `environment`, to run beside the test.
    ///
    /// # Errors
    /// When it can't be started.
    pub async fn start(&self, script: &str, environment: &[(String, String)]) -> anyhow::Result<Script> {
        let mut command = self.command(script, environment).await?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the script")?;
        let stdout = child.stdout.take().context("the script's stdout is piped")?;
        Ok(Script { child, lines: BufReader::new(stdout).lines(), progress: 0, failures: Vec::new() })
    }

    async fn command(&self, script: &str, environment: &[(String, String)]) -> anyhow::Result<Command> {
        let (scripts, name) = (*self, script.to_owned());
        let (program, script) = tokio::task::spawn_blocking(move || scripts.prepare(&name)).await??;
        let mut command = Command::new(program);
        command.arg(script).kill_on_drop(true).env("PYTHONDONTWRITEBYTECODE", "1");
        // A proxy between the test and a loopback address would be tested instead of the router.
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// The interpreter, and the script where it finds its packages.
    fn prepare(&self, script: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let target = Path::new(self.target);
        std::fs::create_dir_all(target)?;
        if Path::new(script).extension().is_none_or(|kind| kind != "mjs") {
            return Ok((python(target)?, Path::new(self.folder).join(script)));
        }
        let environment = Environment::lock(target, "node-clients")?;
        let folder = self.node_folder(target, &environment)?;
        // A module's packages are looked for beside it, so it must stand beside them.
        let copy = folder.join(script);
        let source = std::fs::read(Path::new(self.folder).join(script))?;
        // Another process may be loading it.
        if std::fs::read(&copy).is_ok_and(|there| there == source) {
            return Ok((PathBuf::from("node"), copy));
        }
        let new = copy.with_extension("new");
        std::fs::write(&new, source)?;
        std::fs::rename(&new, &copy)?;
        Ok((PathBuf::from("node"), copy))
    }

    /// A folder with the packages of `package-lock.json`; made when it is missing or the file has changed.
    fn node_folder(&self, target: &Path, environment: &Environment) -> anyhow::Result<PathBuf> {
        let folder = target.join("node-clients");
        let lock_file = Path::new(self.folder).join("package-lock.json");
        let wanted = std::fs::read_to_string(&lock_file)?;
        if environment.is_made_of(&wanted) && folder.join("node_modules").is_dir() {
            return Ok(folder);
        }
        std::fs::create_dir_all(&folder)?;
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(Path::new(self.folder).join(name), folder.join(name))?;
        }
        let mut npm = BlockingCommand::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
        match npm.output() {
            Ok(output) => told(&output, "npm ci")?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(NotInstalled::program("npm").into());
            }
            Err(error) => return Err(error).context("run npm"),
        }
        environment.made_of(&wanted)?;
        Ok(folder)
    }
}

/// The interpreter of a virtual environment with the SDKs.
fn python(target: &Path) -> anyhow::Result<PathBuf> {
    let folder = target.join("sdk-venv");
    let interpreter = folder.join("bin/python");
    let requirements = concat!(env!("CARGO_MANIFEST_DIR"), "/sdk/requirements.txt");
    let wanted = std::fs::read_to_string(requirements)?;
    let environment = Environment::lock(target, "sdk-venv")?;
    if environment.is_made_of(&wanted) && interpreter.is_file() {
        return Ok(interpreter);
    }
    let make = |program: &Path, args: &[&str]| {
        let output =
            BlockingCommand::new(program).args(args).output().with_context(|| format!("run {}", program.display()));
        told(&output?, &args.join(" "))
    };
    make(Path::new("python3"), &["-m", "venv", "--clear", &folder.display().to_string()])
        .context("needs python3 with its venv module")?;
    let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"];
    make(&interpreter, &[&quiet[..], &["-r", requirements]].concat())?;
    environment.made_of(&wanted)?;
    Ok(interpreter)
}

/// Keeps other test processes away while an environment is made, and remembers what it was made of.
struct Environment {
    stamp: PathBuf,
    _lock: std::fs::File,
}

impl Environment {
    fn lock(target: &Path, name: &str) -> anyhow::Result<Self> {
        let lock = std::fs::File::create(target.join(name).with_extension("lock"))?;
        lock.lock().context("wait for another test process that makes the environment")?;
        Ok(Self { stamp: target.join(name).with_extension("stamp"), _lock: lock })
    }

    fn is_made_of(&self, wanted: &str) -> bool {
        std::fs::read_to_string(&self.stamp).is_ok_and(|made| made == wanted)
    }

    fn made_of(&self, wanted: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(&self.stamp, wanted)?)
    }
}

/// A script that runs beside the test: it prints `progress N` and `failed JSON`, and ends when its stdin does.
#[derive(Debug)]
pub struct Script {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    progress: u64,
    failures: Vec<Json>,
}

impl Script {
    /// Waits for so many more answers.
    ///
    /// # Errors
    /// When it ends before.
    pub async fn until_more(&mut self, more: u64) -> anyhow::Result<()> {
        let goal = self.progress + more;
        while self.progress < goal {
            if !self.read_line().await? {
                bail!("the script ended after {} answers; failures: {:#?}", self.progress, self.failures);
            }
        }
        Ok(())
    }

    /// Lets it end; every failure that it has told.
    ///
    /// # Errors
    /// When it fails.
    pub async fn finish(mut self) -> anyhow::Result<Vec<Json>> {
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

fn told(output: &Output, what: &str) -> anyhow::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    bail!("{what}: {}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
