//! Session turn priority: which bucket a request is in, and what a bucket may use (limits.md §9). Warm sessions keep what
//! the engines hold of them, so new ones wait at the door a little earlier.

use std::fmt;

use serde_json::{Map, Value};

use super::range::{factor, fraction};
use crate::session::extract::MAX_ID_CHARS;

/// The highest turn that is believed.
pub const MAX_TURN: u32 = 1_000_000_000;

/// The most rows of a table.
pub const MAX_ROWS: usize = 64;

/// One bucket: the turns from `min_turn` up to the next row's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnRow {
    /// Its first turn.
    pub min_turn: u32,
    /// How much of the limit it may use, above 0, at most 1.
    pub share: f64,
    /// How far beyond a latency threshold it is still let through, as a factor from 1.
    pub tol: f64,
}

/// The buckets, coldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnTable {
    rows: Vec<TurnRow>,
}

/// A request's bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Its row, 0 the coldest.
    pub index: usize,
    /// Whether the request named its turn. One that didn't is served as the warmest and counted apart.
    pub is_known: bool,
}

/// Session priority's options.
#[derive(Debug, Clone, PartialEq)]
pub struct PrioOptions {
    /// The buckets.
    pub table: TurnTable,
    /// Times the threshold: nobody's tolerance reaches further. From 1.
    pub severe: f64,
    /// Times the threshold: below it, new sessions are no longer held back. Above 0, at most 1.
    pub release: f64,
    /// How many new sessions pass a tripped gate in each probe window, when no warm one has.
    pub t1_probes: u32,
    /// From this fraction of requests without a turn on there is a warning.
    pub warn_frac: f64,
}

impl PrioOptions {
    pub(super) fn severe(&self) -> f64 {
        factor(self.severe)
    }

    pub(super) fn release(&self) -> f64 {
        fraction(self.release)
    }
}

impl TurnTable {
    /// From an operator's rows. An error names the row, what it has and what is allowed.
    pub fn from_rows(rows: Vec<TurnRow>) -> Result<Self, String> {
        if rows.is_empty() || rows.len() > MAX_ROWS {
            return Err(format!("{} rows; allowed are 1 to {MAX_ROWS}", rows.len()));
        }
        let mut previous = None;
        for (at, row) in rows.iter().enumerate() {
            let TurnRow { min_turn, share, tol } = *row;
            let complain = |what: String| Err(format!("row {}: {what}", at + 1));
            match previous {
                None if min_turn != 1 => return complain(format!("min_turn {min_turn}; the first row has 1")),
                Some(previous) if min_turn <= previous => {
                    return complain(format!(
                        "min_turn {min_turn} after {previous}; each row's is above the last one's"
                    ));
                }
                _ if min_turn > MAX_TURN => {
                    return complain(format!("min_turn {min_turn}; allowed are 1 to {MAX_TURN}"));
                }
                _ => previous = Some(min_turn),
            }
            if !(share > 0.0 && share <= 1.0) {
                return complain(format!("share {share}; allowed are numbers above 0, at most 1"));
            }
            if !(tol.is_finite() && tol >= 1.0) {
                return complain(format!("tol {tol}; allowed are numbers from 1"));
            }
        }
        Ok(Self { rows })
    }

    /// Buckets whose first turns double up to `full_turn` (the last one's, even if it is no power of two), with shares that
    /// rise evenly from `r_new` to 1 and tolerances from 1 to `severe`.
    pub fn by_doubling(r_new: f64, full_turn: u32, severe: f64) -> Self {
        let (r_new, severe) = (fraction(r_new), factor(severe));
        let full_turn = full_turn.clamp(1, MAX_TURN);
        let mut first_turns: Vec<u32> =
            (0..31).map(|exponent| 1 << exponent).take_while(|turn| *turn < full_turn).collect();
        first_turns.push(full_turn);
        let last = u32::try_from(first_turns.len() - 1).unwrap_or_default();
        let row = |(at, min_turn): (u32, u32)| {
            if at == last {
                // Exactly: a rounded sum could be a little off. A single bucket is nobody's reserve.
                return TurnRow { min_turn, share: 1.0, tol: severe };
            }
            let part = |span: f64| span * f64::from(at) / f64::from(last);
            TurnRow { min_turn, share: r_new + part(1.0 - r_new), tol: 1.0 + part(severe - 1.0) }
        };
        Self { rows: (0..).zip(first_turns).map(row).collect() }
    }

    /// The rows, for status pages.
    pub fn rows(&self) -> &[TurnRow] {
        &self.rows
    }

    /// The bucket of a turn; the warmest, as unknown, without one that can be believed.
    pub fn bucket_of(&self, turn: Option<u32>) -> Bucket {
        let top = self.rows.len().saturating_sub(1);
        match turn.filter(|turn| (1..=MAX_TURN).contains(turn)) {
            None => Bucket { index: top, is_known: false },
            Some(turn) => {
                let index = self.rows.iter().rposition(|row| row.min_turn <= turn).unwrap_or(top);
                Bucket { index, is_known: true }
            }
        }
    }

    /// How much of the limit a bucket may use.
    pub fn share(&self, bucket: Bucket) -> f64 {
        self.rows.get(bucket.index).map_or(1.0, |row| row.share)
    }

    /// How far beyond a threshold a bucket is still let through.
    pub fn tol(&self, bucket: Bucket) -> f64 {
        self.rows.get(bucket.index).map_or(1.0, |row| row.tol)
    }

    /// Whether a request is of the coldest bucket, turn 1, which never takes what warm ones probe with. There is none in a
    /// table of one row.
    pub fn is_cold(&self, bucket: Bucket) -> bool {
        bucket.is_known && bucket.index == 0 && self.rows.len() > 1
    }
}

/// What the session priority header says.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnHeader {
    /// The session's id. Never logged.
    pub session_id: String,
    /// The turn, 1 to [`MAX_TURN`].
    pub turn: u32,
}

impl fmt::Debug for TurnHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnHeader").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// Reads the header's JSON; `None` when it can't be used. `3.0` is a turn, `"3"` is not.
pub fn parse_turn_header(text: &str) -> Option<TurnHeader> {
    let object: Map<String, Value> = serde_json::from_str(text).ok()?;
    let session_id = object.get("session_id")?.as_str()?;
    let turn = whole_turn(object.get("turn")?)?;
    let is_id = !session_id.trim().is_empty() && session_id.chars().count() <= MAX_ID_CHARS;
    is_id.then(|| TurnHeader { session_id: session_id.to_owned(), turn })
}

fn whole_turn(value: &Value) -> Option<u32> {
    let turn = value.as_f64().filter(|turn| turn.fract() == 0.0 && (1.0..=f64::from(MAX_TURN)).contains(turn))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked whole and in range")]
    Some(turn as u32)
}

#[cfg(test)]
mod tests;
