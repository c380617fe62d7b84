//! `routerctl bodylog tail`: requests as they end. The collector is asked every so often for those that ended lately, and
//! what was not there before is printed; or, on the collector's machine, its newest file is read on.

mod follow;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::client::CollectorAt;
use super::query::{Filter, Window, seconds};
use super::rows;
use crate::args::duration;
use crate::command::now_unix_ms;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Out};
use follow::Follow;

/// How much later than it ended a request may still arrive: replicas send within a second, and try again.
const LATE_MS: u64 = 60_000;
/// How far the clocks of replicas may be ahead.
const AHEAD_MS: u64 = 600_000;
/// Most rows of one round. What is beyond is seen in the next one.
const ROUND: usize = 50_000;

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
    #[arg(long, value_name = "N")]
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
            if !printed.print(&follow.new_rows()?, out)? {
                return Ok(());
            }
            tokio::time::sleep(args.interval).await;
        }
    }
    let collector = args.at.open()?;
    let mut seen = Seen::default();
    let mut is_first = true;
    loop {
        let now = now_unix_ms();
        let back = args.since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let back = if is_first { back.max(LATE_MS) } else { LATE_MS };
        let (start, end) = (seconds(now.saturating_sub(back)), seconds(now.saturating_add(AHEAD_MS)));
        let (rows, _) = Window { start, end, filter: &args.filter }.read(&collector, ROUND).await?;
        let new = seen.new_of(rows);
        let is_printed = !is_first || args.since.is_some();
        if is_printed && !printed.print(&new, out)? {
            return Ok(());
        }
        is_first = false;
        tokio::time::sleep(args.interval).await;
    }
}

/// The rows of the round before, by what tells them apart: rows with the same are counted.
#[derive(Debug, Default)]
struct Seen(HashMap<(String, String), usize>);

impl Seen {
    /// The rows that were not there before. A window that moves on loses its oldest rows, which never come back.
    fn new_of(&mut self, rows: Vec<Value>) -> Vec<Value> {
        let mut now: HashMap<(String, String), usize> = HashMap::new();
        let field = |row: &Value, name| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let new = rows.into_iter().filter(|row| {
            let key = (field(row, "ts_end"), field(row, "request_id"));
            let before = self.0.get(&key).copied().unwrap_or(0);
            let count = now.entry(key).or_default();
            *count += 1;
            *count > before
        });
        let new = new.collect();
        self.0 = now;
        new
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_row_is_new_once_also_when_it_comes_late_or_has_a_twin() {
        let row = |end: &str, id: &str| json!({"ts_end": end, "request_id": id});
        let mut seen = Seen::default();
        let count = |seen: &mut Seen, rows: &[Value]| seen.new_of(rows.to_vec()).len();
        assert_eq!(count(&mut seen, &[row("1", "a"), row("3", "b")]), 2);
        assert_eq!(count(&mut seen, &[row("1", "a"), row("3", "b")]), 0);
        assert_eq!(count(&mut seen, &[row("1", "a"), row("2", "late"), row("3", "b"), row("3", "b")]), 2);
        assert_eq!(count(&mut seen, &[row("3", "b"), row("3", "b"), row("4", "")]), 1);
    }
}
