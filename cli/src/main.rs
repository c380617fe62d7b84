//! `routerctl`: the operator's tool, and every role of the router as a process of its own.
//!
//! What both planes would share and is not pure lives here: signals, log setup, the ports. Data goes to
//! stdout, everything else to stderr.

mod args;
mod backends;
mod client;
mod command;
mod document;
mod failure;
mod gateway_flags;
mod mock_engine;
mod output;
mod overlay;
mod process;
mod supervise;
mod token;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use crate::failure::{Failure, Kind};

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => command::run(cli),
        Err(answer) => {
            // Help and version are answers on stdout; everything else is a complaint on stderr. A closed one is no error.
            drop(answer.print());
            let kind = if answer.use_stderr() { Kind::Usage } else { Kind::OutputClosed };
            Err(Failure::new(kind, ""))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&mut io::stderr()),
    }
}
