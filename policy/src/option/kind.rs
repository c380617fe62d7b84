//! The kinds of option value: parsing from JSON or text, bounds, printing.

mod invalid;
mod structured;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value as Json};

pub use self::invalid::InvalidValue;
use self::text::{
    in_range, parse_bool, parse_bytes, parse_headers, parse_ports, parse_statuses, parse_words, print_bytes, quote,
};
pub use self::text::{parse_duration, print_duration};
use crate::flow::metric::{MAX_METRICS, Metric};
use crate::flow::turn::{MAX_ROWS, TurnRow};
use crate::reject::RuleList;

/// What an option accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number in a range.
    Int {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// A whole number in a range, or a word that stands for "no number".
    IntOr {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
        /// The word.
        word: &'static str,
    },
    /// A number in a range, or a word that stands for "no number".
    Decimal {
        /// Smallest allowed; not itself allowed when `is_above`.
        min: f64,
        /// Largest allowed.
        max: f64,
        /// Whether the number must be larger than `min`.
        is_above: bool,
        /// The word.
        word: Option<&'static str>,
    },
    /// Numbers by model name, as a JSON object; in text also `m1=30000,m2=500`. `none` is the empty list.
    DecimalsByModel {
        /// Each is more than this.
        above: f64,
        /// Largest allowed.
        max: f64,
    },
    /// A list of metrics: `[{"metric": "p80", "q": 0.8, "threshold": 30000}]`. `none` is the empty list.
    Metrics,
    /// A turn table: `[{"min_turn": 1, "share": 0.85, "tol": 1.0}]`. `none`: made of other options.
    Turns,
    /// Reject rules, as [`crate::reject`] reads them. `none` is the empty list.
    RejectRules,
    /// A time: `5s`, `300ms`, `24h`, `10m`, `2d`, or a number of seconds.
    Duration {
        /// Smallest allowed.
        min: Duration,
        /// Largest allowed.
        max: Duration,
        /// Whether `none` is allowed.
        optional: bool,
    },
    /// A size: `10MiB`, `64KiB`, or a number of bytes.
    Bytes {
        /// Smallest allowed, in bytes.
        min: u64,
        /// Largest allowed, in bytes.
        max: u64,
    },
    /// `true`/`false`, also yes/no, on/off, 1/0 in any case (limits.md §11).
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words, in order, none twice. In text, separated by commas; `none` is the empty list.
    Words(&'static [&'static str]),
    /// A list of HTTP statuses in a range, none twice. In text, separated by commas; `none` is the empty list.
    Statuses {
        /// Smallest allowed.
        min: u16,
        /// Largest allowed.
        max: u16,
    },
    /// A list of header names.
    Headers,
    /// An absolute path, such as `/health`.
    Path,
    /// Whole numbers by port: `19001=65536,19002=131072`, in JSON also an object. `none` is the empty list.
    Ports {
        /// Smallest allowed number.
        min: u64,
        /// Largest allowed number.
        max: u64,
    },
}

/// A checked option value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of [`Kind::Int`] or [`Kind::IntOr`].
    Int(u64),
    /// Of [`Kind::Duration`].
    Duration(Duration),
    /// `none` of an optional duration.
    None,
    /// Of [`Kind::Bytes`].
    Bytes(u64),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Word`], or the word of [`Kind::IntOr`].
    Word(&'static str),
    /// Of [`Kind::Words`].
    Words(Vec<&'static str>),
    /// Of [`Kind::Statuses`].
    Statuses(Vec<u16>),
    /// Of [`Kind::Headers`] or [`Kind::Path`].
    Texts(Vec<String>),
    /// Of [`Kind::Ports`], by port.
    Ports(BTreeMap<u16, u64>),
    /// Of [`Kind::Decimal`]; finite.
    Decimal(f64),
    /// Of [`Kind::DecimalsByModel`].
    Decimals(BTreeMap<String, f64>),
    /// Of [`Kind::Metrics`].
    Metrics(Vec<Metric>),
    /// Of [`Kind::Turns`].
    Turns(Vec<TurnRow>),
    /// Of [`Kind::RejectRules`]: as written, valid.
    RejectRules(RuleList),
}

impl Kind {
    /// The kind in a word or two, for tables and errors.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Int { .. } => "integer",
            Kind::IntOr { .. } => "integer or word",
            Kind::Decimal { word: None, .. } => "number",
            Kind::Decimal { .. } => "number or word",
            Kind::DecimalsByModel { .. } => "numbers by model",
            Kind::Metrics => "list of metrics",
            Kind::Turns => "turn table",
            Kind::RejectRules => "list of rules",
            Kind::Duration { .. } => "duration",
            Kind::Bytes { .. } => "size",
            Kind::Bool => "boolean",
            Kind::Word(_) => "word",
            Kind::Words(_) => "list of words",
            Kind::Statuses { .. } => "list of statuses",
            Kind::Headers => "list of header names",
            Kind::Path => "path",
            Kind::Ports { .. } => "list of PORT=NUMBER",
        }
    }

    /// The bounds, for tables and errors.
    pub fn allowed(self) -> String {
        match self {
            Kind::Int { min, max } => format!("{min}..={max}"),
            Kind::IntOr { min, max, word } => format!("{min}..={max} or {word}"),
            Kind::Decimal { min, max, is_above, word } => {
                let low = if is_above { format!("more than {min}, up to {max}") } else { format!("{min}..={max}") };
                word.map_or_else(|| low.clone(), |word| format!("{low} or {word}"))
            }
            Kind::DecimalsByModel { above, max } => {
                format!("none, or an object of model names with a number of more than {above}, up to {max}")
            }
            Kind::Metrics => format!(
                "none, or a list of 1 to {MAX_METRICS} objects with metric (a name), q (between 0 and 1; `avg` needs none) \
                 and threshold (0 or more), no name twice"
            ),
            Kind::Turns => format!(
                "none, or a list of 1 to {MAX_ROWS} objects with min_turn (the first is 1, ascending), share (more than 0, \
                 up to 1) and tol (1 or more)"
            ),
            Kind::RejectRules => "none, or a list of rules (docs/reject-rules.md)".to_owned(),
            Kind::Duration { min, max, optional } => {
                let none = if optional { " or none" } else { "" };
                format!("{}..={}{none} (units ms, s, m, h, d)", print_duration(min), print_duration(max))
            }
            Kind::Bytes { min, max } => format!("{}..={} (units B, KiB, MiB, GiB)", print_bytes(min), print_bytes(max)),
            Kind::Bool => "true, false".to_owned(),
            Kind::Word(words) => words.join(", "),
            Kind::Words(words) => format!("none, or a list of: {}", words.join(", ")),
            Kind::Statuses { min, max } => format!("none, or a list of numbers of {min}..={max}, none twice"),
            Kind::Headers => "none, or a list of header names".to_owned(),
            Kind::Path => "a path that starts with / and has no spaces".to_owned(),
            Kind::Ports { min, max } => {
                format!("none, or a list of PORT=NUMBER with a number of {min}..={max} and no port twice")
            }
        }
    }

    /// Checks a JSON value, as a route document gives it.
    pub fn parse_json(self, json: &Json) -> Result<Value, InvalidValue> {
        if let Some(parsed) = self.parse_structured(json) {
            return parsed.map_err(|got| self.invalid(got));
        }
        let text = match json {
            Json::String(text) => text.clone(),
            Json::Number(number) => number.to_string(),
            Json::Bool(flag) => flag.to_string(),
            Json::Null => "none".to_owned(),
            Json::Array(items) => {
                let is_list =
                    matches!(self, Kind::Words(_) | Kind::Statuses { .. } | Kind::Headers | Kind::Ports { .. });
                // `[connect, 502]`: a bare number is the word that it looks like.
                let word = |item: &Json| match item {
                    Json::String(text) => Some(text.clone()),
                    Json::Number(number) => Some(number.to_string()),
                    _ => None,
                };
                let words: Option<Vec<String>> = items.iter().map(word).collect();
                match words {
                    Some(words) if is_list => words.join(","),
                    Some(_) => return Err(self.invalid("list".to_owned())),
                    None => return Err(self.invalid("list with an item that is not a word".to_owned())),
                }
            }
            Json::Object(fields) if matches!(self, Kind::Ports { .. }) => {
                let pair = |(port, number): (&String, &Json)| match number {
                    Json::Number(number) => Some(format!("{port}={number}")),
                    _ => None,
                };
                let pairs: Option<Vec<String>> = fields.iter().map(pair).collect();
                match pairs {
                    Some(pairs) => pairs.join(","),
                    None => return Err(self.invalid("object with a value that is not a number".to_owned())),
                }
            }
            Json::Object(_) => return Err(self.invalid("object".to_owned())),
        };
        self.parse_text(&text).map_err(|error| match (self, json) {
            // A word is a string: there is no other kind to tell it from.
            (Kind::Word(_), Json::String(_)) => error,
            _ => InvalidValue { got: format!("{} {}", json_kind(json), error.got), ..error },
        })
    }

    /// [`Self::parse_json`] with every problem and its place in the value (`[2].all[1].op`; empty for the value as a whole).
    /// What is `is_stored` is read as far as it can be used; the value is `None` when nothing of it can.
    pub fn parse_each(self, json: &Json, is_stored: bool) -> (Option<Value>, Vec<(String, String)>) {
        if self == Kind::RejectRules {
            let (rules, problems) = structured::reject_rules(json, is_stored);
            let is_usable = is_stored || problems.is_empty();
            let problems = problems.into_iter().map(|one| (one.node, one.problem)).collect();
            return (is_usable.then_some(Value::RejectRules(rules)), problems);
        }
        match self.parse_json(json) {
            Ok(value) => (Some(value), Vec::new()),
            Err(error) => (None, vec![(String::new(), error.to_string())]),
        }
    }

    /// Checks a value as a command line gives it.
    pub fn parse_text(self, text: &str) -> Result<Value, InvalidValue> {
        let text = text.trim();
        if let Some(parsed) = self.parse_structured(&structured::json_of(text)) {
            return parsed.map_err(|got| self.invalid(got));
        }
        let parsed = match self {
            Kind::Decimal { word: Some(word), .. } if text == word => Some(Value::Word(word)),
            Kind::Decimal { min, max, is_above, .. } => {
                let number: Option<f64> = in_range(text.parse().ok(), min, max);
                number.filter(|number| !is_above || *number > min).map(Value::Decimal)
            }
            // Read above.
            Kind::DecimalsByModel { .. } | Kind::Metrics | Kind::Turns | Kind::RejectRules => None,
            Kind::Int { min, max } => in_range(text.parse().ok(), min, max).map(Value::Int),
            Kind::IntOr { min, max, word } => {
                if text == word {
                    Some(Value::Word(word))
                } else {
                    in_range(text.parse().ok(), min, max).map(Value::Int)
                }
            }
            Kind::Duration { optional: true, .. } if text == "none" => Some(Value::None),
            Kind::Duration { min, max, .. } => in_range(parse_duration(text), min, max).map(Value::Duration),
            Kind::Bytes { min, max } => in_range(parse_bytes(text), min, max).map(Value::Bytes),
            Kind::Bool => parse_bool(text).map(Value::Bool),
            Kind::Word(words) => words.iter().find(|word| **word == text).map(|word| Value::Word(word)),
            Kind::Words(words) => parse_words(text, words).map(Value::Words),
            Kind::Statuses { min, max } => parse_statuses(text, min, max).map(Value::Statuses),
            Kind::Headers => parse_headers(text).map(Value::Texts),
            Kind::Path => (text.starts_with('/') && text.bytes().all(|c| c.is_ascii_graphic()))
                .then(|| Value::Texts(vec![text.to_owned()])),
            Kind::Ports { min, max } => parse_ports(text, min, max).map(Value::Ports),
        };
        parsed.ok_or_else(|| self.invalid(quote(text)))
    }

    /// Reads the kinds that are JSON also in text; `None` for the others. The error says what was found.
    fn parse_structured(self, json: &Json) -> Option<Result<Value, String>> {
        // From documents that came over a command line or the wire.
        let inner = json.as_str().map(structured::json_of);
        let json = inner.as_ref().unwrap_or(json);
        match self {
            Kind::DecimalsByModel { above, max } => Some(structured::numbers(json, above, max)),
            Kind::Metrics => Some(structured::metrics(json)),
            Kind::Turns => Some(structured::turns(json)),
            Kind::RejectRules => {
                let (rules, problems) = structured::reject_rules(json, false);
                let first = problems.first().map(ToString::to_string);
                Some(first.map_or(Ok(Value::RejectRules(rules)), Err))
            }
            _ => None,
        }
    }

    fn invalid(self, got: String) -> InvalidValue {
        if let Kind::Word(words) = self {
            return InvalidValue { expected: format!("one of {}", words.join(", ")), got, allowed: String::new() };
        }
        InvalidValue { expected: self.name().to_owned(), got, allowed: self.allowed() }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number) => write!(f, "{number}"),
            Value::Duration(span) => f.write_str(&print_duration(*span)),
            Value::None => f.write_str("none"),
            Value::Bytes(size) => f.write_str(&print_bytes(*size)),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Word(word) => f.write_str(word),
            Value::Words(words) if words.is_empty() => f.write_str("none"),
            Value::Words(words) => f.write_str(&words.join(",")),
            Value::Statuses(statuses) if statuses.is_empty() => f.write_str("none"),
            Value::Statuses(statuses) => {
                let texts: Vec<String> = statuses.iter().map(u16::to_string).collect();
                f.write_str(&texts.join(","))
            }
            Value::Texts(texts) if texts.is_empty() => f.write_str("none"),
            Value::Texts(texts) => f.write_str(&texts.join(",")),
            Value::Decimal(number) => write!(f, "{number}"),
            Value::Decimals(_) | Value::Metrics(_) | Value::Turns(_) | Value::RejectRules(_) => {
                match self.structured_json() {
                    Json::Null => f.write_str("none"),
                    json => write!(f, "{json}"),
                }
            }
            Value::Ports(ports) if ports.is_empty() => f.write_str("none"),
            Value::Ports(ports) => {
                let pairs: Vec<String> = ports.iter().map(|(port, number)| format!("{port}={number}")).collect();
                f.write_str(&pairs.join(","))
            }
        }
    }
}

impl Value {
    /// The value of a number or of a kind with a structure, as a route document has it; null when it is empty or of another
    /// kind.
    pub fn structured_json(&self) -> Json {
        match self {
            Value::Decimal(number) => structured::number(*number),
            Value::Decimals(numbers) if !numbers.is_empty() => numbers
                .iter()
                .map(|(name, number)| (name.clone(), structured::number(*number)))
                .collect::<Map<_, _>>()
                .into(),
            Value::Metrics(metrics) if !metrics.is_empty() => structured::metrics_json(metrics),
            Value::Turns(rows) if !rows.is_empty() => structured::turns_json(rows),
            Value::RejectRules(rules) if !rules.is_empty() => rules.to_json(),
            _ => Json::Null,
        }
    }
}

/// The name of a JSON value's kind, for error messages.
pub fn json_kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "list",
        Json::Object(_) => "object",
    }
}
