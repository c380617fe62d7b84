//! From the options that a route sets to the values that the program reads.

mod flow;
mod payload;

pub use flow::{FlowSettings, LimitSource, SignalSettings};
pub use payload::{IncludeUsage, PayloadSettings, Unreadable};

use std::collections::BTreeMap;
use std::time::Duration;

use super::catalogue::{CATALOGUE, Preset, find};
use super::kind::Value;
use crate::flow::metric::Metric;
use crate::retry::RetryOn;
use crate::session::SourceList;

/// How turns find their backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// Durable binding in the control plane.
    Binding,
    /// crc32 of the session id over the tier's backends.
    Hash,
    /// Highest random weight.
    Rendezvous,
    /// None.
    Off,
}

/// What a full binding table means for a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFull {
    /// Served without a binding.
    Unbound,
    /// Refused.
    Refuse,
    /// The oldest idle binding makes room.
    EvictIdle,
}

/// When a client needs a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Required once any key exists; before that, loopback only.
    Auto,
    /// Always.
    Required,
    /// Open while no key exists.
    OpenIfUnconfigured,
    /// Never.
    Off,
}

/// Which failures of real traffic take a backend out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassiveBan {
    /// Connect errors.
    Connect,
    /// None.
    Off,
}

/// Further backends tried after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryTries {
    /// At most this many.
    AtMost(u32),
    /// Every other backend once.
    All,
}

impl RetryTries {
    /// Whether another try may follow `done` tries that failed.
    pub fn allows(self, done: u32) -> bool {
        match self {
            RetryTries::AtMost(more) => done <= more,
            RetryTries::All => true,
        }
    }
}

/// The options that a route document sets, checked, by name.
pub type OptionSet = BTreeMap<&'static str, Value>;

/// Every option's effective value. Field names are option names; units are in the types.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each field is the catalogue's option of that name, described there")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct RouteOptions {
    pub affinity: Affinity,
    pub session_sources: SourceList,
    pub max_sessions: u64,
    pub on_full: OnFull,
    pub session_idle_ttl: Option<Duration>,
    pub max_concurrency: u32,
    pub max_waiting: u32,
    pub queue_timeout: Duration,
    pub cross_tier_fallback: bool,
    pub flow: FlowSettings,
    pub health_check_interval: Duration,
    pub health_timeout: Duration,
    pub health_failures: u32,
    pub health_successes: u32,
    pub health_ban_ttl: Option<Duration>,
    pub health_probe_path: String,
    pub passive_ban: PassiveBan,
    pub retry_on: RetryOn,
    pub max_more_tries: RetryTries,
    pub retry_within: Option<Duration>,
    pub model_context_limit: Option<u64>,
    pub backend_context_limits: BTreeMap<u16, u64>,
    pub backend_managed_affinity: bool,
    pub connect_timeout: Duration,
    pub upstream_timeout: Duration,
    pub answer_501_for: Vec<u16>,
    pub max_body_size: u64,
    pub auth: AuthMode,
    pub forward_authorization: bool,
    pub expose_routed: bool,
    pub payload: PayloadSettings,
}

impl RouteOptions {
    /// The effective options of a route that sets `set` under `preset`.
    pub fn resolve(preset: Preset, set: &OptionSet) -> Self {
        let read = Reader { preset, set };
        Self {
            affinity: match read.word("affinity") {
                _ if !read.flag("session_affinity_enabled") => Affinity::Off,
                "off" => Affinity::Off,
                "hash" => Affinity::Hash,
                "rendezvous" => Affinity::Rendezvous,
                _ => Affinity::Binding,
            },
            session_sources: {
                let is_user_off = read.flag("disable_body_user_affinity");
                let mut words = read.words("session_sources");
                words.retain(|word| !(is_user_off && *word == "body.user"));
                SourceList::new(&words, &read.texts("extra_session_headers"))
            },
            max_sessions: read.int("max_sessions"),
            on_full: match read.word("on_full") {
                "refuse" => OnFull::Refuse,
                "evict_idle" => OnFull::EvictIdle,
                _ => OnFull::Unbound,
            },
            session_idle_ttl: read.optional_duration("session_idle_ttl"),
            max_concurrency: read.small("max_concurrency"),
            max_waiting: read.small("max_waiting"),
            queue_timeout: read.duration("queue_timeout"),
            cross_tier_fallback: read.flag("cross_tier_fallback"),
            flow: FlowSettings::read(&read),
            health_check_interval: read.duration("health_check_interval"),
            health_timeout: read.duration("health_timeout"),
            health_failures: read.small("health_failures"),
            health_successes: read.small("health_successes"),
            health_ban_ttl: read.optional_duration("health_ban_ttl"),
            health_probe_path: read.texts("health_probe_path").into_iter().next().unwrap_or_default(),
            passive_ban: match read.word("passive_ban") {
                "off" => PassiveBan::Off,
                _ => PassiveBan::Connect,
            },
            retry_on: RetryOn::from_words(&read.words("retry_on")),
            max_more_tries: match read.value("max_more_tries") {
                Some(Value::Int(more)) => RetryTries::AtMost(u32::try_from(more).unwrap_or(u32::MAX)),
                _ => RetryTries::All,
            },
            retry_within: read.optional_duration("retry_within"),
            model_context_limit: read.optional_int("model_context_limit"),
            backend_context_limits: match read.value("backend_context_limits") {
                Some(Value::Ports(ports)) => ports,
                _ => BTreeMap::new(),
            },
            backend_managed_affinity: read.flag("backend_managed_affinity"),
            connect_timeout: read.duration("connect_timeout"),
            upstream_timeout: read.duration("upstream_timeout"),
            answer_501_for: match read.value("answer_501_for") {
                Some(Value::Statuses(statuses)) => statuses,
                _ => Vec::new(),
            },
            max_body_size: match read.value("max_body_size") {
                Some(Value::Bytes(size)) => size,
                _ => 0,
            },
            auth: match read.word("auth") {
                "required" => AuthMode::Required,
                "open-if-unconfigured" => AuthMode::OpenIfUnconfigured,
                "off" => AuthMode::Off,
                _ => AuthMode::Auto,
            },
            forward_authorization: read.flag("forward_authorization"),
            expose_routed: read.flag("expose_routed"),
            payload: PayloadSettings::read(&read),
        }
    }
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self::resolve(Preset::None, &OptionSet::new())
    }
}

/// Every option with its effective value as text, and whether the route sets it.
pub fn effective(preset: Preset, set: &OptionSet) -> Vec<(&'static str, String, bool)> {
    let read = Reader { preset, set };
    CATALOGUE
        .iter()
        .map(|option| {
            let value = read.value(option.name).map(|value| value.to_string()).unwrap_or_default();
            (option.name, value, set.contains_key(option.name))
        })
        .collect()
}

/// Reads values by name. The fallbacks are never reached: values were checked by their kind, and a test of the catalogue
/// parses each default.
struct Reader<'a> {
    preset: Preset,
    set: &'a OptionSet,
}

/// What a reader of defaults alone reads.
static NOTHING_SET: OptionSet = OptionSet::new();

impl Reader<'_> {
    /// The preset's defaults.
    fn without_set(&self) -> Self {
        Self { set: &NOTHING_SET, ..*self }
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.set.get(name).cloned().or_else(|| find(name)?.default_value(self.preset))
    }

    fn word(&self, name: &str) -> &'static str {
        match self.value(name) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    fn words(&self, name: &str) -> Vec<&'static str> {
        match self.value(name) {
            Some(Value::Words(words)) => words,
            _ => Vec::new(),
        }
    }

    fn texts(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::Texts(texts)) => texts,
            _ => Vec::new(),
        }
    }

    fn int(&self, name: &str) -> u64 {
        self.optional_int(name).unwrap_or_default()
    }

    fn optional_int(&self, name: &str) -> Option<u64> {
        match self.value(name) {
            Some(Value::Int(number)) => Some(number),
            _ => None,
        }
    }

    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.int(name)).unwrap_or(u32::MAX)
    }

    fn duration(&self, name: &str) -> Duration {
        self.optional_duration(name).unwrap_or_default()
    }

    fn optional_duration(&self, name: &str) -> Option<Duration> {
        match self.value(name) {
            Some(Value::Duration(span)) => Some(span),
            _ => None,
        }
    }

    fn decimal(&self, name: &str) -> f64 {
        self.optional_decimal(name).unwrap_or_default()
    }

    fn optional_decimal(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Some(Value::Decimal(number)) => Some(number),
            _ => None,
        }
    }

    fn decimals(&self, name: &str) -> BTreeMap<String, f64> {
        match self.value(name) {
            Some(Value::Decimals(numbers)) => numbers,
            _ => BTreeMap::new(),
        }
    }

    fn metrics(&self, name: &str) -> Vec<Metric> {
        match self.value(name) {
            Some(Value::Metrics(metrics)) => metrics,
            _ => Vec::new(),
        }
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }
}

#[cfg(test)]
mod tests;
