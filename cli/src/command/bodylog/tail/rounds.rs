//! Which times the collector is asked for, round after round, and which of its rows are new. No round ends before its last
//! page, and each begins before the one before it did: so nothing falls between two, however many rows come and however
//! long a round takes.

use std::collections::HashMap;

use serde_json::Value;

/// How much later than it ended a request may still arrive, in milliseconds: replicas send within a second, and try again.
const LATE_MS: u64 = 60_000;
/// How late most arrive: what most rounds look back for.
const SOON_MS: u64 = 5_000;
/// One round in so many looks back for all that came late.
const FULL_EVERY: u32 = 15;
/// How far the clocks of replicas may be ahead, in milliseconds.
const AHEAD_MS: u64 = 600_000;

/// A stretch of end times to ask for, in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether its rows are printed, or only known from then on.
    pub(super) is_shown: bool,
    /// Whether its rows are known from then on; those that are too old to be asked for again need not be.
    pub(super) is_known: bool,
    /// Whether what is outside of it may be forgotten.
    pub(super) is_full: bool,
}

/// The rounds after the first one.
#[derive(Debug)]
pub(super) struct Rounds {
    last: u64,
    last_full: u64,
    since_full: u32,
}

impl Rounds {
    /// The first round, at `now`: what ended in the last `since` is shown; all else that is there is no news.
    pub(super) fn first(now: u64, since: Option<u64>) -> (Self, Vec<Stretch>) {
        let (late, ahead) = (now.saturating_sub(LATE_MS), now.saturating_add(AHEAD_MS));
        let shown_from = since.map_or(ahead, |since| now.saturating_sub(since));
        let known = Stretch { start: late, end: ahead, is_shown: true, is_known: true, is_full: false };
        let stretches = [
            Stretch { start: shown_from, end: late, is_known: false, ..known },
            Stretch { end: shown_from, is_shown: false, ..known },
            Stretch { start: shown_from.max(late), ..known },
        ];
        let stretches = stretches.into_iter().filter(|stretch| stretch.start < stretch.end).collect();
        (Self { last: now, last_full: now, since_full: 0 }, stretches)
    }

    /// The next round, at `now`.
    pub(super) fn next(&mut self, now: u64) -> Stretch {
        self.since_full += 1;
        let is_full = self.since_full >= FULL_EVERY;
        let start = if is_full { self.last_full.saturating_sub(LATE_MS) } else { self.last.saturating_sub(SOON_MS) };
        self.last = now;
        if is_full {
            (self.last_full, self.since_full) = (now, 0);
        }
        Stretch { start, end: now.saturating_add(AHEAD_MS), is_shown: true, is_known: true, is_full }
    }
}

/// The rows of earlier rounds, by what tells them apart: rows with the same are counted.
#[derive(Debug, Default)]
pub(super) struct Seen {
    known: HashMap<(String, String), usize>,
    round: HashMap<(String, String), usize>,
}

impl Seen {
    /// The rows of a page that were not there before.
    pub(super) fn new_of(&mut self, mut page: Vec<Value>) -> Vec<Value> {
        let field = |row: &Value, name| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        page.retain(|row| {
            let key = (field(row, "ts_end"), field(row, "request_id"));
            let before = self.known.get(&key).copied().unwrap_or(0);
            let count = self.round.entry(key).or_default();
            *count += 1;
            *count > before
        });
        page
    }

    /// Ends a round. A full one has all that a later one can have of earlier rows.
    pub(super) fn end(&mut self, is_full: bool) {
        let round = std::mem::take(&mut self.round);
        if is_full {
            self.known = round;
        } else {
            self.known.extend(round);
        }
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
        let mut count = |pages: &[&[Value]], is_full| {
            let new: usize = pages.iter().map(|page| seen.new_of(page.to_vec()).len()).sum();
            seen.end(is_full);
            new
        };
        assert_eq!(count(&[&[row("1", "a"), row("3", "b")]], false), 2);
        assert_eq!(count(&[&[row("1", "a")], &[row("3", "b")]], false), 0);
        assert_eq!(count(&[&[row("1", "a"), row("2", "late"), row("3", "b")], &[row("3", "b")]], false), 2);
        // A short round does not make one forget what it has not.
        assert_eq!(count(&[&[row("4", "")]], false), 1);
        assert_eq!(count(&[&[row("2", "late"), row("3", "b"), row("3", "b"), row("4", "")]], true), 0);
        assert_eq!(count(&[&[row("1", "a")]], false), 1, "a full one does, as nobody asks for it again");
    }

    #[test]
    fn rounds_leave_no_gap_and_full_ones_reach_back_for_all_that_came_late() {
        let (mut rounds, first) = Rounds::first(1_000_000, None);
        assert!(first.iter().all(|stretch| !stretch.is_shown) && first.len() == 1);
        assert_eq!((first[0].start, first[0].end), (940_000, 1_600_000));
        let (mut before, mut full_before) = (1_000_000, 1_000_000);
        for round in 1..=40_u64 {
            // Some rounds take longer than a late row does.
            let now = before + if round % 7 == 0 { 300_000 } else { 1000 };
            let Stretch { start, end, is_full, .. } = rounds.next(now);
            assert_eq!((start < before, end > now), (true, true));
            assert_eq!(is_full, round % 15 == 0);
            if is_full {
                assert_eq!(start, full_before - LATE_MS);
                full_before = now;
            }
            before = now;
        }
    }

    #[test]
    fn the_first_round_shows_what_ended_since_then_and_nothing_else() {
        let shown = |since| {
            let (_, stretches) = Rounds::first(1_000_000, Some(since));
            for pair in stretches.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
            }
            stretches.iter().map(|stretch| (stretch.start, stretch.is_shown, stretch.is_known)).collect::<Vec<_>>()
        };
        assert_eq!(shown(10_000), [(940_000, false, true), (990_000, true, true)]);
        assert_eq!(shown(60_000), [(940_000, true, true)]);
        assert_eq!(shown(900_000), [(100_000, true, false), (940_000, true, true)]);
    }
}
