//! How a request's session is found, and how its turns find their backend.

use super::super::OptionDef;
use super::{Duration, option, seconds_or_none};
use crate::option::catalogue::SESSION_SOURCES;
use crate::option::kind::Kind;

const GROUP: &str = "session";

/// The order of the session router's README (routing.md §4, rulings §2).
const OPENRESTY_SOURCES: &str = "header.x-litellm-session-id,header.x-claude-code-session-id,header.x-session-id,\
     body.metadata.session_id,body.metadata.user_id.session_id,body.metadata.user_id,\
     body.litellm_metadata.session_id,body.litellm_metadata.user_id.session_id,body.litellm_metadata.user_id,body.user";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "affinity",
        GROUP,
        Kind::Word(&["binding", "hash", "rendezvous", "off"]),
        "binding",
        "How turns of one session find their backend. `binding`: the control plane keeps a durable binding. `hash`: \
         crc32 of the session id over the active tier's backends. `rendezvous`: highest random weight, so that a \
         backend that goes moves only its own sessions. `off`: each request goes to the least loaded backend.",
    )
    .openresty("hash"),
    option(
        "session_affinity_enabled",
        GROUP,
        Kind::Bool,
        "true",
        "false: as `affinity: off`, whatever `affinity` says.",
    )
    .hidden(),
    option(
        "session_sources",
        GROUP,
        Kind::Words(SESSION_SOURCES),
        "header.x-session-affinity,header.x-deepseek-harness-session-id,header.x-litellm-session-id,\
         header.x-claude-code-session-id,header.x-session-id,body.metadata.session_id,\
         body.litellm_metadata.session_id,body.metadata.user_id.session_id,\
         body.litellm_metadata.user_id.session_id,body.metadata.user_id,body.litellm_metadata.user_id,\
         body.conversation,body.prompt_cache_key,body.user",
        "Where the session id is looked for; the first valid one wins. `body.first_user_message` is \
         approximate: two sessions with the same opening message are taken for one.",
    )
    .gateway(
        "header.x-session-affinity,header.x-deepseek-harness-session-id,header.x-session-id,\
             body.prompt_cache_key,body.first_user_message",
    )
    .openresty(OPENRESTY_SOURCES),
    option(
        "disable_body_user_affinity",
        GROUP,
        Kind::Bool,
        "false",
        "true: the body's `user` is no session id, whatever `session_sources` says.",
    )
    .hidden(),
    option(
        "extra_session_headers",
        GROUP,
        Kind::Headers,
        "none",
        "More header names that carry a session id, tried after the headers of `session_sources`.",
    ),
    option(
        "max_sessions",
        GROUP,
        Kind::Int { min: 1, max: 100_000_000 },
        "1000000",
        "Bindings that the route may hold.",
    )
    .unit("sessions")
    .gateway("16384"),
    option(
        "on_full",
        GROUP,
        Kind::Word(&["unbound", "refuse", "evict_idle"]),
        "unbound",
        "What happens to a new session when `max_sessions` bindings exist. `unbound`: served by the least \
         loaded backend without a binding. `refuse`: 429. `evict_idle`: the oldest binding idle for longer \
         than `session_idle_ttl` makes room, else 429.",
    )
    .gateway("refuse"),
    option(
        "session_idle_ttl",
        GROUP,
        seconds_or_none(1000, Duration::from_secs(86_400 * 365)),
        "24h",
        "A binding unused for this long may end. `none`: bindings are kept until an operator acts.",
    )
    .gateway("none"),
];
