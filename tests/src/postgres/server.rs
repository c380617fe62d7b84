//! One run of the server program, from start to end.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{PostgresError, Result, io_error, line, psql, run};

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// A server process; ended at the latest when this is dropped.
pub(super) struct Server {
    command: String,
    process: Process,
    log: PathBuf,
}

/// The child and the thread that started it and stays until it has ended: the kernel ends the child with that thread.
struct Process {
    child: Arc<Mutex<Child>>,
    parent: Option<thread::JoinHandle<()>>,
}

impl Process {
    fn start(mut command: Command) -> Result<Self> {
        let what = format!("start `{}`", line(&command));
        let (tell, started) = mpsc::channel();
        let parent = thread::Builder::new().name("postgres".into()).spawn(move || match command.spawn() {
            Ok(child) => {
                let child = Arc::new(Mutex::new(child));
                if tell.send(Ok(Arc::clone(&child))).is_ok() {
                    while is_running(&child) {
                        thread::sleep(POLL);
                    }
                }
            }
            Err(error) => drop(tell.send(Err(error))),
        });
        let parent = parent.map_err(io_error("start a thread"))?;
        let child = started.recv().map_err(|_| std::io::Error::other("the thread ended")).and_then(|child| child);
        Ok(Self { child: child.map_err(io_error(what))?, parent: Some(parent) })
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // Not reaped while the lock is held, so the id is still the child's.
        if matches!(child.try_wait(), Ok(None)) {
            run(Command::new("sh").arg("-c").arg(format!("kill -{signal} {}", child.id())))?;
        }
        Ok(())
    }

    fn ended_within(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while is_running(&self.child) {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(POLL);
        }
        self.parent.take().is_none_or(|parent| parent.join().is_ok())
    }
}

fn is_running(child: &Mutex<Child>) -> bool {
    matches!(child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
}

impl Server {
    /// Starts the program and waits until it answers a query. A server whose predecessor was killed may have to wait for
    /// that one's children: it is started again until the limit.
    pub(super) fn start(make_command: impl Fn() -> Result<Command>, folder: &Path, url: &str) -> Result<Self> {
        let end = Instant::now() + START_LIMIT;
        let log = folder.join("log");
        loop {
            let mut command = make_command()?;
            let text = line(&command);
            let file = OpenOptions::new().create(true).append(true).open(&log).map_err(io_error("open the log"))?;
            let copy = file.try_clone().map_err(io_error("open the log"))?;
            command.stdin(Stdio::null()).stdout(file).stderr(copy);
            let mut server = Self { command: text, process: Process::start(command)?, log: log.clone() };
            while is_running(&server.process.child) && Instant::now() < end {
                if psql(url, "SELECT 1").is_ok() {
                    return Ok(server);
                }
                thread::sleep(POLL);
            }
            if Instant::now() >= end || !server.waits_for_predecessor() {
                return Err(server.not_ready());
            }
            server.stop("KILL")?;
            thread::sleep(POLL);
        }
    }

    fn waits_for_predecessor(&self) -> bool {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().rev().take(5).any(|line| line.contains("still in use") || line.contains("already exists"))
    }

    fn not_ready(&self) -> PostgresError {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n");
        PostgresError::NotReady { command: self.command.clone(), seconds: START_LIMIT.as_secs(), output: tail }
    }

    /// Sends a signal (`INT`: disconnect clients and stop; `QUIT`: stop at once; `KILL`) and waits for the end.
    pub(super) fn stop(&mut self, signal: &str) -> Result<()> {
        self.process.signal(signal)?;
        if !self.process.ended_within(STOP_LIMIT) {
            self.process.signal("KILL")?;
            self.process.ended_within(STOP_LIMIT);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to be done about a failure here; the kernel ends the server with this process.
        let _ = self.stop("QUIT");
    }
}
