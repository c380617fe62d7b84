//! The entries of the catalogue: one file per group, in the order in which tables list them.

mod adaptive;
mod context;
mod health;
mod limit;
mod payload;
mod priority;
mod request;
mod retry;
mod session;
mod tps;
mod ttft;
mod upstream;

use std::time::Duration;

use super::OptionDef;
use crate::option::kind::Kind;

const GROUPS: [&[OptionDef]; 12] = [
    session::ENTRIES,
    limit::ENTRIES,
    adaptive::ENTRIES,
    ttft::ENTRIES,
    tps::ENTRIES,
    priority::ENTRIES,
    health::ENTRIES,
    retry::ENTRIES,
    context::ENTRIES,
    upstream::ENTRIES,
    request::ENTRIES,
    payload::ENTRIES,
];

#[expect(clippy::indexing_slicing, reason = "evaluated when compiled: a bad index is no program")]
const fn count() -> usize {
    let (mut sum, mut group) = (0, 0);
    while group < GROUPS.len() {
        sum += GROUPS[group].len();
        group += 1;
    }
    sum
}

#[expect(clippy::indexing_slicing, reason = "as above")]
const fn all() -> [OptionDef; count()] {
    let mut all = [GROUPS[0][0]; count()];
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut entry = 0;
        while entry < GROUPS[group].len() {
            all[at] = GROUPS[group][entry];
            at += 1;
            entry += 1;
        }
        group += 1;
    }
    all
}

/// All options, grouped.
pub static CATALOGUE: [OptionDef; count()] = all();

/// Largest context window, in tokens.
pub const CONTEXT_MAX: u64 = 1_000_000_000;
/// Requests that a backend or a pool may be said to hold at most.
pub const CONCURRENCY_MAX: u32 = 100_000;

const DAY: Duration = Duration::from_secs(86_400);

/// An option that operators see, without presets of its own.
const fn option(
    name: &'static str,
    group: &'static str,
    kind: Kind,
    default: &'static str,
    description: &'static str,
) -> OptionDef {
    let unit = match kind {
        Kind::Duration { .. } => "time",
        Kind::Bytes { .. } => "bytes",
        _ => "",
    };
    OptionDef {
        name,
        group,
        kind,
        unit,
        is_hidden: false,
        alias: "",
        default,
        gateway: None,
        openresty: None,
        description,
    }
}

const fn seconds(min_ms: u64, max: Duration) -> Kind {
    Kind::Duration { min: Duration::from_millis(min_ms), max, optional: false }
}

const fn seconds_or_none(min_ms: u64, max: Duration) -> Kind {
    Kind::Duration { min: Duration::from_millis(min_ms), max, optional: true }
}

/// More than 0, up to 1.
const FRACTION: Kind = Kind::Decimal { min: 0.0, max: 1.0, is_above: true, word: None };
