//! When a backend is out and when it is back.

use super::super::OptionDef;
use super::{DAY, Duration, option, seconds, seconds_or_none};
use crate::option::kind::Kind;

const GROUP: &str = "health";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "health_check_interval",
        GROUP,
        seconds(50, Duration::from_secs(3600)),
        "2s",
        "Time between two probes of a backend.",
    )
    .openresty("10s"),
    option(
        "health_timeout",
        GROUP,
        seconds(10, Duration::from_secs(600)),
        "5s",
        "A probe without an answer after this long has failed; so has a backend that is asked for its `/v1/models`.",
    )
    .openresty("10s"),
    option(
        "health_failures",
        GROUP,
        Kind::Int { min: 1, max: 1000 },
        "1",
        "Failed probes in a row that take a backend out.",
    )
    .unit("probes"),
    option("health_successes", GROUP, Kind::Int { min: 1, max: 1000 }, "2", "Good probes in a row that bring it back.")
        .unit("probes")
        .openresty("1"),
    option(
        "health_ban_ttl",
        GROUP,
        seconds_or_none(100, DAY),
        "300s",
        "An unhealthy backend is tried again after this long even if no probe succeeded; each further failure \
         starts it anew. `none`: only probes bring it back.",
    )
    .gateway("none"),
    option(
        "health_probe_path",
        GROUP,
        Kind::Path,
        "/v1/models",
        "What probes ask for on backends that state no `health_path`. 200 is good, 429 is busy and changes \
         nothing, everything else is a failure.",
    ),
    option(
        "passive_ban",
        GROUP,
        Kind::Word(&["connect", "off"]),
        "connect",
        "`connect`: a backend that a request can't connect to is out until a probe succeeds. The last usable \
         backend is never taken out by this.",
    )
    .openresty("off"),
];
