//! Towards the backends.

use super::super::OptionDef;
use super::{DAY, Duration, option, seconds};
use crate::option::kind::Kind;

const GROUP: &str = "upstream";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "backend_managed_affinity",
        GROUP,
        Kind::Bool,
        "false",
        "For engines that schedule their own data-parallel ranks: session headers and \
         `x-deepinfer-cache-namespace` are passed on, and no `X-data-parallel-rank` is set.",
    ),
    option("connect_timeout", GROUP, seconds(1, Duration::from_secs(600)), "2s", "Time to connect to a backend."),
    option(
        "upstream_timeout",
        GROUP,
        seconds(1, DAY),
        "3600s",
        "Longest silence of a backend, before the head and between two chunks. Not a limit on the whole answer.",
    )
    .gateway("10800s"),
    option(
        "answer_501_for",
        GROUP,
        Kind::Statuses { min: 400, max: 499 },
        "none",
        "Statuses of backends that clients see as 501, without the backend's body. What the router itself answers stays.",
    ),
];
