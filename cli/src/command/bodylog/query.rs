//! `routerctl bodylog query`: requests that ended in a time.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::{Collector, CollectorAt};
use super::rows;
use crate::args::duration;
use crate::failure::{Failure, Outcome};
use crate::output::{Answer, Out};

/// Most rows that the collector puts on a page.
pub(super) const PAGE: usize = 5000;

/// Which requests.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Filter {
    /// Of this route
    #[arg(long, value_name = "ROUTE")]
    route: Option<String>,
    /// Of this model; where no answer names one, the one that was asked for
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Of this key, by its id as `key list` shows it
    #[arg(long, value_name = "KEY_ID")]
    key: Option<String>,
    /// Refused by this gate, such as `queue_full`, or by `rule:NAME`; `rule` is any rule, `any` is whatever it was
    #[arg(long, value_name = "any|rule|GATE|rule:NAME")]
    refused: Option<String>,
    /// Answered by this backend or peer, written in full as BACKEND shows it
    #[arg(long, value_name = "HOST:PORT")]
    peer: Option<String>,
    /// With this status
    #[arg(long, value_name = "CODE")]
    status: Option<u16>,
    /// Whose first chunk took at least this many seconds
    #[arg(long, value_name = "SECONDS")]
    min_frt: Option<f64>,
    /// That took at least this many seconds
    #[arg(long, value_name = "SECONDS")]
    min_rt: Option<f64>,
    /// That asked for a stream, did not, or did not say
    #[arg(long, value_name = "true|false|unknown", value_parser = ["true", "false", "unknown"])]
    stream: Option<String>,
}

/// Arguments of `bodylog query`.
#[derive(Debug, clap::Args)]
pub(crate) struct QueryArgs {
    /// Requests that ended within this time before now [default: 15m]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "start")]
    since: Option<Duration>,
    /// Requests that ended then or later: 2026-06-18T12:00:00+08:00, "2026-06-18 12:00:00" in the collector's zone,
    /// 2026-06-18 for its midnight there, or Unix seconds
    #[arg(long, value_name = "WHEN")]
    start: Option<String>,
    /// Requests that ended before then, in the same forms [default: now]
    #[arg(long, value_name = "WHEN")]
    end: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Most rows, at least 1
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    #[command(flatten)]
    at: CollectorAt,
}

/// A page of the collector.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) rows: Vec<Value>,
    pub(super) next_cursor: Option<String>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Rows {
    rows: Vec<Value>,
    /// Whether more rows match than `--limit` lets through.
    truncated: bool,
}

/// What is asked for, from a start to an end.
pub(super) struct Window<'a> {
    pub(super) start: String,
    pub(super) end: String,
    pub(super) filter: &'a Filter,
}

impl Window<'_> {
    /// Reads page after page, up to `limit` rows; and whether there are more.
    async fn read(&self, collector: &Collector, limit: usize) -> Result<(Vec<Value>, bool), Failure> {
        let mut rows = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.page(collector, cursor.take(), (limit - rows.len()).clamp(1, PAGE)).await?;
            rows.extend(page.rows);
            cursor = page.next_cursor;
            if cursor.is_none() || rows.len() >= limit {
                let is_more = cursor.is_some() || rows.len() > limit;
                rows.truncate(limit);
                return Ok((rows, is_more));
            }
        }
    }

    /// One page: the first one, or the one after `cursor`.
    pub(super) async fn page(
        &self,
        collector: &Collector,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<Page, Failure> {
        let filter = self.filter;
        let parameters = [
            ("start", Some(self.start.clone())),
            ("end", Some(self.end.clone())),
            ("cursor", cursor),
            ("limit", Some(limit.to_string())),
            ("route", filter.route.clone()),
            ("model", filter.model.clone()),
            ("key", filter.key.clone()),
            ("refused", filter.refused.clone()),
            ("peer", filter.peer.clone()),
            ("status", filter.status.map(|status| status.to_string())),
            ("min_frt", filter.min_frt.map(|seconds| seconds.to_string())),
            ("min_rt", filter.min_rt.map(|seconds| seconds.to_string())),
            ("stream", filter.stream.clone()),
        ];
        collector.get("/details", &parameters).await
    }
}

/// Unix seconds with their fraction, as the collector reads them.
pub(super) fn seconds(unix_ms: u64) -> String {
    format!("{}.{:03}", unix_ms / 1000, unix_ms % 1000)
}

/// Asks and prints.
pub(crate) async fn run(args: QueryArgs, out: &mut Out<'_>) -> Outcome {
    let since = args.since.unwrap_or(Duration::from_secs(900));
    let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let start = args.start.unwrap_or_else(|| seconds(out.now_unix_ms.saturating_sub(since_ms)));
    let end = args.end.unwrap_or_else(|| seconds(out.now_unix_ms));
    let window = Window { start, end, filter: &args.filter };
    let (rows, truncated) = window.read(&args.at.open()?, args.limit.get()).await?;
    if truncated {
        out.note(&format!("note: more requests match than --limit {} shows", args.limit));
    }
    out.answer(&Rows { rows, truncated })
}

impl Answer for Rows {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        rows::print(out, &self.rows)
    }
}
