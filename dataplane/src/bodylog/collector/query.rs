//! Questions about single requests, answered out of the details files (payloads.md §7.6). Rows come in the order of
//! (end time, request id); of those that are equal in both, in the order in which they were written. One page holds the
//! rows with the smallest keys, so memory is bounded by the page and not by the window.

pub(crate) mod cursor;
pub(crate) mod days;
pub(crate) mod index;
pub(crate) mod parameters;

use std::borrow::Cow;
use std::collections::BinaryHeap;
use std::io;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::details::Details;
use super::files::Places;
use super::minutes::Stream;
use cursor::Cursor;
use index::{Index, Reader};

/// Most rows of a page.
pub(crate) const MOST_ROWS: usize = 5000;
/// Most bytes of a page's rows; a page that would be longer ends earlier.
const MOST_BYTES: usize = 32 << 20;
/// How much later or earlier than its end a request may be written: the clocks of replicas differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(10);

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Query {
    /// The first moment.
    pub(crate) start: Timestamp,
    /// The moment after the last.
    pub(crate) end: Timestamp,
    /// Only what comes after this.
    pub(crate) cursor: Option<Cursor>,
    pub(crate) model: Option<String>,
    /// The backend or the peer.
    pub(crate) peer: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) route: Option<String>,
    /// The key's id.
    pub(crate) key: Option<String>,
    pub(crate) refused: Option<RefusedBy>,
    /// Seconds to the first chunk, at least.
    pub(crate) min_frt: Option<f64>,
    /// Seconds that the whole request took, at least.
    pub(crate) min_rt: Option<f64>,
    pub(crate) stream: Option<Stream>,
    /// Rows of a page, 1 to [`MOST_ROWS`].
    pub(crate) limit: usize,
}

/// What a request was refused for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RefusedBy {
    /// Whatever it was.
    Any,
    /// Some rule.
    AnyRule,
    /// This gate, or this rule with `rule:` before its name.
    This(String),
}

impl RefusedBy {
    fn is(&self, refused: &str) -> bool {
        match self {
            Self::Any => !refused.is_empty(),
            Self::AnyRule => refused.starts_with("rule:"),
            Self::This(this) => refused == this,
        }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    count: usize,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    rows: Vec<Box<RawValue>>,
}

/// What of a row decides whether and where it is shown.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct Seen<'a> {
    #[serde(borrow)]
    ts: Cow<'a, str>,
    #[serde(borrow)]
    ts_end: Cow<'a, str>,
    #[serde(borrow)]
    request_id: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    peer: Cow<'a, str>,
    #[serde(borrow)]
    backend: Cow<'a, str>,
    #[serde(borrow)]
    route: Cow<'a, str>,
    #[serde(borrow)]
    key_id: Cow<'a, str>,
    #[serde(borrow)]
    refused: Cow<'a, str>,
    status: u16,
    frt: f64,
    rt: f64,
    stream: Option<bool>,
}

impl Default for Seen<'_> {
    fn default() -> Self {
        let Details { status, frt, rt, stream, .. } = Details::default();
        let empty = || Cow::Borrowed("");
        Self {
            ts: empty(),
            ts_end: empty(),
            request_id: empty(),
            model: empty(),
            peer: empty(),
            backend: empty(),
            route: empty(),
            key_id: empty(),
            refused: empty(),
            status,
            frt,
            rt,
            stream,
        }
    }
}

impl Seen<'_> {
    /// When the request ended.
    fn end(&self) -> Option<Timestamp> {
        self.ts_end.parse().ok().or_else(|| {
            let took = SignedDuration::try_from_secs_f64(self.rt).ok()?;
            self.ts.parse::<Timestamp>().ok()?.checked_add(took).ok()
        })
    }
}

impl Query {
    fn takes(&self, row: &Seen<'_>) -> bool {
        self.model.as_ref().is_none_or(|model| *model == row.model)
            && self.peer.as_ref().is_none_or(|peer| *peer == row.backend || *peer == row.peer)
            && self.status.is_none_or(|status| status == row.status)
            && self.route.as_ref().is_none_or(|route| *route == row.route)
            && self.key.as_ref().is_none_or(|key| *key == row.key_id)
            && self.refused.as_ref().is_none_or(|by| by.is(&row.refused))
            && self.min_frt.is_none_or(|min| row.frt >= min)
            && self.min_rt.is_none_or(|min| row.rt >= min)
            && self.stream.is_none_or(|stream| stream == row.stream.into())
    }

    /// Reads the files of the window. `is_cancelled` is asked at each row; a cancelled answer is an error.
    pub(crate) fn run(&self, places: &Places, index: &Index, is_cancelled: &dyn Fn() -> bool) -> io::Result<Page> {
        let start = self.cursor.as_ref().map_or(self.start, |cursor| cursor.end.max(self.start));
        let smallest = Smallest::default();
        let mut search = Search { query: self, start, is_cancelled, smallest, order: 0, skipped: 0 };
        let first = places.day(start.checked_sub(CLOCKS_DIFFER).unwrap_or(start));
        // Files are named by the time of writing, which is after the end: a day later at most.
        let last = places.day(self.end).tomorrow().unwrap_or(first);
        if start < self.end {
            for (day, packed) in days::there_are(places, first, last)? {
                let earliest = day.yesterday().ok().and_then(|before| places.start_of(before));
                if !search.wants(earliest.unwrap_or(Timestamp::MIN), Timestamp::MAX) {
                    break;
                }
                days::read(places, day, packed, index, &mut search)?;
            }
        }
        if is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        search.page()
    }
}

struct Search<'a> {
    query: &'a Query,
    start: Timestamp,
    is_cancelled: &'a dyn Fn() -> bool,
    smallest: Smallest,
    /// Lines read so far: the order of writing.
    order: u64,
    /// Rows with the cursor's own key that were passed over.
    skipped: u64,
}

impl Reader for Search<'_> {
    fn wants(&self, earliest: Timestamp, latest: Timestamp) -> bool {
        // What comes after a row that found no room finds none either.
        let has_room = self.smallest.left_out.as_ref().is_none_or(|(left_out, _)| earliest <= *left_out);
        has_room && self.start <= latest && earliest < self.query.end
    }

    fn row(&mut self, line: &[u8]) -> Option<Timestamp> {
        self.order += 1;
        let row = serde_json::from_slice::<Seen<'_>>(line).ok()?;
        let end = row.end()?;
        if self.start <= end && end < self.query.end && self.query.takes(&row) {
            self.take(&row, end, line);
        }
        Some(end)
    }

    fn is_cancelled(&self) -> bool {
        (self.is_cancelled)()
    }
}

impl Search<'_> {
    /// Takes a row that matches, unless an earlier page had it or it finds no room.
    fn take(&mut self, row: &Seen<'_>, end: Timestamp, line: &[u8]) {
        if let Some(cursor) = &self.query.cursor {
            match (end, &*row.request_id).cmp(&(cursor.end, &cursor.request_id)) {
                std::cmp::Ordering::Less => return,
                std::cmp::Ordering::Equal if cursor.passes_over(self.skipped) => {
                    self.skipped += 1;
                    return;
                }
                _ => {}
            }
        }
        let Ok(text) = std::str::from_utf8(line) else { return };
        if self.smallest.wants(end, &row.request_id) {
            let (request_id, line) = (row.request_id.to_string(), text.to_owned());
            self.smallest.put(Found { end, request_id, order: self.order, line }, self.query.limit);
        }
    }

    fn page(self) -> io::Result<Page> {
        let left_out = self.smallest.left_out;
        let found = self.smallest.rows.into_sorted_vec();
        let stamp = |row: &Found| {
            let seen = serde_json::from_str::<Seen<'_>>(&row.line);
            let text = seen.map(|seen| seen.ts_end.into_owned()).unwrap_or_default();
            if text.is_empty() { row.end.to_string() } else { text }
        };
        let mut page = Page {
            count: found.len(),
            truncated: left_out.is_some(),
            returned_from: None,
            returned_to: None,
            next_cursor: None,
            hint: None,
            rows: Vec::with_capacity(found.len()),
        };
        if let (Some(left_out), Some(first), Some(last)) = (left_out, found.first(), found.last()) {
            let key = (last.end, last.request_id.as_str());
            let is_last = |row: &&Found| (row.end, row.request_id.as_str()) == key;
            // Only where the page ends between rows of one key must the next one know how many of them were shown.
            let is_split = (left_out.0, left_out.1.as_str()) == key;
            let before = self.query.cursor.as_ref().filter(|cursor| (cursor.end, cursor.request_id.as_str()) == key);
            let shown = found.iter().rev().take_while(is_last).count() as u64 + before.map_or(0, |_| self.skipped);
            let next = Cursor { end: last.end, request_id: last.request_id.clone(), shown: is_split.then_some(shown) };
            page.returned_from = Some(stamp(first));
            page.returned_to = Some(stamp(last));
            page.next_cursor = Some(next.encode(&stamp(last)));
            page.hint = Some("more rows match: ask again with cursor=next_cursor and the same other parameters");
        }
        for row in found {
            page.rows.push(RawValue::from_string(row.line).map_err(io::Error::other)?);
        }
        Ok(page)
    }
}

/// The rows with the smallest keys so far.
#[derive(Debug, Default)]
struct Smallest {
    rows: BinaryHeap<Found>,
    bytes: usize,
    /// The smallest key that found no room: no row from there on is on this page.
    left_out: Option<(Timestamp, String)>,
}

/// A row by its key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    end: Timestamp,
    request_id: String,
    order: u64,
    line: String,
}

impl Smallest {
    fn wants(&self, end: Timestamp, request_id: &str) -> bool {
        let left_out = self.left_out.as_ref();
        left_out.is_none_or(|(limit, limit_id)| (end, request_id) < (*limit, limit_id.as_str()))
    }

    fn put(&mut self, found: Found, limit: usize) {
        self.bytes += found.line.len();
        self.rows.push(found);
        while self.rows.len() > limit || (self.bytes > MOST_BYTES && self.rows.len() > 1) {
            let Some(largest) = self.rows.pop() else { break };
            self.bytes -= largest.line.len();
            self.left_out = Some((largest.end, largest.request_id));
        }
    }
}

#[cfg(test)]
mod tests;
