//! Tokens per second: when a pool is too slow to take more (limits.md §4, §5, §6.3; rulings §3).

use super::super::OptionDef;
use super::{DAY, Duration, option, seconds};
use crate::option::kind::Kind;

const GROUP: &str = "tps";
const LIMIT_MAX: f64 = 1_000_000.0;

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "tps_limit_tps",
        GROUP,
        Kind::Decimal { min: 0.0, max: LIMIT_MAX, is_above: true, word: Some("none") },
        "none",
        "Four of five answers must be at least this fast. With `adaptive_cc` the pool's limit falls while they are not; \
         without it, requests are refused. `none`: neither.",
    )
    .unit("tokens/s"),
    option(
        "tps_limit_by_model",
        GROUP,
        Kind::DecimalsByModel { above: 0.0, max: LIMIT_MAX },
        "none",
        "In place of `tps_limit_tps`, by model. For routes with a pool per model.",
    )
    .unit("tokens/s"),
    option(
        "tps_metrics",
        GROUP,
        Kind::Metrics,
        "none",
        "What is watched in place of the slowest fifth, each with its threshold; any of them trips. q 0.2 means that 80 % \
         are at least this fast. Comes before every other TPS limit.",
    )
    .unit("tokens/s"),
    option(
        "tps_basis",
        GROUP,
        Kind::Word(&["total", "decode"]),
        "total",
        "`total`: tokens by the whole time of the request. `decode`: by the time after its first byte.",
    ),
    option(
        "tps_window",
        GROUP,
        seconds(1000, Duration::from_secs(3600)),
        "20s",
        "Samples of this long make one value of the smoothed TPS.",
    )
    .hidden(),
    option(
        "tps_ewma_alpha",
        GROUP,
        Kind::Decimal { min: 0.0, max: 1.0, is_above: false, word: None },
        "0.3",
        "Weight of the newest window in the smoothed TPS.",
    )
    .hidden(),
    option(
        "tps_ttl",
        GROUP,
        seconds(1000, DAY),
        "60s",
        "A smoothed TPS that no window has renewed for this long is forgotten, and neither refuses nor steers.",
    )
    .hidden(),
    option(
        "tps_probe_window",
        GROUP,
        seconds(1000, Duration::from_secs(3600)),
        "10s",
        "While TPS refuses, a few requests of each window of this length pass, so that a recovery is seen.",
    )
    .hidden(),
    option(
        "tps_probe_per_window",
        GROUP,
        Kind::Int { min: 0, max: 100_000 },
        "5",
        "How many pass in each `tps_probe_window`.",
    )
    .unit("requests")
    .hidden(),
    option(
        "tps_min_tokens",
        GROUP,
        Kind::Int { min: 1, max: 1_000_000 },
        "16",
        "Answers with fewer tokens say nothing about speed.",
    )
    .unit("tokens")
    .hidden(),
    option(
        "tps_min_decode_s",
        GROUP,
        Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(3600), optional: false },
        "500ms",
        "Answers that took less time say nothing about speed.",
    )
    .hidden(),
];
