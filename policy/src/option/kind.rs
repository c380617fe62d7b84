//! The kinds of option value: parsing from JSON or text, bounds, printing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value as Json;

/// What an option accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// A time: `5s`, `300ms`, `24h`, `10m`, or a number of seconds.
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Of [`Kind::Headers`] or [`Kind::Path`].
    Texts(Vec<String>),
    /// Of [`Kind::Ports`], by port.
    Ports(BTreeMap<u16, u64>),
}

/// A value that its option does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected, got {got}; allowed: {allowed}")]
pub struct InvalidValue {
    /// The option's kind, in words.
    pub expected: String,
    /// The kind seen (and the value, when it is short and plain).
    pub got: String,
    /// The bounds.
    pub allowed: String,
}

impl Kind {
    /// The kind in a word or two, for tables and errors.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Int { .. } => "integer",
            Kind::IntOr { .. } => "integer or word",
            Kind::Duration { .. } => "duration",
            Kind::Bytes { .. } => "size",
            Kind::Bool => "boolean",
            Kind::Word(_) => "word",
            Kind::Words(_) => "list of words",
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
            Kind::Duration { min, max, optional } => {
                let none = if optional { " or none" } else { "" };
                format!("{}..={}{none} (units ms, s, m, h)", print_duration(min), print_duration(max))
            }
            Kind::Bytes { min, max } => format!("{}..={} (units B, KiB, MiB, GiB)", print_bytes(min), print_bytes(max)),
            Kind::Bool => "true, false".to_owned(),
            Kind::Word(words) => words.join(", "),
            Kind::Words(words) => format!("none, or a list of: {}", words.join(", ")),
            Kind::Headers => "none, or a list of header names".to_owned(),
            Kind::Path => "a path that starts with / and has no spaces".to_owned(),
            Kind::Ports { min, max } => {
                format!("none, or a list of PORT=NUMBER with a number of {min}..={max} and no port twice")
            }
        }
    }

    /// Checks a JSON value, as a route document gives it.
    pub fn parse_json(self, json: &Json) -> Result<Value, InvalidValue> {
        let text = match json {
            Json::String(text) => text.clone(),
            Json::Number(number) => number.to_string(),
            Json::Bool(flag) => flag.to_string(),
            Json::Null => "none".to_owned(),
            Json::Array(items) => {
                let is_list = matches!(self, Kind::Words(_) | Kind::Headers | Kind::Ports { .. });
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
        self.parse_text(&text)
            .map_err(|error| InvalidValue { got: format!("{} {}", json_kind(json), error.got), ..error })
    }

    /// Checks a value as a command line gives it.
    pub fn parse_text(self, text: &str) -> Result<Value, InvalidValue> {
        let text = text.trim();
        let parsed = match self {
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
            Kind::Headers => parse_headers(text).map(Value::Texts),
            Kind::Path => (text.starts_with('/') && text.bytes().all(|c| c.is_ascii_graphic()))
                .then(|| Value::Texts(vec![text.to_owned()])),
            Kind::Ports { min, max } => parse_ports(text, min, max).map(Value::Ports),
        };
        parsed.ok_or_else(|| self.invalid(quote(text)))
    }

    fn invalid(self, got: String) -> InvalidValue {
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
            Value::Texts(texts) if texts.is_empty() => f.write_str("none"),
            Value::Texts(texts) => f.write_str(&texts.join(",")),
            Value::Ports(ports) if ports.is_empty() => f.write_str("none"),
            Value::Ports(ports) => {
                let pairs: Vec<String> = ports.iter().map(|(port, number)| format!("{port}={number}")).collect();
                f.write_str(&pairs.join(","))
            }
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

/// A short, safe echo of what was written.
fn quote(text: &str) -> String {
    if text.chars().count() <= 40 && !text.chars().any(char::is_control) {
        format!("'{text}'")
    } else {
        "a longer text".to_owned()
    }
}

fn in_range<T: PartialOrd + Copy>(value: Option<T>, min: T, max: T) -> Option<T> {
    value.filter(|value| *value >= min && *value <= max)
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

fn parse_words(text: &str, allowed: &'static [&'static str]) -> Option<Vec<&'static str>> {
    let mut words = Vec::new();
    if text == "none" || text.is_empty() {
        return Some(words);
    }
    for part in text.split(',') {
        let word = *allowed.iter().find(|word| **word == part.trim())?;
        if words.contains(&word) {
            return None;
        }
        words.push(word);
    }
    Some(words)
}

fn parse_headers(text: &str) -> Option<Vec<String>> {
    if text == "none" || text.is_empty() {
        return Some(Vec::new());
    }
    text.split(',')
        .map(|part| http::HeaderName::from_bytes(part.trim().as_bytes()).ok().map(|name| name.as_str().to_owned()))
        .collect()
}

fn parse_ports(text: &str, min: u64, max: u64) -> Option<BTreeMap<u16, u64>> {
    let mut ports = BTreeMap::new();
    if text == "none" || text.is_empty() {
        return Some(ports);
    }
    for part in text.split(',') {
        let (port, number) = part.split_once('=')?;
        let port = in_range(port.trim().parse().ok(), 1, u16::MAX)?;
        let number = in_range(number.trim().parse().ok(), min, max)?;
        if ports.insert(port, number).is_some() {
            return None;
        }
    }
    Some(ports)
}

/// Splits `12.5ms` into number and unit.
fn split_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

/// `5s`, `300ms`, `1.5h`, `90` (seconds).
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// The shortest form that [`parse_duration`] reads back as the same milliseconds.
pub fn print_duration(span: Duration) -> String {
    let ms = span.as_millis();
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

/// `10MiB`, `512`, `64KiB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor: u32 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    let size = number * f64::from(factor);
    // Sizes past 2^53 are refused: a float would round them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked whole and in range")]
    (size.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&size)).then_some(size as u64)
}

fn print_bytes(size: u64) -> String {
    match size {
        0 => "0B".to_owned(),
        _ if size.is_multiple_of(1 << 30) => format!("{}GiB", size >> 30),
        _ if size.is_multiple_of(1 << 20) => format!("{}MiB", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{}KiB", size >> 10),
        _ => format!("{size}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SPAN: Kind = Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(3600), optional: true };

    #[test]
    fn numbers_texts_and_words_are_read() {
        let int = Kind::Int { min: 1, max: 10 };
        assert_eq!(int.parse_json(&json!(10)).unwrap(), Value::Int(10));
        assert_eq!(int.parse_json(&json!("7")).unwrap(), Value::Int(7));
        assert_eq!(SPAN.parse_json(&json!("300ms")).unwrap(), Value::Duration(Duration::from_millis(300)));
        assert_eq!(SPAN.parse_json(&json!(0.5)).unwrap(), Value::Duration(Duration::from_millis(500)));
        assert_eq!(SPAN.parse_json(&json!(null)).unwrap(), Value::None);
        let bytes = Kind::Bytes { min: 1, max: 1 << 30 };
        assert_eq!(bytes.parse_json(&json!("10MiB")).unwrap(), Value::Bytes(10 << 20));
        for (text, flag) in [("Yes", true), ("ON", true), ("1", true), ("no", false), ("Off", false), ("0", false)] {
            assert_eq!(Kind::Bool.parse_text(text).unwrap(), Value::Bool(flag));
        }
        let words = Kind::Words(&["connect", "502"]);
        assert_eq!(words.parse_json(&json!(["502", "connect"])).unwrap(), Value::Words(vec!["502", "connect"]));
        assert_eq!(words.parse_json(&json!([502])).unwrap(), Value::Words(vec!["502"]));
        assert!(words.parse_json(&json!([["502"]])).is_err());
        assert_eq!(words.parse_text("none").unwrap(), Value::Words(vec![]));
        assert!(words.parse_text("502,502").is_err());
    }

    #[test]
    fn numbers_by_port_are_read_from_text_list_and_object() {
        let ports = Kind::Ports { min: 1, max: 1000 };
        let expected = Value::Ports(BTreeMap::from([(19001, 7), (19002, 8)]));
        for json in [json!("19002=8, 19001=7"), json!(["19001=7", "19002=8"]), json!({"19001": 7, "19002": 8})] {
            assert_eq!(ports.parse_json(&json).unwrap(), expected, "{json}");
        }
        assert_eq!(ports.parse_text(&expected.to_string()).unwrap(), expected);
        assert_eq!(ports.parse_json(&json!({})).unwrap().to_string(), "none");
        for bad in [json!("19001"), json!("0=1"), json!("1=0"), json!("1=1,1=2"), json!("70000=1"), json!({"1": "2"})] {
            assert!(ports.parse_json(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_names_kind_value_and_bounds() {
        let error = Kind::Int { min: 1, max: 10 }.parse_json(&json!("many")).unwrap_err();
        assert_eq!(error.to_string(), "integer expected, got string 'many'; allowed: 1..=10");
        let error = Kind::Int { min: 1, max: 10 }.parse_json(&json!(-1)).unwrap_err();
        assert_eq!(error.to_string(), "integer expected, got number '-1'; allowed: 1..=10");
        let error = SPAN.parse_json(&json!({"a": 1})).unwrap_err();
        assert!(error.to_string().contains("got object"), "{error}");
        for bad in ["nan", "inf", "-1s", "1e400", "5 weeks", ""] {
            assert!(SPAN.parse_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn printing_reads_back() {
        for ms in [1, 999, 1000, 1500, 60_000, 90_000, 3_600_000] {
            let span = Duration::from_millis(ms);
            assert_eq!(parse_duration(&print_duration(span)), Some(span));
        }
        for size in [0, 1, 1023, 1024, 10 << 20, (64 << 20) + 1] {
            assert_eq!(parse_bytes(&print_bytes(size)), Some(size));
        }
    }
}
