//! Sums by minute, backend and kind of answer (payloads.md §7.5). Seven days are kept in memory; a file per day keeps them
//! for ever. A line of a file is what came since the line before it for the same minute: lines of one key add up, so a
//! late arrival is a line of its own.

mod rebuild;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::details::Details;
use super::files::{Places, each_line, open_if_there};
use crate::bodylog::zone::stamp;

/// How long minutes stay in memory.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A minute is written once it is this old.
const SETTLED: SignedDuration = SignedDuration::from_secs(90);
/// How far a replica's clock may be ahead. What is later is counted where it arrived.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);
/// Most backends that are told apart; the rest is summed as [`OTHER`]. Senders name them.
const MOST_BACKENDS: usize = 1000;
/// Most sums in memory, of about 200 bytes each; beyond, the oldest are forgotten before their seven days are over. Enough
/// for 50 backends with streams and without.
const MOST_ENTRIES: usize = if cfg!(test) { 20_000 } else { 1 << 20 };
/// What is handed out at once.
const PIECE: usize = 4096;
/// The name of all backends beyond these.
pub(crate) const OTHER: &str = "other";

/// What is summed apart. Times are whole minutes since 1970.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) minute: i64,
    pub(crate) peer: Arc<str>,
    pub(crate) stream: Stream,
}

impl Key {
    /// The smallest of a minute.
    fn first_of(minute: i64) -> Self {
        Self { minute, peer: Arc::from(""), stream: Stream::Yes }
    }
}

/// Whether a stream was asked for, in the words of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stream {
    #[serde(rename = "true")]
    Yes,
    #[serde(rename = "false")]
    No,
    #[serde(rename = "")]
    Unknown,
}

impl From<Option<bool>> for Stream {
    fn from(stream: Option<bool>) -> Self {
        match stream {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Unknown,
        }
    }
}

/// Sums. Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sums {
    pub(crate) requests: u64,
    pub(crate) status_2xx: u64,
    pub(crate) status_4xx: u64,
    pub(crate) status_5xx: u64,
    pub(crate) prompt_tok: u64,
    pub(crate) cached_tok: u64,
    pub(crate) compl_tok: u64,
    pub(crate) total_tok: u64,
    pub(crate) req_bytes: u64,
    /// Of the stored answers, not of what went over the wire.
    pub(crate) resp_bytes: u64,
    pub(crate) rt_sum_ms: u64,
    pub(crate) rt_max_ms: u64,
    pub(crate) frt_sum_ms: u64,
    pub(crate) frt_max_ms: u64,
    /// How many had a first chunk.
    pub(crate) frt_n: u64,
}

impl Sums {
    fn of(details: &Details) -> Self {
        let class = |class| u64::from(details.status / 100 == class);
        let (rt, frt) = (ms(details.rt), ms(details.frt));
        Self {
            requests: 1,
            status_2xx: class(2),
            status_4xx: class(4),
            status_5xx: class(5),
            prompt_tok: details.prompt_tokens,
            cached_tok: details.cached_tokens,
            compl_tok: details.completion_tokens,
            total_tok: details.total_tokens,
            req_bytes: details.req_bytes,
            resp_bytes: details.stored_resp_bytes,
            rt_sum_ms: rt,
            rt_max_ms: rt,
            frt_sum_ms: frt,
            frt_max_ms: frt,
            frt_n: u64::from(details.frt > 0.0),
        }
    }

    /// Adds other sums to these.
    pub(crate) fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.requests, more.requests),
            (&mut self.status_2xx, more.status_2xx),
            (&mut self.status_4xx, more.status_4xx),
            (&mut self.status_5xx, more.status_5xx),
            (&mut self.prompt_tok, more.prompt_tok),
            (&mut self.cached_tok, more.cached_tok),
            (&mut self.compl_tok, more.compl_tok),
            (&mut self.total_tok, more.total_tok),
            (&mut self.req_bytes, more.req_bytes),
            (&mut self.resp_bytes, more.resp_bytes),
            (&mut self.rt_sum_ms, more.rt_sum_ms),
            (&mut self.frt_sum_ms, more.frt_sum_ms),
            (&mut self.frt_n, more.frt_n),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.rt_max_ms = self.rt_max_ms.max(more.rt_max_ms);
        self.frt_max_ms = self.frt_max_ms.max(more.frt_max_ms);
    }
}

impl Sums {
    /// What these have more than `others`, which are part of them.
    fn without(&self, others: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(others.requests),
            status_2xx: self.status_2xx.saturating_sub(others.status_2xx),
            status_4xx: self.status_4xx.saturating_sub(others.status_4xx),
            status_5xx: self.status_5xx.saturating_sub(others.status_5xx),
            prompt_tok: self.prompt_tok.saturating_sub(others.prompt_tok),
            cached_tok: self.cached_tok.saturating_sub(others.cached_tok),
            compl_tok: self.compl_tok.saturating_sub(others.compl_tok),
            total_tok: self.total_tok.saturating_sub(others.total_tok),
            req_bytes: self.req_bytes.saturating_sub(others.req_bytes),
            resp_bytes: self.resp_bytes.saturating_sub(others.resp_bytes),
            rt_sum_ms: self.rt_sum_ms.saturating_sub(others.rt_sum_ms),
            rt_max_ms: self.rt_max_ms,
            frt_sum_ms: self.frt_sum_ms.saturating_sub(others.frt_sum_ms),
            frt_max_ms: self.frt_max_ms,
            frt_n: self.frt_n.saturating_sub(others.frt_n),
        }
    }
}

fn ms(seconds: f64) -> u64 {
    super::record::whole((seconds * 1000.0).round())
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    minute: Cow<'a, str>,
    peer: Cow<'a, str>,
    stream: Stream,
    #[serde(flatten)]
    sums: Sums,
}

/// Minutes of one day on their way to its file.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// What to append to the file.
    pub(crate) lines: Vec<u8>,
    minutes: Vec<(Key, Sums)>,
}

/// All minutes of the last seven days.
#[derive(Debug, Default)]
pub(crate) struct Minutes {
    totals: BTreeMap<Key, Sums>,
    unsaved: BTreeMap<Key, Sums>,
    /// Known names, each with the last minute that has it.
    backends: BTreeMap<Arc<str>, i64>,
    /// The newest minute that found no room.
    lost: Option<i64>,
}

impl Minutes {
    /// Reads what the files know of the last seven days, and counts the rows that no file of minutes has. Lines that are none
    /// are skipped.
    pub(crate) fn load(places: &Places, now: Timestamp) -> io::Result<Self> {
        let mut minutes = Self::default();
        let mut day = places.day(now.checked_sub(KEPT).unwrap_or(now));
        // A clock that was ahead wrote into the day after.
        let last = places.day(now).tomorrow().unwrap_or(day);
        while day <= last {
            if let Some(file) = open_if_there(&places.minutes(day))? {
                each_line(file, |line| {
                    minutes.load_line(line);
                    true
                })?;
            }
            let Ok(next) = day.tomorrow() else { break };
            day = next;
        }
        minutes.forget(now);
        minutes.rebuild(places, now);
        minutes.fit();
        Ok(minutes)
    }

    fn load_line(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { return };
        let Ok(at) = line.minute.parse::<Timestamp>() else { return };
        let minute = minute(at);
        let key = Key { minute, peer: self.backend(&line.peer, minute), stream: line.stream };
        self.totals.entry(key).or_default().add(&line.sums);
        self.fit();
    }

    /// Counts a request that ended at `end`. One that ended at no believable time counts now.
    pub(crate) fn count(&mut self, details: &Details, end: Timestamp, now: Timestamp) {
        let age = now.duration_since(end);
        let end = if age > KEPT || age < -AHEAD { now } else { end };
        let minute = minute(end);
        let key = Key { minute, peer: self.backend(&details.backend, minute), stream: details.stream.into() };
        let sums = Sums::of(details);
        self.unsaved.entry(key.clone()).or_default().add(&sums);
        self.totals.entry(key).or_default().add(&sums);
        self.fit();
    }

    /// Takes out the minutes that have settled and are in no file yet, or with `all` every one. Those that can't be
    /// written are [put back](Self::put_back).
    pub(crate) fn take_unsaved(&mut self, now: Timestamp, all: bool) -> BTreeMap<Key, Sums> {
        let settled = minute(now.checked_sub(SETTLED).unwrap_or(now));
        let later = if all { BTreeMap::new() } else { self.unsaved.split_off(&Key::first_of(settled)) };
        let settled = std::mem::replace(&mut self.unsaved, later);
        self.forget(now);
        settled
    }

    /// Undoes [`Self::take_unsaved`] for a day.
    pub(crate) fn put_back(&mut self, unsaved: Unsaved) {
        for (key, sums) in unsaved.minutes {
            self.unsaved.entry(key).or_default().add(&sums);
        }
        self.fit();
    }

    /// The next minutes since `from`, oldest first, after those that one has already; none at the end. A piece of a bounded
    /// length, so that nobody holds up the writer for long.
    pub(crate) fn piece(&self, from: Timestamp, after: Option<&Key>) -> Vec<(Key, Sums)> {
        let first = Key::first_of(minute(from));
        let start = after.map_or(Bound::Included(&first), Bound::Excluded);
        let range = self.totals.range((start, Bound::Unbounded));
        range.take(PIECE).map(|(key, sums)| (key.clone(), *sums)).collect()
    }

    /// Whether minutes since `from` found no room in memory.
    pub(crate) fn lacks_some_since(&self, from: Timestamp) -> bool {
        self.lost.is_some_and(|lost| lost >= minute(from))
    }

    fn forget(&mut self, now: Timestamp) {
        let oldest = minute(now.checked_sub(KEPT).unwrap_or(now));
        self.totals = self.totals.split_off(&Key::first_of(oldest));
        self.backends.retain(|_, last| *last >= oldest);
    }

    /// Keeps to [`MOST_ENTRIES`]: the oldest go first. Of those that are not saved there are as many only while the disk
    /// fails.
    fn fit(&mut self) {
        while self.totals.len() > MOST_ENTRIES {
            let oldest = self.totals.pop_first();
            self.lost = self.lost.max(oldest.map(|(key, _)| key.minute));
        }
        while self.unsaved.len() > MOST_ENTRIES {
            self.unsaved.pop_first();
        }
    }

    /// One shared copy of a backend's name, which is known until this minute is forgotten.
    fn backend(&mut self, name: &str, minute: i64) -> Arc<str> {
        let is_told_apart = self.backends.contains_key(name) || self.backends.len() < MOST_BACKENDS;
        let name = if is_told_apart { name } else { OTHER };
        let known = self.backends.get_key_value(name).map(|(known, _)| Arc::clone(known));
        let known = known.unwrap_or_else(|| Arc::from(name));
        let last = self.backends.entry(Arc::clone(&known)).or_insert(minute);
        *last = minute.max(*last);
        known
    }
}

/// The lines of minutes, for the file of each day.
pub(crate) fn by_day(minutes: BTreeMap<Key, Sums>, places: &Places) -> BTreeMap<Date, Unsaved> {
    let mut by_day: BTreeMap<Date, Unsaved> = BTreeMap::new();
    for (key, sums) in minutes {
        let at = Timestamp::from_second(key.minute.saturating_mul(60)).unwrap_or_default();
        let minute = stamp(at, places.zone());
        let line = Line { minute: minute.into(), peer: (&*key.peer).into(), stream: key.stream, sums };
        let unsaved = by_day.entry(places.day(at)).or_default();
        // Texts and whole numbers can always be written as JSON.
        unsaved.lines.extend_from_slice(&serde_json::to_vec(&line).unwrap_or_default());
        unsaved.lines.push(b'\n');
        unsaved.minutes.push((key, sums));
    }
    by_day
}

/// Whole minutes since 1970.
fn minute(at: Timestamp) -> i64 {
    at.as_second().div_euclid(60)
}

#[cfg(test)]
mod tests;
