//! Adaptive concurrency: the pool's limit follows what its backends can do (limits.md §8).

use super::super::OptionDef;
use super::{CONCURRENCY_MAX, DAY, Duration, FRACTION, option, seconds, seconds_or_none};
use crate::option::kind::Kind;

const GROUP: &str = "adaptive";

const FRACTION_OR_NONE: Kind = Kind::Decimal { min: 0.0, max: 1.0, is_above: true, word: Some("none") };
const SLOTS: Kind = Kind::IntOr { min: 1, max: CONCURRENCY_MAX as u64, word: "none" };

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "adaptive_cc",
        GROUP,
        Kind::Bool,
        "false",
        "true: the pool's limit rises under demand and falls while TPS or TTFT are past their limits. Needs a TPS limit: \
         `tps_limit_tps`, `tps_limit_by_model` or `tps_metrics`.",
    ),
    option(
        "adaptive_cc_min",
        GROUP,
        SLOTS,
        "none",
        "The limit never falls below this. `none`: `adaptive_cc_min_frac` of the static limit.",
    )
    .unit("requests"),
    option(
        "adaptive_cc_init",
        GROUP,
        SLOTS,
        "none",
        "Where the limit starts. `none`: `adaptive_cc_init_frac` of the static limit, else the minimum.",
    )
    .unit("requests"),
    option("adaptive_cc_use_ttft", GROUP, Kind::Bool, "true", "false: TTFT does not lower the limit."),
    option(
        "adaptive_cc_hold_when_idle",
        GROUP,
        Kind::Bool,
        "true",
        "true: the limit stays where it is while there is little traffic. false: it falls back to its start.",
    ),
    option(
        "adaptive_cc_min_frac",
        GROUP,
        FRACTION,
        "0.4",
        "The least limit as a part of the static one, rounded down.",
    )
    .hidden(),
    option(
        "adaptive_cc_init_frac",
        GROUP,
        FRACTION_OR_NONE,
        "none",
        "The limit's start as a part of the static one, rounded down.",
    )
    .hidden(),
    option(
        "adaptive_cc_interval",
        GROUP,
        seconds_or_none(1000, Duration::from_secs(3600)),
        "none",
        "Time between two steps of the limit. `none`: `tps_window`.",
    )
    .hidden(),
    option("adaptive_cc_dec", GROUP, FRACTION, "0.97", "What the limit is multiplied by when it falls.").hidden(),
    option(
        "adaptive_cc_inc",
        GROUP,
        Kind::Decimal { min: 1.0, max: 10.0, is_above: false, word: None },
        "1.02",
        "What the limit is multiplied by when it rises.",
    )
    .hidden(),
    option("adaptive_cc_pressure_frac", GROUP, FRACTION, "0.9", "The limit rises when this part of it is in use.")
        .hidden(),
    option(
        "adaptive_cc_slack_frac",
        GROUP,
        FRACTION,
        "0.7",
        "The limit falls back to its start when less than this part of it is in use (and it is not held). Less than \
         `adaptive_cc_pressure_frac`; else 0.8 of that, at most 0.7.",
    )
    .hidden(),
    option(
        "adaptive_cc_abs",
        GROUP,
        Kind::Decimal { min: 0.0, max: CONCURRENCY_MAX as f64, is_above: false, word: None },
        "5",
        "Fewer free slots than this are pressure too.",
    )
    .unit("requests")
    .hidden(),
    option(
        "adaptive_cc_ttl",
        GROUP,
        seconds(1000, DAY),
        "300s",
        "A limit that no step has renewed for this long is forgotten, unless it is held.",
    )
    .hidden(),
];
