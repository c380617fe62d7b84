//! Minutes that a killed process had not written yet, counted again out of the rows of details (payloads.md §7.4, §7.5).
//!
//! Rows from a little before the last saved minute on are summed as they were when they came, and what the files of
//! minutes lack of that is added: so nothing counts twice, whatever was saved before the kill. The length of a stored
//! answer is in no row; it stays uncounted here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

use super::{AHEAD, KEPT, Key, Minutes, OTHER, Sums, minute};
use crate::bodylog::collector::details::Details;
use crate::bodylog::collector::files::{Places, each_line};
use crate::bodylog::collector::query::days;

/// How much earlier than the last saved minute a row may have ended that came after it was saved.
const LATE: SignedDuration = SignedDuration::from_mins(10);
/// How far rows may be out of order where the first one is looked for.
const OUT_OF_ORDER: SignedDuration = SignedDuration::from_mins(10);
/// What is read at once while the first row is looked for, in bytes: longer than a row.
const BLOCK: usize = 64 << 10;
/// Where so few bytes are left, the search ends.
const CLOSE: u64 = 1 << 20;

impl Minutes {
    /// Counts what the rows have and the minutes lack. Rows that can't be read stay uncounted, and the log says so: a
    /// damaged file must not keep the collector from starting.
    pub(super) fn rebuild(&mut self, places: &Places, now: Timestamp) {
        let newest = self.totals.last_key_value().and_then(|(key, _)| Timestamp::from_second(key.minute * 60).ok());
        let first = newest.and_then(|newest| newest.checked_sub(LATE).ok());
        let first = first.or(now.checked_sub(KEPT).ok()).unwrap_or(now);
        let last = now.checked_add(AHEAD).unwrap_or(now);
        let mut counted: BTreeMap<Key, Sums> = BTreeMap::new();
        let has_other = self.backends.contains_key(OTHER);
        let mut each = |line: &[u8]| {
            if let Some((row, end)) = row(line).filter(|(_, end)| first <= *end && *end <= last) {
                let minute = minute(end);
                // A name that found no room before the kill is not told apart now.
                let is_other = has_other && !self.backends.contains_key(row.backend.as_str());
                let peer = self.backend(if is_other { OTHER } else { &row.backend }, minute);
                let key = Key { minute, peer, stream: row.stream.into() };
                counted.entry(key).or_default().add(&Sums::of(&row));
            }
            true
        };
        let day_after = places.day(now).tomorrow().unwrap_or(places.day(now));
        let in_order = first.checked_sub(OUT_OF_ORDER).unwrap_or(first);
        let days = days::there_are(places, places.day(first), day_after);
        let read = days.and_then(|days| {
            let read = days.into_iter().map(|(day, packed)| read(places, day, packed, in_order, &mut each));
            // Each day is tried, and the first error told.
            read.fold(Ok(()), io::Result::and)
        });
        if let Err(error) = read {
            tracing::warn!(%error, "details can't be read: minutes that were not saved may be lacking");
        }
        let mut requests: u64 = 0;
        for (key, sums) in counted {
            let known = self.totals.get(&key).copied().unwrap_or_default();
            if sums.requests > known.requests {
                let missing = sums.without(&known);
                requests += missing.requests;
                self.unsaved.entry(key.clone()).or_default().add(&missing);
                self.totals.entry(key).or_default().add(&missing);
            }
        }
        if requests > 0 {
            tracing::info!(requests, "minutes that were not saved were counted again");
        }
    }
}

/// All rows of a day's packed files, and those from near `first` on of the one that is not.
fn read(
    places: &Places,
    day: Date,
    packed: u32,
    first: Timestamp,
    each: &mut impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let (archives, plain) = days::open(places, day, packed)?;
    for (_, file) in archives {
        each_line(zstd::Decoder::new(file)?, &mut *each)?;
    }
    if let Some(mut file) = plain {
        let start = start_of(&file, first)?;
        file.seek(SeekFrom::Start(start))?;
        each_line(file, each)?;
    }
    Ok(())
}

fn row(line: &[u8]) -> Option<(Details, Timestamp)> {
    let row: Details = serde_json::from_slice(line).ok()?;
    let end = row.ts_end.parse().ok()?;
    Some((row, end))
}

/// Where a line begins before which no row ended at `first` or later, as far as rows are in order: a place that is too
/// late costs rows, and counts none twice.
pub(super) fn start_of(file: &File, first: Timestamp) -> io::Result<u64> {
    let (mut low, mut high) = (0, file.metadata()?.len());
    let mut block = vec![0; BLOCK];
    while high - low > CLOSE {
        let middle = low + (high - low) / 2;
        let count = file.read_at(&mut block, middle)?;
        let mut lines = block.get(..count).unwrap_or_default().split(|byte| *byte == b'\n');
        // The first one may be half a line.
        let before = lines.next().map_or(0, |half| half.len() as u64 + 1);
        match lines.next().and_then(row) {
            Some((_, end)) if end < first => low = middle + before,
            _ => high = middle,
        }
    }
    Ok(low)
}
