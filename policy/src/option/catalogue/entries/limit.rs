//! How much a pool takes on.

use super::super::OptionDef;
use super::{Duration, option, seconds};
use crate::option::kind::Kind;

const GROUP: &str = "limit";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "max_concurrency",
        GROUP,
        Kind::Int { min: 1, max: 100_000 },
        "32",
        "Requests in flight on each backend that states no `max_concurrency` of its own, over all replicas.",
    )
    .unit("requests")
    .alias("default_max")
    .openresty("20"),
    option(
        "max_waiting",
        GROUP,
        Kind::Int { min: 0, max: 100_000 },
        "32",
        "Requests that may wait for a slot of a pool when all its backends are full, over all replicas. 0: none waits.",
    )
    .unit("requests")
    .openresty("0"),
    option(
        "queue_timeout",
        GROUP,
        seconds(1, Duration::from_secs(3600)),
        "5s",
        "How long a request may wait for a slot.",
    ),
    option(
        "rt_limit_factor",
        GROUP,
        Kind::Decimal { min: 0.0, max: 1000.0, is_above: true, word: None },
        "1",
        "Multiplies the pool's limit, static or adaptive. A backend never takes more than its own `max_concurrency`.",
    )
    .hidden(),
    option(
        "cross_tier_fallback",
        GROUP,
        Kind::Bool,
        "false",
        "true: when the tier of highest priority is full or fails, requests go to the tiers below it. false: only when no \
         backend of it is healthy and admitted.",
    ),
    option(
        "load_rate_limit",
        GROUP,
        Kind::Bool,
        "true",
        "The master switch. false: concurrency, TTFT and TPS refuse nobody, not even when every backend is full; what they \
         would have refused is counted.",
    ),
    option(
        "cluster_avg_interval",
        GROUP,
        seconds(1000, Duration::from_secs(36)),
        "30s",
        "Time between two samples of the average that status pages show. It is made of the last ten samples, none older than \
         360 s: with a longer interval it would lose some of them.",
    )
    .hidden(),
];
