//! `routerctl bodylog summary`: sums of the last minutes.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::client::CollectorAt;
use super::rows::{number, text};
use crate::args::duration;
use crate::failure::Outcome;
use crate::output::table::Columns;
use crate::output::{Answer, Out};

const COLUMNS: &str = "\
Columns, of what was captured only:
  MINUTE             with --breakdown: when the requests ended
  BACKEND            who answered; (none): the router itself, as for refusals
  2XX 4XX 5XX        requests by status
  PROMPT             tokens of prompts; CACHED: of these, out of the engine's cache
  ANSWER             tokens of answers
  TIME, MOST         whole requests: their mean and the longest
  FIRST, MOST        up to the first chunk of the answer: the mean and the longest";

/// Arguments of `bodylog summary`.
#[derive(Debug, clap::Args)]
#[command(after_help = COLUMNS)]
pub(crate) struct SummaryArgs {
    /// How far back, in whole minutes, up to seven days
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    since: Duration,
    /// Each minute apart
    #[arg(long)]
    breakdown: bool,
    /// Only requests that asked for a stream, or that asked for none
    #[arg(long, value_name = "true|false", value_parser = ["true", "false"])]
    stream: Option<String>,
    #[command(flatten)]
    at: CollectorAt,
}

/// The collector's answer.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Summary(Value);

/// Asks and prints.
pub(crate) async fn run(args: SummaryArgs, out: &mut Out<'_>) -> Outcome {
    let parameters = [
        ("minutes", Some(args.since.as_secs().div_ceil(60).to_string())),
        ("breakdown", args.breakdown.then(|| "true".to_owned())),
        ("stream", args.stream),
    ];
    let summary = Summary(args.at.open()?.get("/summary", &parameters).await?);
    if summary.0.get("truncated") == Some(&Value::Bool(true)) {
        out.note("note: older minutes are left out; a shorter --since shows all of its minutes");
    }
    out.answer(&summary)
}

impl Answer for Summary {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        let rows = |name: &str| self.0.get(name).and_then(Value::as_array);
        let (shown, by_minute) = match rows("buckets") {
            Some(buckets) => (Some(buckets), true),
            None => (rows("peers"), false),
        };
        let headings = [
            "MINUTE",
            "BACKEND",
            ">REQUESTS",
            ">2XX",
            ">4XX",
            ">5XX",
            ">PROMPT",
            ">CACHED",
            ">ANSWER",
            ">TIME",
            ">MOST",
            ">FIRST",
            ">MOST",
        ];
        let mut columns = Columns::new(headings.get(usize::from(!by_minute)..).unwrap_or_default());
        for row in shown.into_iter().flatten() {
            let ms = |name: &str| format!("{}ms", number(row, name));
            let cells = [
                text(row, "minute"),
                text(row, "peer"),
                number(row, "requests"),
                number(row, "status_2xx"),
                number(row, "status_4xx"),
                number(row, "status_5xx"),
                number(row, "prompt_tokens"),
                number(row, "cached_tokens"),
                number(row, "completion_tokens"),
                ms("rt_avg_ms"),
                ms("rt_max_ms"),
                ms("frt_avg_ms"),
                ms("frt_max_ms"),
            ];
            columns.row(cells.into_iter().skip(usize::from(!by_minute)));
        }
        columns.print(out, "", "no requests")
    }
}
