//! Run-time switches and limits: what an operator sets on a running route, for a time or until undone (limits.md §5.4, §10;
//! payloads.md §9). They come before the route's options and leave its document alone.

use std::fmt;

use crate::flow::UnixMs;
use crate::option::{Kind, RouteOptions, Value, find};
use crate::route::RouteSpec;

mod held;
pub mod page;
mod usage;

pub use self::held::Toggles;

/// A switch that may be turned on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Switch {
    /// The master switch: whether load refuses anybody.
    LoadRateLimit,
    /// TTFT: sampling, gate, steering.
    Ttft,
    /// TTFT's refusals alone.
    Ttft429,
    /// TPS: sampling, gate, adaptive limit.
    Tps,
    /// Session turn priority.
    SessionPrio,
    /// The billing marker is taken off prompts.
    CchStrip,
    /// Tool call ids of Kimi models.
    KimiNormalize,
    /// Streams are asked for their token counts.
    IncludeUsage,
    /// System messages are moved to the top.
    SystemHoist,
    /// Requests are refused by rules.
    RejectRules,
    /// Bodies are captured.
    BodyLog,
}

impl Switch {
    /// Every switch.
    pub const ALL: [Switch; 11] = [
        Switch::LoadRateLimit,
        Switch::Ttft,
        Switch::Ttft429,
        Switch::Tps,
        Switch::SessionPrio,
        Switch::CchStrip,
        Switch::KimiNormalize,
        Switch::IncludeUsage,
        Switch::SystemHoist,
        Switch::RejectRules,
        Switch::BodyLog,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Switch::LoadRateLimit => "load_rate_limit",
            Switch::Ttft => "ttft",
            Switch::Ttft429 => "ttft_429",
            Switch::Tps => "tps",
            Switch::SessionPrio => "session_prio",
            Switch::CchStrip => "cch_strip",
            Switch::KimiNormalize => "kimi_normalize",
            Switch::IncludeUsage => "include_usage",
            Switch::SystemHoist => "system_hoist",
            Switch::RejectRules => "reject_rules",
            Switch::BodyLog => "bodylog",
        }
    }

    /// The option that says what holds without it. `None`: there is none, and it is on.
    pub fn option(self) -> Option<&'static str> {
        Some(match self {
            Switch::LoadRateLimit => "load_rate_limit",
            Switch::Ttft429 => "ttft_429_default_enabled",
            Switch::SessionPrio => "session_prio",
            Switch::CchStrip => "cch_default_enabled",
            Switch::KimiNormalize => "kimi_normalize_default_enabled",
            Switch::IncludeUsage => "include_usage_default_enabled",
            Switch::SystemHoist => "system_hoist_default_enabled",
            Switch::RejectRules => "reject_rules_default_enabled",
            Switch::BodyLog => "bodylog_default_enabled",
            Switch::Ttft | Switch::Tps => return None,
        })
    }

    /// Whether it is on while nobody has set it.
    pub fn by_default(self, spec: &RouteSpec) -> bool {
        self.by_options(&spec.options(), spec.is_by_model())
    }

    /// The same, for who has the route's options at hand.
    pub fn by_options(self, options: &RouteOptions, is_by_model: bool) -> bool {
        let payload = &options.payload;
        match self {
            Switch::LoadRateLimit => options.flow.load_rate_limit,
            Switch::Ttft429 => options.flow.ttft_429_default_enabled,
            Switch::SessionPrio => options.flow.session_prio,
            Switch::Ttft | Switch::Tps => true,
            Switch::CchStrip => payload.cch_strip,
            Switch::KimiNormalize => payload.kimi_normalize,
            Switch::IncludeUsage => payload.asks_for_usage(&options.flow, is_by_model),
            Switch::SystemHoist => payload.system_hoist,
            Switch::RejectRules => payload.reject_rules_enabled,
            Switch::BodyLog => payload.bodylog,
        }
    }
}

/// A limit that may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// In milliseconds.
    TtftMs,
    /// In tokens per second.
    Tps,
    /// Of 100 requests, how many are captured.
    BodyLogPct,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 3] = [Limit::TtftMs, Limit::Tps, Limit::BodyLogPct];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Limit::BodyLogPct => "bodylog_pct",
            Limit::TtftMs | Limit::Tps => self.option(),
        }
    }

    /// The option that it comes before.
    pub fn option(self) -> &'static str {
        match self {
            Limit::TtftMs => "ttft_limit_ms",
            Limit::Tps => "tps_limit_tps",
            Limit::BodyLogPct => "bodylog_default_pct",
        }
    }

    /// Whether a model may have one of its own.
    pub fn is_by_model(self) -> bool {
        self != Limit::BodyLogPct
    }

    /// Whether replicas need to know of it.
    pub fn is_for_replicas(self) -> bool {
        self == Limit::BodyLogPct
    }

    /// The numbers that its option takes. The option's word for no limit is none of them: a limit is undone by a reset.
    fn kind(self) -> Kind {
        match find(self.option()).map(|option| option.kind) {
            Some(whole @ Kind::Int { .. }) => whole,
            Some(Kind::Decimal { min, max, is_above, .. }) => Kind::Decimal { min, max, is_above, word: None },
            // No option of that name: then nothing is a number for it.
            _ => Kind::Word(&[]),
        }
    }
}

/// What is set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToggleKey {
    /// A switch of the whole route.
    Switch(Switch),
    /// A limit, of one model's pool or of the whole route.
    Limit(Limit, Option<String>),
}

/// What it is set to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ToggleValue {
    /// Of a switch.
    On(bool),
    /// Of a limit: within its option's bounds.
    Number(f64),
}

/// One thing that is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Toggle {
    /// What.
    pub key: ToggleKey,
    /// To what.
    pub value: ToggleValue,
    /// When it undoes itself and uncovers what was set before; `None`: never.
    pub until: Option<UnixMs>,
}

/// A toggle that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidToggle {
    /// `name`, `model` or `value`.
    pub field: &'static str,
    /// What is wrong and what is allowed.
    pub problem: String,
}

impl ToggleKey {
    /// Reads a name and, for a limit, a model; an empty model is the whole route.
    pub fn parse(name: &str, model: &str) -> Result<Self, InvalidToggle> {
        if let Some(limit) = Limit::ALL.into_iter().find(|limit| limit.name() == name) {
            if !model.is_empty() && !limit.is_by_model() {
                let problem = format!("{name} is of the whole route; allowed: no model");
                return Err(InvalidToggle { field: "model", problem });
            }
            return Ok(Self::Limit(limit, (!model.is_empty()).then(|| model.to_owned())));
        }
        let Some(switch) = Switch::ALL.into_iter().find(|switch| switch.name() == name) else {
            let problem = format!("unknown toggle; allowed: {}", Self::names().join(", "));
            return Err(InvalidToggle { field: "name", problem });
        };
        if !model.is_empty() {
            let problem = format!("{name} is a switch of the whole route; allowed: no model");
            return Err(InvalidToggle { field: "model", problem });
        }
        Ok(Self::Switch(switch))
    }

    /// The names that there are.
    pub fn names() -> Vec<&'static str> {
        Switch::ALL.iter().map(|switch| switch.name()).chain(Limit::ALL.iter().map(|limit| limit.name())).collect()
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Switch(switch) => switch.name(),
            Self::Limit(limit, _) => limit.name(),
        }
    }

    /// Its model, or empty.
    pub fn model(&self) -> &str {
        match self {
            Self::Limit(_, Some(model)) => model,
            _ => "",
        }
    }

    /// Reads a value for it.
    pub fn parse_value(&self, text: &str) -> Result<ToggleValue, InvalidToggle> {
        let invalid = |problem: String| InvalidToggle { field: "value", problem };
        match self {
            Self::Switch(_) => match Kind::Bool.parse_text(text) {
                Ok(Value::Bool(is_on)) => Ok(ToggleValue::On(is_on)),
                _ => Err(invalid("allowed: on, off".to_owned())),
            },
            Self::Limit(limit, _) => match limit.kind().parse_text(text) {
                Ok(Value::Decimal(number)) => Ok(ToggleValue::Number(number)),
                #[expect(clippy::cast_precision_loss, reason = "within bounds that are far smaller")]
                Ok(Value::Int(number)) => Ok(ToggleValue::Number(number as f64)),
                Ok(_) => Err(invalid(format!("allowed: {}", limit.kind().allowed()))),
                Err(error) => Err(invalid(error.to_string())),
            },
        }
    }
}

impl fmt::Display for ToggleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On(true) => f.write_str("on"),
            Self::On(false) => f.write_str("off"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_read_back() {
        for name in ToggleKey::names() {
            let key = ToggleKey::parse(name, "").unwrap();
            let text = match key {
                ToggleKey::Switch(_) => "off",
                ToggleKey::Limit(Limit::BodyLogPct, _) => "12",
                ToggleKey::Limit(..) => "12.5",
            };
            assert_eq!((key.name(), key.parse_value(text).unwrap().to_string().as_str()), (name, text));
        }
        assert_eq!(ToggleKey::parse("tps_limit_tps", "m").unwrap().model(), "m");
    }

    #[test]
    fn bad_ones_are_named() {
        let error = ToggleKey::parse("rate", "").unwrap_err();
        assert!(error.to_string().starts_with("name: unknown toggle; allowed: load_rate_limit, ttft"), "{error}");
        assert_eq!(ToggleKey::parse("tps", "m").unwrap_err().field, "model");
        for bad in ["0", "-1", "nan", "inf", "", "none"] {
            assert!(ToggleKey::parse("ttft_limit_ms", "").unwrap().parse_value(bad).is_err(), "{bad}");
        }
        assert!(ToggleKey::parse("ttft", "").unwrap().parse_value("maybe").is_err());
    }

    #[test]
    fn a_limit_has_the_bounds_of_its_option() {
        for limit in Limit::ALL {
            let key = ToggleKey::parse(limit.name(), "").unwrap();
            let (kind, max, allowed) = match limit.kind() {
                Kind::Decimal { max, .. } => ("number", max, format!("more than 0, up to {max}")),
                Kind::Int { .. } => ("integer", 100.0, "0..=100".to_owned()),
                other => panic!("a number expected, got {other:?}"),
            };
            assert_eq!(key.parse_value(&max.to_string()), Ok(ToggleValue::Number(max)), "the control");
            let error = key.parse_value(&(max + 1.0).to_string()).unwrap_err();
            assert_eq!(error.problem, format!("{kind} expected, got '{}'; allowed: {allowed}", max + 1.0));
        }
        let pct = ToggleKey::parse("bodylog_pct", "").unwrap();
        for bad in ["0.5", "-1", "101", "none"] {
            assert!(pct.parse_value(bad).is_err(), "lots are drawn of 100: {bad}");
        }
    }
}
