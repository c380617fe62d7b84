//! The entries of the catalogue, grouped as tables list them.

use std::time::Duration;

use super::{OptionDef, RETRY_CONDITIONS, SESSION_SOURCES};
use crate::option::kind::Kind;

const DAY: Duration = Duration::from_secs(86_400);

/// Largest context window, in tokens.
pub const CONTEXT_MAX: u64 = 1_000_000_000;

const fn seconds(min_ms: u64, max: Duration) -> Kind {
    Kind::Duration { min: Duration::from_millis(min_ms), max, optional: false }
}

const fn seconds_or_none(min_ms: u64, max: Duration) -> Kind {
    Kind::Duration { min: Duration::from_millis(min_ms), max, optional: true }
}

/// All options, grouped.
pub const CATALOGUE: &[OptionDef] = &[
    OptionDef {
        name: "affinity",
        group: "session",
        kind: Kind::Word(&["binding", "off"]),
        default: "binding",
        gateway: None,
        description: "How turns of one session find their backend. `binding`: the control plane keeps a durable binding. \
                      `off`: each request goes to the least loaded backend.",
    },
    OptionDef {
        name: "session_sources",
        group: "session",
        kind: Kind::Words(SESSION_SOURCES),
        default: "header.x-session-affinity,header.x-deepseek-harness-session-id,header.x-litellm-session-id,\
                  header.x-claude-code-session-id,header.x-session-id,body.metadata.session_id,\
                  body.litellm_metadata.session_id,body.metadata.user_id.session_id,\
                  body.litellm_metadata.user_id.session_id,body.metadata.user_id,body.litellm_metadata.user_id,\
                  body.conversation,body.prompt_cache_key,body.user",
        gateway: Some(
            "header.x-session-affinity,header.x-deepseek-harness-session-id,header.x-session-id,\
             body.prompt_cache_key,body.first_user_message",
        ),
        description: "Where the session id is looked for; the first valid one wins. `body.first_user_message` is \
                      approximate: two sessions with the same opening message are taken for one.",
    },
    OptionDef {
        name: "extra_session_headers",
        group: "session",
        kind: Kind::Headers,
        default: "none",
        gateway: None,
        description: "More header names that carry a session id, tried after the headers of `session_sources`.",
    },
    OptionDef {
        name: "max_sessions",
        group: "session",
        kind: Kind::Int { min: 1, max: 100_000_000 },
        default: "1000000",
        gateway: Some("16384"),
        description: "Bindings that the route may hold.",
    },
    OptionDef {
        name: "on_full",
        group: "session",
        kind: Kind::Word(&["unbound", "refuse", "evict_idle"]),
        default: "unbound",
        gateway: Some("refuse"),
        description: "What happens to a new session when `max_sessions` bindings exist. `unbound`: served by the least \
                      loaded backend without a binding. `refuse`: 429. `evict_idle`: the oldest binding idle for longer \
                      than `session_idle_ttl` makes room, else 429.",
    },
    OptionDef {
        name: "session_idle_ttl",
        group: "session",
        kind: seconds_or_none(1000, Duration::from_secs(86_400 * 365)),
        default: "24h",
        gateway: Some("none"),
        description: "A binding unused for this long may end. `none`: bindings are kept until an operator acts.",
    },
    OptionDef {
        name: "max_concurrency",
        group: "limit",
        kind: Kind::Int { min: 1, max: 100_000 },
        default: "32",
        gateway: None,
        description: "Requests in flight on each backend that states no `max_concurrency` of its own, over all replicas.",
    },
    OptionDef {
        name: "max_waiting",
        group: "limit",
        kind: Kind::Int { min: 0, max: 100_000 },
        default: "32",
        gateway: None,
        description: "Requests that may wait for a slot when every backend is full, over all replicas. 0: none waits.",
    },
    OptionDef {
        name: "queue_timeout",
        group: "limit",
        kind: seconds(1, Duration::from_secs(3600)),
        default: "5s",
        gateway: None,
        description: "How long a request may wait for a slot.",
    },
    OptionDef {
        name: "health_check_interval",
        group: "health",
        kind: seconds(50, Duration::from_secs(3600)),
        default: "2s",
        gateway: None,
        description: "Time between two probes of a backend.",
    },
    OptionDef {
        name: "health_timeout",
        group: "health",
        kind: seconds(10, Duration::from_secs(600)),
        default: "5s",
        gateway: None,
        description: "A probe without an answer after this long has failed; so has a backend that is asked for its `/v1/models`.",
    },
    OptionDef {
        name: "health_failures",
        group: "health",
        kind: Kind::Int { min: 1, max: 1000 },
        default: "1",
        gateway: None,
        description: "Failed probes in a row that take a backend out.",
    },
    OptionDef {
        name: "health_successes",
        group: "health",
        kind: Kind::Int { min: 1, max: 1000 },
        default: "2",
        gateway: None,
        description: "Good probes in a row that bring it back.",
    },
    OptionDef {
        name: "health_ban_ttl",
        group: "health",
        kind: seconds_or_none(100, DAY),
        default: "300s",
        gateway: Some("none"),
        description: "An unhealthy backend is tried again after this long even if no probe succeeded; each further failure \
                      starts it anew. `none`: only probes bring it back.",
    },
    OptionDef {
        name: "health_probe_path",
        group: "health",
        kind: Kind::Path,
        default: "/v1/models",
        gateway: None,
        description: "What probes ask for on backends that state no `health_path`. 200 is good, 429 is busy and changes \
                      nothing, everything else is a failure.",
    },
    OptionDef {
        name: "passive_ban",
        group: "health",
        kind: Kind::Word(&["connect", "off"]),
        default: "connect",
        gateway: None,
        description: "`connect`: a backend that a request can't connect to is out until a probe succeeds. The last usable \
                      backend is never taken out by this.",
    },
    OptionDef {
        name: "retry_on",
        group: "retry",
        kind: Kind::Words(RETRY_CONDITIONS),
        default: "connect,502,503",
        gateway: Some("connect,5xx"),
        description: "Failures after which another backend is tried, always before the response head is sent.",
    },
    OptionDef {
        name: "max_more_tries",
        group: "retry",
        kind: Kind::IntOr { min: 0, max: 100, word: "all" },
        default: "2",
        gateway: Some("all"),
        description: "Further backends tried after the first. `all`: every other backend once.",
    },
    OptionDef {
        name: "model_context_limit",
        group: "context",
        kind: Kind::IntOr { min: 1, max: CONTEXT_MAX, word: "none" },
        default: "none",
        gateway: None,
        description: "Context window in tokens that every backend has at least. `/v1/models` answers have `max_model_len` \
                      lowered to it, never raised. Backends with a larger window serve clients that ask for it with \
                      `x-model-context-window`.",
    },
    OptionDef {
        name: "backend_context_limits",
        group: "context",
        kind: Kind::Ports { min: 1, max: CONTEXT_MAX },
        default: "none",
        gateway: None,
        description: "Context windows in tokens by backend port, for backends that state no `context_limit` of their own. A \
                      request with `x-model-context-window: N` (input and output) only goes to backends with N or more.",
    },
    OptionDef {
        name: "backend_managed_affinity",
        group: "upstream",
        kind: Kind::Bool,
        default: "false",
        gateway: None,
        description: "For engines that schedule their own data-parallel ranks: session headers and \
                      `x-deepinfer-cache-namespace` are passed on, and no `X-data-parallel-rank` is set.",
    },
    OptionDef {
        name: "connect_timeout",
        group: "upstream",
        kind: seconds(1, Duration::from_secs(600)),
        default: "2s",
        gateway: None,
        description: "Time to connect to a backend.",
    },
    OptionDef {
        name: "upstream_timeout",
        group: "upstream",
        kind: seconds(1, DAY),
        default: "3600s",
        gateway: Some("10800s"),
        description: "Longest silence of a backend, before the head and between two chunks. Not a limit on the whole answer.",
    },
    OptionDef {
        name: "max_body_size",
        group: "request",
        kind: Kind::Bytes { min: 1, max: 200 << 20 },
        default: "10MiB",
        gateway: Some("64MiB"),
        description: "Largest request body; a larger one is answered with 413 before the rest is read.",
    },
    OptionDef {
        name: "auth",
        group: "request",
        kind: Kind::Word(&["auto", "required", "open-if-unconfigured", "off"]),
        default: "auto",
        gateway: Some("required"),
        description: "`required`: each request needs a valid key. `auto`: required once any key exists; before that only \
                      replicas that listen on loopback answer. `open-if-unconfigured`: open while no key exists, \
                      reported loudly. `off`: never.",
    },
    OptionDef {
        name: "forward_authorization",
        group: "request",
        kind: Kind::Bool,
        default: "false",
        gateway: None,
        description: "Pass the client's `Authorization` and `x-api-key` on to the backend.",
    },
    OptionDef {
        name: "expose_routed",
        group: "request",
        kind: Kind::Bool,
        default: "true",
        gateway: None,
        description: "Send the `X-Routed-*` headers to clients.",
    },
];
