//! What a role needs to be a process: logs, signals, ports, and the lines on stdout by which others follow it. The planes
//! are libraries and get all of this ready-made.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, Kind, Outcome};

/// How logs look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    // Plain comments: in help these words need no explanation.
    #[default]
    Text,
    Json,
}

/// Sends logs to stderr. `RUST_LOG` sets the level, `info` without it.
pub(crate) fn start_logs(format: LogFormat) -> Outcome {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|error| Failure::usage(format!("RUST_LOG: {error}")))?
        }
        _ => EnvFilter::new("info"),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::failed(format!("start logs: {error}")))
}

/// A runtime for a role; `threads` workers, or one per core.
pub(crate) fn server_runtime(threads: Option<usize>) -> Result<Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(|error| Failure::failed(format!("start the runtime: {error}")))
}

/// The first SIGTERM or SIGINT, or the end of stdin, asks for an orderly shutdown; the next signal ends the process.
pub(crate) struct Shutdown {
    token: CancellationToken,
    interrupt: Signal,
    terminate: Signal,
}

impl Shutdown {
    /// Starts to listen for signals; must be called inside a runtime.
    pub(crate) fn listen(exit_on_stdin_eof: bool) -> Result<Self, Failure> {
        let install = |kind| signal(kind).map_err(|error| Failure::failed(format!("listen for signals: {error}")));
        let interrupt = install(SignalKind::interrupt())?;
        let terminate = install(SignalKind::terminate())?;
        let token = CancellationToken::new();
        if exit_on_stdin_eof {
            watch_stdin(token.clone())?;
        }
        Ok(Self { token, interrupt, terminate })
    }

    /// Resolves when an orderly shutdown is asked for.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Runs `work` to its end, cancelling the token at the first signal and giving up at the second.
    pub(crate) async fn guard(mut self, work: impl Future<Output = Outcome>) -> Outcome {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                outcome = &mut work => return outcome,
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self.token.is_cancelled() {
                return Err(Failure::new(Kind::Interrupted, "stopped at once by a second signal"));
            }
            tracing::info!("shutting down; a second signal ends the process at once");
            self.token.cancel();
        }
    }
}

/// A parent holds the other end of stdin: when it is gone, however it died, this process goes too. A thread, because a
/// blocked read can't be cancelled; it ends with the process.
fn watch_stdin(token: CancellationToken) -> Outcome {
    let watch = move || {
        let mut buffer = [0; 256];
        let mut stdin = io::stdin().lock();
        while !matches!(stdin.read(&mut buffer), Ok(0) | Err(_)) {}
        token.cancel();
    };
    let thread = std::thread::Builder::new().name("stdin".to_owned()).spawn(watch);
    thread.map(drop).map_err(|error| Failure::failed(format!("start a thread: {error}")))
}

/// Connections that may wait to be accepted: enough for a front proxy's bursts. It raises no limit and no queue
/// (gateway.md §1).
const BACKLOG: u32 = 256;

/// Binds a port, or says in one line which flag names it and what to do. Must be called inside a runtime.
pub(crate) fn bind(flag: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    listen(address).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("address already in use; stop the process that listens there or choose another with {flag}")
            }
            io::ErrorKind::PermissionDenied => {
                format!("permission denied; choose a port above 1023 with {flag}")
            }
            io::ErrorKind::AddrNotAvailable => {
                format!("this machine has no such address; choose another with {flag}")
            }
            _ => error.to_string(),
        };
        Failure::failed(format!("{flag} {address}: {advice}"))
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As std does: a restart need not wait for the last connections' TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The address that a listener has got.
pub(crate) fn bound(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::failed(format!("read the bound address: {error}")))
}

/// Prints one line on stdout at once. A role whose stdout is closed goes on: its logs say the same.
pub(crate) fn announce(line: &str) {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if let Err(error) = written {
        tracing::debug!(%error, "print to stdout");
    }
    tracing::info!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_used_port_is_one_line_that_names_the_flag() {
        let first = bind("--listen", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let failure = bind("--listen", bound(&first).unwrap()).unwrap_err();
        assert_eq!(failure.kind, Kind::Failed);
        assert!(failure.message.starts_with("--listen 127.0.0.1:"), "{failure:?}");
        assert!(failure.message.contains("address already in use; "), "{failure:?}");
        assert_eq!(failure.message.lines().count(), 1);
    }

    #[tokio::test]
    async fn work_that_ends_by_itself_ends_the_guard() {
        let shutdown = Shutdown::listen(false).unwrap();
        let token = shutdown.token();
        assert_eq!(shutdown.guard(async { Err(Failure::failed("x")) }).await, Err(Failure::failed("x")));
        assert!(!token.is_cancelled());
    }
}
