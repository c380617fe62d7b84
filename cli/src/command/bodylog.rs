//! `routerctl bodylog`: the collector of the body log as a process, and questions to it. Answers over its port hold no bodies;
//! those are read out of its files.

mod client;
pub(crate) mod get;
pub(crate) mod query;
mod rows;
pub(crate) mod serve;
pub(crate) mod summary;
pub(crate) mod tail;
#[cfg(test)]
mod tests;

use clap::Subcommand;

use crate::failure::Outcome;
use crate::output::Out;

/// What to do with the body log.
#[derive(Debug, Subcommand)]
pub(crate) enum BodyLogVerb {
    /// Run the collector: replicas deliver to it, it keeps files and answers questions.
    Serve(Box<serve::ServeArgs>),
    #[command(flatten)]
    Ask(Box<Question>),
}

/// What the collector, or its files, can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum Question {
    /// Print requests that ended in a time, without their bodies.
    Query(query::QueryArgs),
    /// Print requests as they end, without their bodies.
    Tail(tail::TailArgs),
    /// Print one full record with its bodies, as JSON, out of the collector's files.
    Get(get::GetArgs),
    /// Print the sums of the last minutes, for each backend.
    Summary(summary::SummaryArgs),
}

impl Question {
    /// Asks and prints.
    pub(crate) async fn run(self, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::Query(args) => query::run(args, out).await,
            Self::Tail(args) => tail::run(args, out).await,
            Self::Get(args) => get::run(&args, out),
            Self::Summary(args) => summary::run(args, out).await,
        }
    }
}
