//! Which failures are tried elsewhere.

use super::super::OptionDef;
use super::{DAY, option, seconds_or_none};
use crate::option::catalogue::RETRY_CONDITIONS;
use crate::option::kind::Kind;

const GROUP: &str = "retry";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "retry_on",
        GROUP,
        Kind::Words(RETRY_CONDITIONS),
        "connect,502,503",
        "Failures after which another backend is tried, always before the response head is sent.",
    )
    .gateway("connect,5xx")
    .openresty("connect,header_timeout,502,503"),
    option(
        "max_more_tries",
        GROUP,
        Kind::IntOr { min: 0, max: 100, word: "all" },
        "2",
        "Further backends tried after the first. `all`: every other backend once.",
    )
    .unit("backends")
    .gateway("all"),
    option(
        "retry_within",
        GROUP,
        seconds_or_none(1, DAY),
        "60s",
        "No further backend is tried once this long has passed since the first was, the wait for its slot included. \
         `none`: however long.",
    )
    .gateway("none"),
];
