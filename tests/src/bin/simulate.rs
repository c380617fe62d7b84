//! The simulation (`docs/simulation.md`): a fleet under overload, with static limits, adaptive limits and turn priority, in
//! seconds. Data goes to stdout.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use router_tests::simulation::{plot, report, setting, tally::Tally, workload::Workload, world};

/// Simulates a fleet under overload with the router's own decisions.
#[derive(Debug, Parser)]
struct Cli {
    /// Equal seeds give equal results, on every machine.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions at the usual load; the run is as long as they need.
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// Percent of the usual load, in the same time.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    load: u64,
    /// An option for each adaptive route, as a route document writes it. May be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Writes the curves here.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The figures as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to do if stderr is gone too.
            drop(writeln!(std::io::stderr().lock(), "simulate: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let workload = Workload::new(cli.seed, cli.sessions as usize, cli.load);
    let settings = setting::settings(&cli.options)?;
    let tallies: Vec<_> = settings.iter().map(|setting| world::run(&workload, setting)).collect();
    let figures: Vec<_> = tallies.iter().map(Tally::figures).collect();
    let mut text = if cli.json { serde_json::to_string_pretty(&figures)? } else { report::markdown(&figures) };
    if cli.json {
        text.push('\n');
    }
    std::io::stdout().lock().write_all(text.as_bytes()).context("write to stdout")?;
    if let Some(path) = &cli.svg {
        std::fs::write(path, plot::svg(&workload, &tallies)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
