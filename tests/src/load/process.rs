//! Child processes of a measurement: started with their output in files, killed on drop, their CPU time and memory read
//! from `/proc`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// How long a process may take until it serves.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process may take to end when asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two looks at a starting process.
const START_POLL: Duration = Duration::from_millis(20);
/// `USER_HZ`: the unit of `/proc/PID/stat`, 100 on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running child process.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts `program`; what it writes goes to files named after `name` in `folder`.
    pub(crate) fn start<A: AsRef<OsStr>>(
        folder: &Path,
        name: &str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Self> {
        let stdout = folder.join(format!("{name}.stdout"));
        let stderr = folder.join(format!("{name}.stderr"));
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(&stdout).context("create a file for stdout")?)
            .stderr(File::create(&stderr).context("create a file for stderr")?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let pid = child.id().context("the child has ended already")?;
        Ok(Self { child, pid, stdout, stderr })
    }

    /// Waits for the line `listening … http=ADDRESS` on its stdout.
    pub(crate) async fn listening(&mut self) -> anyhow::Result<SocketAddr> {
        let start = Instant::now();
        loop {
            let output = fs::read_to_string(&self.stdout).context("read the child's stdout")?;
            let line = output.lines().find(|line| line.starts_with("listening "));
            if let Some(address) = line.and_then(|line| line.split_once("http=")).map(|(_, address)| address.trim()) {
                return address.parse().with_context(|| format!("an address expected, got {address:?}"));
            }
            self.check_alive(start)?;
            sleep(START_POLL).await;
        }
    }

    /// Waits until it accepts connections on `address`.
    pub(crate) async fn accepts(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let start = Instant::now();
        while tokio::net::TcpStream::connect(address).await.is_err() {
            self.check_alive(start)?;
            sleep(START_POLL).await;
        }
        Ok(())
    }

    /// Fails, with the end of its stderr, if it has ended or has had its time to start.
    fn check_alive(&mut self, start: Instant) -> anyhow::Result<()> {
        let ended = self.child.try_wait().context("look after a child")?;
        if ended.is_none() && start.elapsed() < START_TIMEOUT {
            return Ok(());
        }
        let stderr = fs::read_to_string(&self.stderr).unwrap_or_default();
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        match ended {
            Some(status) => bail!("it ended ({status}): {last}"),
            None => bail!("it does not serve after {} s: {last}", START_TIMEOUT.as_secs()),
        }
    }

    /// CPU seconds, user and system, of the process and its descendants so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        descendants(self.pid).into_iter().map(cpu_seconds).sum()
    }

    /// Resident memory in KB of the process and its descendants.
    pub(crate) fn resident_kb(&self) -> u64 {
        descendants(self.pid).into_iter().map(resident_kb).sum()
    }
}

impl Process {
    /// Asks it to end and waits a bounded time until it has.
    pub(crate) async fn stop(mut self) {
        self.terminate();
        // If it does not end in time, the drop kills it.
        drop(timeout(STOP_TIMEOUT, self.child.wait()).await);
    }

    /// Sends SIGTERM to the process and its descendants.
    fn terminate(&self) {
        // Once it is reaped, its id may be another's.
        if self.child.id().is_none() {
            return;
        }
        let workers = descendants(self.pid);
        let mut kill = std::process::Command::new("kill");
        kill.arg("-TERM").args(workers.iter().map(u32::to_string)).stdout(Stdio::null()).stderr(Stdio::null());
        // No way to report here; the child itself is killed by tokio in any case.
        let _ = kill.status();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `kill_on_drop` reaches the child alone, not a master's workers.
        self.terminate();
    }
}

/// `pid` and everything that it started, directly or not.
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    found
}

/// CPU seconds of one process with all its threads; 0 once it is gone.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(&stat).map_or(0.0, |ticks| f64::from(ticks) / TICKS_PER_SECOND)
}

/// utime + stime, fields 14 and 15 of proc(5)'s stat; the command in field 2 may hold spaces and parentheses.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn resident_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

/// A free address on loopback, for programs that cannot take port 0. It may be taken before they use it: then they fail.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    listener.local_addr().context("read a free port")
}

/// The program `name` in `PATH` or in the folders of system programs.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_past_any_command_name() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn this_process_is_its_own_first_descendant_and_uses_memory() {
        let pid = std::process::id();
        assert_eq!(descendants(pid).first(), Some(&pid));
        assert!(resident_kb(pid) > 100);
    }
}
