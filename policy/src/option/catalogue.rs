//! The option catalogue: each route option once, with its kind, its default in each preset, and its description. It is the
//! only place where a default stands (rulings §1; routing.md §2.2).

use std::time::Duration;

use super::kind::{Kind, Value};

/// A named set of defaults (rulings §1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// The `default` column.
    #[default]
    None,
    /// The session gateway (gateway.md).
    Gateway,
}

impl Preset {
    /// The words that a route document may use.
    pub const NAMES: [&'static str; 2] = ["none", "gateway"];

    /// Reads a preset's name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::None),
            "gateway" => Some(Self::Gateway),
            _ => None,
        }
    }

    /// The preset's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gateway => "gateway",
        }
    }
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct OptionDef {
    /// The key in route documents and on command lines.
    pub name: &'static str,
    /// Where tables list it.
    pub group: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Default without a preset, as text.
    default: &'static str,
    /// Default under `preset: gateway`, when it differs.
    gateway: Option<&'static str>,
    /// What it does, in one or two sentences.
    pub description: &'static str,
}

impl OptionDef {
    /// The default under a preset, as text.
    pub fn default_text(&self, preset: Preset) -> &'static str {
        match preset {
            Preset::None => self.default,
            Preset::Gateway => self.gateway.unwrap_or(self.default),
        }
    }

    /// The default under a preset. `None` can't happen: a test parses each default.
    pub(super) fn default_value(&self, preset: Preset) -> Option<Value> {
        self.kind.parse_text(self.default_text(preset)).ok()
    }
}

/// The option of that name.
pub fn find(name: &str) -> Option<&'static OptionDef> {
    CATALOGUE.iter().find(|option| option.name == name)
}

/// Session sources in the order of rulings §2; also the words of `session_sources`.
pub const SESSION_SOURCES: &[&str] = &[
    "header.x-session-affinity",
    "header.x-deepseek-harness-session-id",
    "header.x-litellm-session-id",
    "header.x-claude-code-session-id",
    "header.x-session-id",
    "body.metadata.session_id",
    "body.litellm_metadata.session_id",
    "body.metadata.user_id.session_id",
    "body.litellm_metadata.user_id.session_id",
    "body.metadata.user_id",
    "body.litellm_metadata.user_id",
    "body.conversation",
    "body.prompt_cache_key",
    "body.user",
    "body.first_user_message",
];

/// Failures that may be tried on another backend.
pub const RETRY_CONDITIONS: &[&str] = &["connect", "header_timeout", "5xx", "500", "502", "503", "504"];

const DAY: Duration = Duration::from_secs(86_400);

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
        description: "A probe without an answer after this long has failed.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_is_valid_and_each_name_stands_once() {
        for (index, option) in CATALOGUE.iter().enumerate() {
            for preset in [Preset::None, Preset::Gateway] {
                let value = option.default_value(preset);
                assert!(value.is_some(), "{} under {}", option.name, preset.name());
            }
            assert!(CATALOGUE[index + 1..].iter().all(|other| other.name != option.name));
            assert!(!option.description.is_empty());
        }
    }

    /// The table of rulings §1, row by row, for the options that exist.
    #[test]
    fn rulings_1_defaults() {
        let rows = [
            ("affinity", "binding", "binding"),
            ("max_sessions", "1000000", "16384"),
            ("on_full", "unbound", "refuse"),
            ("session_idle_ttl", "24h", "none"),
            ("max_waiting", "32", "32"),
            ("queue_timeout", "5s", "5s"),
            ("max_concurrency", "32", "32"),
            ("health_check_interval", "2s", "2s"),
            ("health_failures", "1", "1"),
            ("health_successes", "2", "2"),
            ("health_ban_ttl", "5m", "none"),
            ("passive_ban", "connect", "connect"),
            ("retry_on", "connect,502,503", "connect,5xx"),
            ("max_more_tries", "2", "all"),
            ("max_body_size", "10MiB", "64MiB"),
            ("auth", "auto", "required"),
            ("forward_authorization", "false", "false"),
            ("upstream_timeout", "1h", "3h"),
            ("connect_timeout", "2s", "2s"),
        ];
        for (name, default, gateway) in rows {
            let option = find(name).unwrap();
            let text = |preset| option.default_value(preset).unwrap().to_string();
            assert_eq!(text(Preset::None), default, "{name}");
            assert_eq!(text(Preset::Gateway), gateway, "{name}");
        }
    }

    #[test]
    fn rulings_2_source_order_leaves_out_only_the_first_message() {
        let Some(Value::Words(sources)) = find("session_sources").unwrap().default_value(Preset::None) else {
            panic!("a list of words")
        };
        assert_eq!(sources, SESSION_SOURCES[..SESSION_SOURCES.len() - 1]);
    }
}
