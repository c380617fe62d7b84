//! The few fields that the router reads of a JSON body, borrowed: one pass, no tree, no copied strings.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The top-level fields of a JSON object body, each as its raw text. Of a field that stands twice the last counts.
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "each is the body's field of that name")]
pub struct Peek<'a> {
    pub model: Option<&'a RawValue>,
    pub stream: Option<&'a RawValue>,
    pub user: Option<&'a RawValue>,
    pub prompt_cache_key: Option<&'a RawValue>,
    pub conversation: Option<&'a RawValue>,
    pub metadata: Option<&'a RawValue>,
    pub litellm_metadata: Option<&'a RawValue>,
    pub messages: Option<&'a RawValue>,
    pub input: Option<&'a RawValue>,
}

impl<'a> Peek<'a> {
    /// Reads a body; `None` unless it is one JSON object in UTF-8.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let mut json = serde_json::Deserializer::from_str(text);
        let peek = Deserializer::deserialize_map(&mut json, PeekVisitor).ok()?;
        json.end().ok()?;
        Some(peek)
    }

    /// The `model` field when it is a string.
    pub fn model_name(&self) -> Option<Cow<'a, str>> {
        self.model.and_then(string)
    }

    /// Whether `stream` is literally `true`.
    pub fn wants_stream(&self) -> bool {
        self.stream.is_some_and(|raw| raw.get() == "true")
    }
}

struct PeekVisitor;

impl<'de> Visitor<'de> for PeekVisitor {
    type Value = Peek<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut peek = Peek::default();
        while let Some(key) = map.next_key_seed(KeySeed(Peek::slot_of))? {
            match key {
                Some(slot) => *slot(&mut peek) = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(peek)
    }
}

type SlotOf<'a> = for<'p> fn(&'p mut Peek<'a>) -> &'p mut Option<&'a RawValue>;

impl<'a> Peek<'a> {
    fn slot_of(key: &str) -> Option<SlotOf<'a>> {
        Some(match key {
            "model" => |peek| &mut peek.model,
            "stream" => |peek| &mut peek.stream,
            "user" => |peek| &mut peek.user,
            "prompt_cache_key" => |peek| &mut peek.prompt_cache_key,
            "conversation" => |peek| &mut peek.conversation,
            "metadata" => |peek| &mut peek.metadata,
            "litellm_metadata" => |peek| &mut peek.litellm_metadata,
            "messages" => |peek| &mut peek.messages,
            "input" => |peek| &mut peek.input,
            _ => return None,
        })
    }
}

/// Maps an object's key to something without copying the key.
struct KeySeed<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for KeySeed<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        struct KeyVisitor<F>(F);

        impl<T, F: FnOnce(&str) -> T> Visitor<'_> for KeyVisitor<F> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<T, E> {
                Ok((self.0)(key))
            }
        }

        deserializer.deserialize_str(KeyVisitor(self.0))
    }
}

/// The field of an object; `None` unless `raw` is an object that has it. Of a field that stands twice the last counts.
pub fn field<'a>(raw: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let mut found = None;
    each_field(raw.get(), name, |value| found = Some(value))?;
    found
}

/// Every value that an object has under this name, in order; `None` unless `text` is one JSON object.
pub fn fields<'a>(text: &'a str, name: &str) -> Option<Vec<&'a RawValue>> {
    let mut found = Vec::new();
    each_field(text, name, |value| found.push(value))?;
    Some(found)
}

fn each_field<'a>(text: &'a str, name: &str, take: impl FnMut(&'a RawValue)) -> Option<()> {
    struct FieldVisitor<'n, F>(&'n str, F);

    impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for FieldVisitor<'_, F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
            while let Some(is_it) = map.next_key_seed(KeySeed(|key: &str| key == self.0))? {
                if is_it {
                    (self.1)(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }

    let mut json = serde_json::Deserializer::from_str(text);
    Deserializer::deserialize_map(&mut json, FieldVisitor(name, take)).ok()?;
    json.end().ok()
}

/// The items of a list, in order; `None` unless it is one.
pub fn items(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// A JSON string's text, borrowed when it has no escapes.
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(raw.get()).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// The content of the first message whose role is `user`, in a list of messages; a bare string is a user's message itself
/// (the Responses API's `input`). Reads no further than it must.
pub fn first_user_content(messages: &RawValue) -> Option<&RawValue> {
    struct ListVisitor;

    impl<'de> Visitor<'de> for ListVisitor {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of messages")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(item) = list.next_element::<&RawValue>()? {
                let is_user = || field(item, "role").is_some_and(|role| role.get() == "\"user\"");
                if found.is_none() && is_user() {
                    found = field(item, "content");
                }
            }
            Ok(found)
        }
    }

    if messages.get().starts_with('"') {
        return Some(messages);
    }
    let mut json = serde_json::Deserializer::from_str(messages.get());
    Deserializer::deserialize_seq(&mut json, ListVisitor).ok().flatten()
}

// `&RawValue` must be what serde borrows; a compile-time reminder that nothing here copies.
const _: fn() = || {
    fn borrows<'de, T: Deserialize<'de>>() {}
    borrows::<&RawValue>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_borrowed_from_the_body() {
        let body =
            br#"{"model": "m", "stream": true, "messages": [{"role": "user", "content": "x"}], "other": {"user": 1}}"#;
        let peek = Peek::read(body).unwrap();
        assert!(matches!(peek.model_name(), Some(Cow::Borrowed("m"))));
        assert!(peek.wants_stream());
        assert!(peek.user.is_none(), "only the top level counts");
    }

    #[test]
    fn the_last_of_two_counts_and_escaped_keys_are_read() {
        let peek = Peek::read(br#"{"user": "a", "us\u0065r": "b"}"#).unwrap();
        assert_eq!(peek.user.unwrap().get(), "\"b\"");
    }

    #[test]
    fn only_whole_objects_count() {
        for body in ["", "{", "[]", "1", "{} {}", "{\"a\":}", "\u{feff}{}"] {
            assert!(Peek::read(body.as_bytes()).is_none(), "{body}");
        }
        assert!(Peek::read(b"{\"a\": \"\xff\"}").is_none());
        assert!(Peek::read(b" {} ").is_some());
        let stream_word = Peek::read(br#"{"stream": "true"}"#).unwrap();
        assert!(!stream_word.wants_stream());
    }

    #[test]
    fn deep_nesting_is_refused_not_overflowed() {
        let body = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let _ = Peek::read(body.as_bytes());
    }
}
