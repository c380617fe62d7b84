//! The load tool: what the router costs, beside nginx and `HAProxy` in the same run on the same machine.
//!
//! It starts every process itself, on loopback and free ports, and kills them when it ends. Client, proxy and engine share
//! the cores, so the proxy's CPU seconds per 1000 requests are the fairest figure. Peers that are not installed are
//! skipped with a line that says so. Data goes to stdout, progress to stderr; every run is bounded in time and count.

#[path = "../load/client.rs"]
mod client;
#[path = "../load/engine.rs"]
mod engine;
#[path = "../load/memory.rs"]
mod memory;
#[path = "../load/peer.rs"]
mod peer;
#[path = "../load/process.rs"]
mod process;
#[path = "../load/report.rs"]
mod report;
#[path = "../load/stream.rs"]
mod stream;
#[path = "../load/throughput.rs"]
mod throughput;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// Measures the router against its peers.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Requests per second, latency, and the proxies' CPU seconds per 1000 requests.
    Throughput(throughput::Args),
    /// Memory per slow stream of the router.
    Memory(memory::Args),
    /// Events per second of many fast streams, and the proxies' CPU.
    Stream(stream::Args),
    /// The engine of `throughput`: one fixed answer to everything, at the least cost.
    #[command(hide = true)]
    Engine(engine::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // One thread: the client must take as little as it can of the cores that it measures on.
    let ended =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from).and_then(
            |runtime| {
                runtime.block_on(async {
                    match cli.command {
                        Command::Throughput(args) => throughput::run(args).await,
                        Command::Memory(args) => memory::run(args).await,
                        Command::Stream(args) => stream::run(args).await,
                        Command::Engine(args) => engine::run(args).await,
                    }
                })
            },
        );
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if stderr is gone too.
            drop(writeln!(std::io::stderr().lock(), "load: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
