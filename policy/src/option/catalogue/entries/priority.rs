//! Session turn priority: under load, running sessions come before new ones (limits.md §9).

use super::super::OptionDef;
use super::{FRACTION, option};
use crate::option::kind::Kind;

const GROUP: &str = "priority";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "session_prio",
        GROUP,
        Kind::Bool,
        "false",
        "true: clients state their session and turn in `x-phanrouter-session`, and the later the turn, the more of the pool \
         it may use. Requests that state none count as the latest turns.",
    ),
    option(
        "session_prio_r_new",
        GROUP,
        FRACTION,
        "0.85",
        "The part of the pool's limit that first turns may fill; it rises evenly to 1 for the latest turns.",
    ),
    option(
        "session_prio_full_turn",
        GROUP,
        Kind::Int { min: 2, max: 1_000_000_000 },
        "32",
        "From this turn on the whole limit may be used. Below it, the steps start at turns 1, 2, 4, 8, ...",
    )
    .unit("turns"),
    option(
        "session_prio_table",
        GROUP,
        Kind::Turns,
        "none",
        "The steps themselves, in place of those that the other options make.",
    )
    .hidden(),
    option(
        "session_prio_severe",
        GROUP,
        Kind::Decimal { min: 1.0, max: 100.0, is_above: false, word: None },
        "1.5",
        "TTFT at so many times its limit refuses late turns as well.",
    )
    .hidden(),
    option(
        "session_prio_release",
        GROUP,
        FRACTION,
        "0.9",
        "First turns, once refused for TTFT, pass again when it is below this part of its limit.",
    )
    .hidden(),
    option(
        "session_prio_t1_probes",
        GROUP,
        Kind::Int { min: 0, max: 100_000 },
        "1",
        "First turns that pass in each `ttft_probe_window` while TTFT refuses and no later turn has tried.",
    )
    .unit("requests")
    .hidden(),
    option(
        "session_prio_warn_frac",
        GROUP,
        Kind::Decimal { min: 0.0, max: 1.0, is_above: false, word: None },
        "0.2",
        "A warning is logged when more than this part of a minute's requests state no turn.",
    )
    .hidden(),
];
