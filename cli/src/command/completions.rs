//! `routerctl completions`: for instance `routerctl completions bash > /etc/bash_completion.d/routerctl`.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Outcome;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script. Through a buffer: the generator panics when its output is closed.
pub(crate) fn run(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "routerctl", &mut script);
    let mut stdout = io::stdout().lock();
    stdout.write_all(&script)?;
    Ok(stdout.flush()?)
}
