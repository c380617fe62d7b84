//! Sums by minute, backend and kind of answer (payloads.md §7.5). Seven days are kept in memory; a file per day keeps them
//! for ever. A line of a file is what came since the line before it for the same minute: lines of one key add up, so a
//! late arrival is a line of its own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
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
/// The name of all backends beyond these.
pub(crate) const OTHER: &str = "other";

/// What is summed apart. Times are whole minutes since 1970.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) minute: i64,
    pub(crate) peer: Arc<str>,
    pub(crate) stream: Stream,
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
    backends: BTreeSet<Arc<str>>,
}

impl Minutes {
    /// Reads what the files know of the last seven days. Lines that are none are skipped.
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
        Ok(minutes)
    }

    fn load_line(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { return };
        let Ok(at) = line.minute.parse::<Timestamp>() else { return };
        let key = Key { minute: minute(at), peer: self.backend(&line.peer), stream: line.stream };
        self.totals.entry(key).or_default().add(&line.sums);
    }

    /// Counts a request that ended at `end`. One that ended at no believable time counts now.
    pub(crate) fn count(&mut self, details: &Details, end: Timestamp, now: Timestamp) {
        let age = now.duration_since(end);
        let end = if age > KEPT || age < -AHEAD { now } else { end };
        let key = Key { minute: minute(end), peer: self.backend(&details.backend), stream: details.stream.into() };
        let sums = Sums::of(details);
        self.unsaved.entry(key.clone()).or_default().add(&sums);
        self.totals.entry(key).or_default().add(&sums);
    }

    /// Takes out the minutes that have settled and are in no file yet, or with `all` every one. Those that can't be
    /// written are [put back](Self::put_back).
    pub(crate) fn take_unsaved(&mut self, places: &Places, now: Timestamp, all: bool) -> BTreeMap<Date, Unsaved> {
        let settled = minute(now.checked_sub(SETTLED).unwrap_or(now));
        let later = if all {
            BTreeMap::new()
        } else {
            self.unsaved.split_off(&Key { minute: settled, peer: Arc::from(""), stream: Stream::Yes })
        };
        let mut by_day: BTreeMap<Date, Unsaved> = BTreeMap::new();
        for (key, sums) in std::mem::replace(&mut self.unsaved, later) {
            let at = Timestamp::from_second(key.minute.saturating_mul(60)).unwrap_or(now);
            let minute = stamp(at, places.zone());
            let line = Line { minute: minute.into(), peer: (&*key.peer).into(), stream: key.stream, sums };
            let unsaved = by_day.entry(places.day(at)).or_default();
            // Texts and whole numbers can always be written as JSON.
            unsaved.lines.extend_from_slice(&serde_json::to_vec(&line).unwrap_or_default());
            unsaved.lines.push(b'\n');
            unsaved.minutes.push((key, sums));
        }
        self.forget(now);
        by_day
    }

    /// Undoes [`Self::take_unsaved`] for a day.
    pub(crate) fn put_back(&mut self, unsaved: Unsaved) {
        for (key, sums) in unsaved.minutes {
            self.unsaved.entry(key).or_default().add(&sums);
        }
    }

    /// The minutes since `from`, oldest first.
    pub(crate) fn since(&self, from: Timestamp) -> impl Iterator<Item = (&Key, &Sums)> {
        let first = Key { minute: minute(from), peer: Arc::from(""), stream: Stream::Yes };
        self.totals.range(first..)
    }

    fn forget(&mut self, now: Timestamp) {
        let oldest = minute(now.checked_sub(KEPT).unwrap_or(now));
        self.totals.retain(|key, _| key.minute >= oldest);
        self.backends = self.totals.keys().chain(self.unsaved.keys()).map(|key| Arc::clone(&key.peer)).collect();
    }

    /// One shared copy of a backend's name.
    fn backend(&mut self, name: &str) -> Arc<str> {
        let name = if self.backends.contains(name) || self.backends.len() < MOST_BACKENDS { name } else { OTHER };
        if let Some(known) = self.backends.get(name) {
            return Arc::clone(known);
        }
        let made: Arc<str> = Arc::from(name);
        self.backends.insert(Arc::clone(&made));
        made
    }
}

/// Whole minutes since 1970.
fn minute(at: Timestamp) -> i64 {
    at.as_second().div_euclid(60)
}

#[cfg(test)]
mod tests;
