//! Reading a few members of JSON that may be anything. A value stays the text that it was, so that numbers keep their
//! digits; nothing is built of what was not asked for, and no depth of nesting costs stack.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of one object that were asked for. Of members with the same name the last one counts; `null` counts as
/// absent.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(Vec<(&'static str, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object; `None` when the bytes are not exactly one.
    pub(crate) fn read(json: &'a [u8], names: &'static [&'static str]) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let members = Wanted(names).deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(members)
    }

    /// Reads a value that was found before; nothing is found in one that is no object.
    pub(crate) fn of(value: &'a RawValue, names: &'static [&'static str]) -> Self {
        Self::read(value.get().as_bytes(), names).unwrap_or_default()
    }

    /// One member.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).filter(|value| value.get() != "null")
    }

    /// One member that is a text, and not an empty one.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(text)
    }

    /// One member that is a number. One that no `f64` can hold counts as absent.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(number)
    }

    /// The members of a member.
    pub(crate) fn object(&self, name: &str, names: &'static [&'static str]) -> Members<'a> {
        self.get(name).map(|value| Members::of(value, names)).unwrap_or_default()
    }

    /// The items of a member that is an array.
    pub(crate) fn items(&self, name: &str) -> Vec<&'a RawValue> {
        self.get(name).map(items).unwrap_or_default()
    }
}

/// A text that is not empty.
pub(crate) fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str::<String>(value.get()).ok().filter(|text| !text.is_empty())
}

/// A finite number.
pub(crate) fn number(value: &RawValue) -> Option<f64> {
    serde_json::from_str::<f64>(value.get()).ok().filter(|number| number.is_finite())
}

/// The items of an array; none of anything else.
pub(crate) fn items(value: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(value.get()).unwrap_or_default()
}

/// Deepest nesting that is kept as JSON: readers of the log refuse what is much deeper.
const DEEPEST: usize = 64;

/// A value as it goes into a line of the log: on one line, as line ends can stand only between its parts, where a space
/// means the same. What is nested too deep becomes a text.
pub(crate) fn one_line(json: &str) -> String {
    let line = json.replace(['\n', '\r'], " ");
    if is_too_deep(&line) { serde_json::to_string(&line).unwrap_or_default() } else { line }
}

fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return true;
        }
    }
    false
}

struct Wanted(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Wanted {
    type Value = Members<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found: Vec<(&'static str, &'de RawValue)> = Vec::new();
        while let Some(name) = map.next_key_seed(Name(self.0))? {
            let Some(name) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value()?;
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, earlier)) => *earlier = value,
                None => found.push((name, value)),
            }
        }
        Ok(Members(found))
    }
}

/// Reads a name: one of those that are wanted, or none.
struct Name(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|wanted| *wanted == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text_and_the_last_of_a_name_counts() {
        let json = br#" {"a": 1, "n": 1.2500e1, "b": {"deep": [1]}, "a": 12345678901234567890123, "z": null} "#;
        let members = Members::read(json, &["a", "n", "b", "z"]).unwrap();
        assert_eq!(members.get("a").unwrap().get(), "12345678901234567890123");
        assert_eq!(members.number("n"), Some(12.5));
        assert_eq!(members.object("b", &["deep"]).items("deep").len(), 1);
        assert!(members.get("z").is_none() && members.text("a").is_none());
    }

    #[test]
    fn a_line_of_the_log_is_one_line_that_readers_take() {
        assert_eq!(one_line("{\"a\":\r\n [1]}"), "{\"a\":   [1]}");
        let (open, close) = ("[".repeat(64), "]".repeat(64));
        let deep = format!("{open}{close}");
        assert_eq!(one_line(&deep), deep);
        assert_eq!(one_line(&format!("[{deep}]")), format!("\"[{deep}]\""));
        let text = format!("[\"{open}{open}\\\"{open}\"]");
        assert_eq!(one_line(&text), text);
    }

    #[test]
    fn what_is_no_object_is_none_and_depth_costs_no_stack() {
        for json in [&b"[1]"[..], b"", b"{", b"{} {}", b"null", b"\xff", b"{\"a\":\xff}", b"{\"a\":1e}"] {
            assert!(Members::read(json, &["a"]).is_none(), "{json:?}");
        }
        let bomb = format!("{{\"a\": {}{}, \"n\": 1e999}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        let members = Members::read(bomb.as_bytes(), &["a", "n"]).unwrap();
        assert_eq!(members.get("a").unwrap().get().len(), 2 << 20);
        assert_eq!(members.number("n"), None);
        let ignored = Members::read(bomb.as_bytes(), &["n"]).unwrap();
        assert!(ignored.get("a").is_none() && ignored.get("n").is_some());
    }
}
