//! `routerctl bodylog tail`: requests as they end. The collector is asked every so often for those that ended lately, and
//! what was not there before is printed; or, on the collector's machine, its newest file is read on.

mod follow;
mod rounds;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::client::{Collector, CollectorAt};
use super::query::{Filter, PAGE, Window, seconds};
use super::rows;
use crate::args::duration;
use crate::command::now_unix_ms;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Out};
use follow::Follow;
use rounds::{Rounds, Seen, Stretch};

/// What the collector filters by.
const FILTERS: [&str; 9] = ["route", "model", "key", "refused", "peer", "status", "min_frt", "min_rt", "stream"];

/// Arguments of `bodylog tail`.
#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    /// Start with the requests that ended within this time before now [default: only new ones]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "dir")]
    since: Option<Duration>,
    /// How often the collector is asked or its file read
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    interval: Duration,
    /// Read the files in the collector's folder instead of asking it
    #[arg(long, value_name = "FOLDER", conflicts_with_all = FILTERS)]
    dir: Option<PathBuf>,
    /// End after this many requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    at: CollectorAt,
}

/// Prints until `--count`, an error, or a signal.
pub(crate) async fn run(args: TailArgs, out: &mut Out<'_>) -> Outcome {
    if out.format == Format::Yaml {
        return Err(Failure::usage("-o yaml: tail prints lines; allowed: table, json"));
    }
    let mut printed = Printed { left: args.count };
    if let Some(dir) = &args.dir {
        let mut follow = Follow::at_end(dir)?;
        loop {
            while let Some(rows) = follow.next_rows()? {
                if !printed.print(&rows, out)? {
                    return Ok(());
                }
            }
            tokio::time::sleep(args.interval).await;
        }
    }
    let collector = args.at.open()?;
    let mut seen = Seen::default();
    let since = args.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let (mut rounds, mut stretches) = Rounds::first(now_unix_ms(), since);
    loop {
        for stretch in stretches {
            if !show(stretch, &args.filter, &collector, &mut seen, &mut printed, out).await? {
                return Ok(());
            }
        }
        tokio::time::sleep(args.interval).await;
        stretches = vec![rounds.next(now_unix_ms())];
    }
}

/// Asks for a stretch page by page and prints what is new; whether there is more to come.
async fn show(
    stretch: Stretch,
    filter: &Filter,
    collector: &Collector,
    seen: &mut Seen,
    printed: &mut Printed,
    out: &mut Out<'_>,
) -> Result<bool, Failure> {
    let window = Window { start: seconds(stretch.start), end: seconds(stretch.end), filter };
    let mut cursor = None;
    loop {
        let page = window.page(collector, cursor.take(), PAGE).await?;
        let rows = if stretch.is_known { seen.new_of(page.rows) } else { page.rows };
        if stretch.is_shown && !printed.print(&rows, out)? {
            return Ok(false);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if stretch.is_known {
        seen.end(stretch.is_full);
    }
    Ok(true)
}

struct Printed {
    left: Option<u64>,
}

impl Printed {
    /// Prints rows; whether there is more to come.
    fn print(&mut self, rows: &[Value], out: &mut Out<'_>) -> Result<bool, Failure> {
        for row in rows {
            if self.left == Some(0) {
                break;
            }
            match out.format {
                Format::Json => writeln!(out.stdout, "{row}")?,
                _ => rows::print_line(out.stdout, row)?,
            }
            self.left = self.left.map(|left| left - 1);
        }
        out.stdout.flush()?;
        Ok(self.left != Some(0))
    }
}
