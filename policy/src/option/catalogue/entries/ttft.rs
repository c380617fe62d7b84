//! Time to first token: when a pool is too slow to take more (limits.md §3, §5, §6.2).

use super::super::OptionDef;
use super::{DAY, Duration, FRACTION, option, seconds};
use crate::option::kind::Kind;

const GROUP: &str = "ttft";
const LIMIT_MAX_MS: f64 = 86_400_000.0;

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "ttft_limit_ms",
        GROUP,
        Kind::Decimal { min: 0.0, max: LIMIT_MAX_MS, is_above: true, word: Some("none") },
        "none",
        "Requests are refused while the smoothed 80th percentile of the time to the first byte of a stream is this long or \
         longer. Time in the queue does not count. `none`: never for that.",
    )
    .unit("ms"),
    option(
        "ttft_limit_by_model",
        GROUP,
        Kind::DecimalsByModel { above: 0.0, max: LIMIT_MAX_MS },
        "none",
        "In place of `ttft_limit_ms`, by model. For routes with a pool per model.",
    )
    .unit("ms"),
    option(
        "ttft_metrics",
        GROUP,
        Kind::Metrics,
        "none",
        "What is watched in place of the 80th percentile, each with its threshold; any of them refuses. Comes before every \
         other TTFT limit.",
    )
    .unit("ms"),
    option(
        "ttft_429_default_enabled",
        GROUP,
        Kind::Bool,
        "true",
        "false: TTFT is measured and steers the adaptive limit, but refuses nobody.",
    ),
    option(
        "ttft_window",
        GROUP,
        seconds(1000, Duration::from_secs(3600)),
        "20s",
        "Samples of this long make one value of the smoothed TTFT.",
    )
    .hidden(),
    option(
        "ttft_ewma_alpha",
        GROUP,
        FRACTION_OR_ZERO,
        "0.3",
        "Weight of the newest window in the smoothed TTFT.",
    )
    .hidden(),
    option(
        "ttft_ttl",
        GROUP,
        seconds(1000, DAY),
        "60s",
        "A smoothed TTFT that no window has renewed for this long is forgotten, and refuses nobody.",
    )
    .hidden(),
    option(
        "ttft_probe_window",
        GROUP,
        seconds(1000, Duration::from_secs(3600)),
        "10s",
        "While TTFT refuses, a few requests of each window of this length pass, so that a recovery is seen.",
    )
    .hidden(),
    option(
        "ttft_probe_per_window",
        GROUP,
        Kind::Int { min: 0, max: 100_000 },
        "5",
        "How many pass in each `ttft_probe_window`.",
    )
    .unit("requests")
    .hidden(),
];

const FRACTION_OR_ZERO: Kind = match FRACTION {
    Kind::Decimal { min, max, word, .. } => Kind::Decimal { min, max, is_above: false, word },
    other => other,
};
