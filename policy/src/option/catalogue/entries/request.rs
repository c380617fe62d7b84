//! Towards the clients.

use super::super::OptionDef;
use super::option;
use crate::option::kind::Kind;

const GROUP: &str = "request";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "max_body_size",
        GROUP,
        Kind::Bytes { min: 1, max: 200 << 20 },
        "10MiB",
        "Largest request body; a larger one is answered with 413 before the rest is read.",
    )
    .gateway("64MiB"),
    option(
        "auth",
        GROUP,
        Kind::Word(&["auto", "required", "open-if-unconfigured", "off"]),
        "auto",
        "`required`: each request needs a valid key. `auto`: required once any key exists; before that only \
         replicas that listen on loopback answer. `open-if-unconfigured`: open while no key exists, \
         reported loudly. `off`: never.",
    )
    .gateway("required")
    .openresty("open-if-unconfigured"),
    option(
        "forward_authorization",
        GROUP,
        Kind::Bool,
        "false",
        "Pass the client's `Authorization` and `x-api-key` on to the backend.",
    )
    .openresty("true"),
    option("expose_routed", GROUP, Kind::Bool, "true", "Send the `X-Routed-*` headers to clients.")
        .alias("expose_routed_peer"),
];
