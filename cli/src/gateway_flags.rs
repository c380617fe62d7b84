//! The session gateway's own flags (gateway.md §1, §3, §7, §8), shared by `up` and `import gateway`. Each is exactly one
//! option of the route, `--backend-dp-size` one field of a backend. Values are read here and not by clap, so that every
//! bad one is told at once.

use std::collections::BTreeMap;

use clap::Args;
use router_policy::option::{catalogue, find};

use crate::args::Assignment;

/// Most data-parallel ranks, as route documents allow.
const MAX_RANKS: u64 = 4096;

/// Flags that are options of the route.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Session gateway (each sets an option of the route)")]
pub(crate) struct GatewayFlags {
    /// Requests in flight on each backend, over all replicas [option: `max_concurrency`].
    #[arg(long, value_name = "N", env = "ROUTER_MAX_ACTIVE_PER_BACKEND")]
    max_active_per_backend: Option<String>,
    /// Requests that may wait when every backend is full [option: `max_waiting`].
    #[arg(long, value_name = "N", env = "ROUTER_MAX_WAITING")]
    max_waiting: Option<String>,
    /// How long one may wait; `5` and `5s` are the same [option: `queue_timeout`].
    #[arg(long, value_name = "TIME", env = "ROUTER_QUEUE_TIMEOUT")]
    queue_timeout: Option<String>,
    /// Longest silence of a backend, not a limit on the whole answer [option: `upstream_timeout`].
    #[arg(long, value_name = "TIME", env = "ROUTER_UPSTREAM_TIMEOUT")]
    upstream_timeout: Option<String>,
    /// Sessions that may be bound [option: `max_sessions`].
    #[arg(long, value_name = "N", env = "ROUTER_MAX_SESSIONS")]
    max_sessions: Option<String>,
    /// Context window that every backend has at least [option: `model_context_limit`].
    #[arg(long, value_name = "TOKENS", env = "ROUTER_MODEL_CONTEXT_LIMIT")]
    model_context_limit: Option<String>,
    /// Context window of the backend on a port. Repeat for several [option: `backend_context_limits`].
    #[arg(long, value_name = "PORT=TOKENS", env = "ROUTER_BACKEND_CONTEXT_LIMIT", value_delimiter = ',')]
    backend_context_limit: Vec<String>,
    /// Engines schedule their own data-parallel ranks: pass session headers on and set no rank
    /// [option: `backend_managed_affinity`].
    #[arg(
        long, value_name = "true|false", env = "ROUTER_BACKEND_MANAGED_AFFINITY", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    backend_managed_affinity: Option<String>,
    /// Data-parallel ranks of the backend on a port. Repeat for several [the backend's `dp_size`].
    #[arg(long, value_name = "PORT=N", env = "ROUTER_BACKEND_DP_SIZE", value_delimiter = ',')]
    backend_dp_size: Vec<String>,
}

/// What the flags say, checked one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Options of the route; bad values are left out, they are complained about.
    pub(crate) options: Vec<Assignment>,
    /// Ports in `--backend-context-limit`.
    pub(crate) context_ports: Vec<u16>,
    /// Ranks by port.
    pub(crate) dp_sizes: BTreeMap<u16, u64>,
    /// The flags that were given, with their dashes.
    pub(crate) flags: Vec<&'static str>,
}

impl GatewayFlags {
    /// Reads every flag; each complaint names its flag.
    pub(crate) fn read(&self, complaints: &mut Vec<String>) -> Settings {
        let mut settings = Settings::default();
        let plain = [
            ("--max-active-per-backend", "max_concurrency", &self.max_active_per_backend),
            ("--max-waiting", "max_waiting", &self.max_waiting),
            ("--queue-timeout", "queue_timeout", &self.queue_timeout),
            ("--upstream-timeout", "upstream_timeout", &self.upstream_timeout),
            ("--max-sessions", "max_sessions", &self.max_sessions),
            ("--model-context-limit", "model_context_limit", &self.model_context_limit),
            ("--backend-managed-affinity", "backend_managed_affinity", &self.backend_managed_affinity),
        ];
        for (flag, option, text) in plain {
            let Some(text) = text else { continue };
            settings.flags.push(flag);
            match find(option).map(|known| known.kind.parse_text(text)) {
                Some(Err(error)) => complaints.push(format!("{flag}: {error}")),
                _ => settings.options.push(Assignment { option: option.to_owned(), value: text.clone() }),
            }
        }
        let windows = by_port(
            "--backend-context-limit",
            "PORT=TOKENS",
            catalogue::CONTEXT_MAX,
            &self.backend_context_limit,
            complaints,
        );
        if !self.backend_context_limit.is_empty() {
            settings.flags.push("--backend-context-limit");
            let pairs: Vec<String> = windows.iter().map(|(port, tokens)| format!("{port}={tokens}")).collect();
            let option = "backend_context_limits".to_owned();
            settings.options.push(Assignment { option, value: pairs.join(",") });
            settings.context_ports = windows.into_keys().collect();
        }
        settings.dp_sizes = by_port("--backend-dp-size", "PORT=N", MAX_RANKS, &self.backend_dp_size, complaints);
        if !self.backend_dp_size.is_empty() {
            settings.flags.push("--backend-dp-size");
        }
        settings
    }
}

/// Reads `PORT=NUMBER` texts, no port twice.
fn by_port(flag: &str, form: &str, max: u64, texts: &[String], complaints: &mut Vec<String>) -> BTreeMap<u16, u64> {
    let mut found = BTreeMap::new();
    for text in texts {
        let pair = text.trim().split_once('=').and_then(|(port, number)| {
            let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
            let number: u64 = number.parse().ok().filter(|number| (1..=max).contains(number))?;
            Some((port, number))
        });
        match pair {
            None => complaints.push(format!("{flag}: {form} expected, got '{text}'; allowed: a number of 1..={max}")),
            Some((port, number)) => {
                if found.insert(port, number).is_some() {
                    complaints.push(format!("{flag}: port {port} stands twice"));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: GatewayFlags,
    }

    fn read(line: &str) -> (Settings, Vec<String>) {
        let words = std::iter::once("test").chain(line.split_ascii_whitespace());
        let mut complaints = Vec::new();
        let settings = Line::try_parse_from(words).unwrap().flags.read(&mut complaints);
        (settings, complaints)
    }

    #[test]
    fn each_flag_is_exactly_one_option() {
        let rows = [
            ("--max-active-per-backend 32", "max_concurrency", "32"),
            ("--max-waiting 32", "max_waiting", "32"),
            ("--queue-timeout 5", "queue_timeout", "5"),
            ("--queue-timeout 5s", "queue_timeout", "5s"),
            ("--upstream-timeout 10800", "upstream_timeout", "10800"),
            ("--max-sessions 16384", "max_sessions", "16384"),
            ("--model-context-limit 131072", "model_context_limit", "131072"),
            (
                "--backend-context-limit 19002=2 --backend-context-limit 19001=1",
                "backend_context_limits",
                "19001=1,19002=2",
            ),
            ("--backend-managed-affinity", "backend_managed_affinity", "true"),
            ("--backend-managed-affinity=false", "backend_managed_affinity", "false"),
        ];
        for (line, option, value) in rows {
            let (settings, complaints) = read(line);
            assert!(complaints.is_empty(), "{line}: {complaints:?}");
            assert_eq!(settings.options, [Assignment { option: option.to_owned(), value: value.to_owned() }], "{line}");
            assert!(settings.dp_sizes.is_empty());
            assert_eq!(settings.flags.len(), 1, "{line}");
        }
        let (settings, _) = read("--backend-dp-size 19001=8,19002=4");
        assert_eq!(settings.dp_sizes, BTreeMap::from([(19001, 8), (19002, 4)]));
        assert!(settings.options.is_empty());
        assert_eq!(read("").0, Settings::default());
    }

    #[test]
    fn every_bad_value_is_told_at_once_by_its_flag() {
        let (_, complaints) = read(
            "--max-waiting many --queue-timeout soon --max-sessions 0 --backend-context-limit 19001 \
             --backend-context-limit 1=1,1=2 --backend-dp-size 0=8",
        );
        assert_eq!(
            complaints,
            [
                "--max-waiting: integer expected, got 'many'; allowed: 0..=100000",
                "--queue-timeout: duration expected, got 'soon'; allowed: 1ms..=1h (units ms, s, m, h, d)",
                "--max-sessions: integer expected, got '0'; allowed: 1..=100000000",
                "--backend-context-limit: PORT=TOKENS expected, got '19001'; allowed: a number of 1..=1000000000",
                "--backend-context-limit: port 1 stands twice",
                "--backend-dp-size: PORT=N expected, got '0=8'; allowed: a number of 1..=4096",
            ]
        );
    }
}
