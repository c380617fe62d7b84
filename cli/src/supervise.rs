//! Child processes of `up` and `demo`: start them, follow what they announce, stop them in order.
//!
//! A child has three lines of contact. Its stdin is held open: when it ends, because it is closed here or because this
//! process is gone, the child shuts down in order. Its stdout carries announcements (`listening ...`, `ready ...`), which
//! are passed on. Its stderr is its log, passed on with the child's name in front. Each child has a process group of its
//! own, so that Ctrl-C reaches this process alone and the order of stopping is kept. A child that ends by itself is an error, or is started again
//! ([`restart`]).

mod restart;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A place for lines from several tasks.
#[derive(Clone)]
pub(crate) struct Lines(Arc<Mutex<Box<dyn Write + Send>>>);

impl Lines {
    /// Lines into `out`.
    pub(crate) fn new(out: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(out))))
    }

    /// Writes a whole line at once. When nobody reads any more, children go on all the same.
    pub(crate) fn write(&self, line: &str) {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(writeln!(out, "{line}").and_then(|()| out.flush()));
    }
}

/// What a child says of itself on stdout: a word and `key=value` pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// `listening` or `ready`.
    pub(crate) word: String,
    fields: BTreeMap<String, String>,
}

impl Announcement {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split_ascii_whitespace();
        let word = parts.next().filter(|word| ["listening", "ready"].contains(word))?.to_owned();
        let pair = |part: &str| part.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Some(Self { word, fields: parts.map(pair).collect::<Option<_>>()? })
    }

    /// The value of a key.
    pub(crate) fn field(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(String::as_str)
    }
}

/// What went wrong with a child.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It could not be started.
    #[error("start {child}: {cause}")]
    Start {
        /// Its name.
        child: String,
        /// Why.
        cause: io::Error,
    },
    /// It ended although nobody had asked for that.
    #[error("{child} ended by itself ({status})")]
    Ended {
        /// Its name.
        child: String,
        /// How.
        status: String,
    },
    /// It said nothing for too long.
    #[error("{child} was not {word} within {} s", .after.as_secs())]
    Silent {
        /// Its name.
        child: String,
        /// The announcement that was waited for.
        word: &'static str,
        /// How long.
        after: Duration,
    },
    /// Its announcement lacks something.
    #[error("{child} did not say its {key} address")]
    Unclear {
        /// Its name.
        child: String,
        /// What was looked for.
        key: &'static str,
    },
}

/// Something that happened to a child.
enum Event {
    Said { child: usize, announcement: Announcement },
    Ended { child: usize, status: String },
}

/// One child as the supervisor knows it.
struct Handle {
    name: String,
    args: Vec<OsString>,
    /// When it was started, the latest last.
    starts: Vec<Instant>,
    stdin: Option<ChildStdin>,
    kill: CancellationToken,
    announced: Vec<Announcement>,
    ended: Option<String>,
}

/// The children of this process. Dropping it kills those that are left.
pub(crate) struct Supervisor {
    executable: PathBuf,
    data: Lines,
    log: Lines,
    is_hermetic: bool,
    /// Before a child that ended by itself is started again.
    pause: Duration,
    children: Vec<Handle>,
    tasks: TaskTracker,
    /// Bounded by what a child may announce: readers wait when nobody takes events.
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl Supervisor {
    /// Children of `executable`; their announcements go to `data`, their logs to `log`.
    pub(crate) fn new(executable: PathBuf, data: Lines, log: Lines) -> Self {
        let (sender, events) = mpsc::channel(64);
        Self {
            executable,
            data,
            log,
            is_hermetic: false,
            pause: restart::PAUSE,
            children: Vec::new(),
            tasks: TaskTracker::new(),
            sender,
            events,
        }
    }

    /// Children get none of this program's settings from the environment, but for `RUST_LOG`.
    pub(crate) fn hermetic(mut self) -> Self {
        self.is_hermetic = true;
        self
    }

    /// Starts a child.
    pub(crate) fn start(&mut self, name: &str, args: &[OsString]) -> Result<(), Error> {
        let handle = self.launch(self.children.len(), name, args)?;
        self.children.push(handle);
        Ok(())
    }

    /// Runs a child that stands, or will stand, at this place of the list.
    fn launch(&mut self, child: usize, name: &str, args: &[OsString]) -> Result<Handle, Error> {
        let mut command = Command::new(&self.executable);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if self.is_hermetic {
            for (key, _) in std::env::vars_os() {
                if key == "DATABASE_URL" || key == "DATABASE_URL_FILE" || key.to_string_lossy().starts_with("ROUTER_") {
                    command.env_remove(key);
                }
            }
        }
        let mut process = command.spawn().map_err(|cause| Error::Start { child: name.to_owned(), cause })?;
        let kill = CancellationToken::new();
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        // The readers end with the child; the waiter ends last and says so.
        let readers = TaskTracker::new();
        if let Some(stderr) = stderr {
            let (log, prefix) = (self.log.clone(), format!("{name} | "));
            readers.spawn(each_line(stderr, async move |line| log.write(&format!("{prefix}{line}"))));
        }
        if let Some(stdout) = stdout {
            let (data, sender) = (self.data.clone(), self.sender.clone());
            readers.spawn(each_line(stdout, async move |line| {
                data.write(&line);
                if let Some(announcement) = Announcement::parse(&line) {
                    // Without a receiver there is no supervisor left to tell.
                    drop(sender.send(Event::Said { child, announcement }).await);
                }
            }));
        }
        readers.close();
        self.tasks.spawn(wait_for(process, child, kill.clone(), readers, self.sender.clone()));
        let (name, args, starts) = (name.to_owned(), args.to_vec(), vec![Instant::now()]);
        Ok(Handle { name, args, starts, stdin, kill, announced: Vec::new(), ended: None })
    }

    /// Waits until a child has announced `word`, at most `patience`; fails when any child ends meanwhile.
    pub(crate) async fn announced(
        &mut self,
        name: &str,
        word: &'static str,
        patience: Duration,
    ) -> Result<Announcement, Error> {
        let silent = Error::Silent { child: name.to_owned(), word, after: patience };
        let wait = async {
            loop {
                self.check()?;
                let children = self.children.iter().filter(|child| child.name == name);
                let found = children.flat_map(|child| &child.announced).find(|said| said.word == word);
                if let Some(announcement) = found {
                    return Ok(announcement.clone());
                }
                self.next_event().await;
            }
        };
        tokio::time::timeout(patience, wait).await.unwrap_or(Err(silent))
    }

    /// The address that a child has announced.
    pub(crate) async fn address(&mut self, name: &str, key: &'static str, patience: Duration) -> Result<String, Error> {
        let said = self.announced(name, "listening", patience).await?;
        let unclear = Error::Unclear { child: name.to_owned(), key };
        said.field(key).map(str::to_owned).ok_or(unclear)
    }

    /// Resolves when a child ends by itself.
    pub(crate) async fn first_end(&mut self) -> Error {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            self.next_event().await;
        }
    }

    /// Stops the children whose names start with `prefix`: asks, waits at most `grace`, then kills. Returns the names of
    /// those that had to be killed.
    pub(crate) async fn stop(&mut self, prefix: &str, grace: Duration) -> Vec<String> {
        for child in self.children.iter_mut().filter(|child| child.name.starts_with(prefix)) {
            drop(child.stdin.take());
        }
        let asked = tokio::time::timeout(grace, self.until_ended(prefix)).await;
        if asked.is_ok() {
            return Vec::new();
        }
        let left = self.children.iter().filter(|child| child.name.starts_with(prefix) && child.ended.is_none());
        let killed = left
            .map(|child| {
                child.kill.cancel();
                child.name.clone()
            })
            .collect();
        self.until_ended(prefix).await;
        killed
    }

    async fn until_ended(&mut self, prefix: &str) {
        while self.children.iter().any(|child| child.name.starts_with(prefix) && child.ended.is_none()) {
            self.next_event().await;
        }
    }

    /// An error for the first child that ended without being asked to.
    fn check(&self) -> Result<(), Error> {
        let lost = self.children.iter().find(|child| child.stdin.is_some() && child.ended.is_some());
        match lost {
            None => Ok(()),
            Some(child) => {
                Err(Error::Ended { child: child.name.clone(), status: child.ended.clone().unwrap_or_default() })
            }
        }
    }

    async fn next_event(&mut self) {
        // The supervisor holds a sender itself: the channel never ends.
        let Some(event) = self.events.recv().await else { return };
        match event {
            Event::Said { child, announcement } => {
                if let Some(handle) = self.children.get_mut(child) {
                    handle.announced.push(announcement);
                }
            }
            Event::Ended { child, status } => {
                if let Some(handle) = self.children.get_mut(child) {
                    handle.ended = Some(status);
                }
            }
        }
    }
}

/// Waits for a child's end, and for the last of its lines; kills it when asked.
async fn wait_for(
    mut process: Child,
    child: usize,
    kill: CancellationToken,
    readers: TaskTracker,
    sender: mpsc::Sender<Event>,
) {
    let ended = tokio::select! {
        ended = process.wait() => ended,
        () = kill.cancelled() => match process.start_kill() {
            Ok(()) => process.wait().await,
            Err(error) => Err(error),
        },
    };
    readers.wait().await;
    let status = ended.map_or_else(|error| error.to_string(), describe);
    drop(sender.send(Event::Ended { child, status }).await);
}

fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}

async fn each_line(stream: impl AsyncRead + Unpin, take: impl AsyncFn(String)) {
    let mut lines = BufReader::new(stream).lines();
    loop {
        match lines.next_line().await {
            Ok(Some(line)) => take(line).await,
            // A line that is not UTF-8 is lost, not the ones after it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Ok(None) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests;
