//! The few fields that the router reads of a JSON body, borrowed: one pass, no tree, no copied strings.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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

/// A body without the byte order mark that some clients put before it and many engines pass over.
pub fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

impl<'a> Peek<'a> {
    /// Reads a body; `None` unless it is one JSON object in UTF-8, with a byte order mark before it or without.
    pub fn read(body: &'a [u8]) -> Option<Self> {
        let text = simdutf8::basic::from_utf8(without_bom(body)).ok()?;
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

            fn visit_bytes<E>(self, key: &[u8]) -> Result<T, E> {
                // No text: then it is no name that anybody asks for.
                Ok((self.0)(std::str::from_utf8(key).unwrap_or("\u{fffd}")))
            }
        }

        // As bytes, since half a surrogate pair, which is no text, must not hide the rest of the object.
        deserializer.deserialize_bytes(KeyVisitor(self.0))
    }
}

/// The field of an object; `None` unless `raw` is an object that has it. Of a field that stands twice the last counts.
pub fn field<'a>(raw: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let [found] = pick(raw.get(), [name])?;
    found
}

/// Some fields of an object, in one pass; `None` unless `text` is one JSON object. Of a field that stands twice the last
/// counts.
pub fn pick<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    let mut found = [None; N];
    each_field(
        text,
        |key| names.iter().position(|name| *name == key),
        |at, value| {
            if let Some(slot) = found.get_mut(at) {
                *slot = Some(value);
            }
        },
    )?;
    Some(found)
}

/// Every value that an object has under this name, in order; `None` unless `text` is one JSON object.
pub fn fields<'a>(text: &'a str, name: &str) -> Option<Vec<&'a RawValue>> {
    let mut found = Vec::new();
    each_field(text, |key| (key == name).then_some(()), |(), value| found.push(value))?;
    Some(found)
}

/// Passes on the values whose keys `choose` knows. The others are checked and skipped.
fn each_field<'a, K>(
    text: &'a str,
    choose: impl Fn(&str) -> Option<K>,
    take: impl FnMut(K, &'a RawValue),
) -> Option<()> {
    struct FieldVisitor<C, T>(C, T);

    impl<'de, K, C: Fn(&str) -> Option<K>, T: FnMut(K, &'de RawValue)> Visitor<'de> for FieldVisitor<C, T> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
            while let Some(chosen) = map.next_key_seed(KeySeed(&self.0))? {
                if let Some(chosen) = chosen {
                    (self.1)(chosen, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }

    let mut json = serde_json::Deserializer::from_str(text);
    Deserializer::deserialize_map(&mut json, FieldVisitor(choose, take)).ok()?;
    json.end().ok()
}

/// The items of a list, in order; `None` unless it is one.
pub fn items(raw: &RawValue) -> Option<Vec<&RawValue>> {
    let mut found = Vec::new();
    each_item(raw, |item| found.push(item))?;
    Some(found)
}

/// Passes on the items of a list, in order; `None` unless it is one. No list of them is made.
pub fn each_item<'a>(raw: &'a RawValue, mut take: impl FnMut(&'a RawValue)) -> Option<()> {
    until_item(raw, |item| {
        take(item);
        ControlFlow::Continue(())
    })
}

/// The same, as long as `take` wants more.
fn until_item<'a>(raw: &'a RawValue, take: impl FnMut(&'a RawValue) -> ControlFlow<()>) -> Option<()> {
    struct ListVisitor<T>(T);

    impl<'de, T: FnMut(&'de RawValue) -> ControlFlow<()>> Visitor<'de> for ListVisitor<T> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self::Value, A::Error> {
            while let Some(item) = list.next_element::<&RawValue>()? {
                if (self.0)(item).is_break() {
                    // What follows is not read: an error is how a visitor ends early.
                    return Err(serde::de::Error::custom("enough"));
                }
            }
            Ok(())
        }
    }

    let mut json = serde_json::Deserializer::from_str(raw.get());
    Deserializer::deserialize_seq(&mut json, ListVisitor(take)).ok()
}

/// A JSON string's text, borrowed when it has no escapes; `None` when it is no string, or holds half a surrogate pair.
pub fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    quoted(raw.get())
}

/// The same of the raw text, quotes included, of what is known to be one JSON value.
pub(crate) fn quoted(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let has_escapes = memchr::memchr(b'\\', inner.as_bytes()).is_some();
    if has_escapes { serde_json::from_str(raw).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// The content of the first message whose role is `user`, in a list of messages; a bare string is a user's message itself
/// (the Responses API's `input`). Reads no further than it must.
pub fn first_user_content(messages: &RawValue) -> Option<&RawValue> {
    if messages.get().starts_with('"') {
        return Some(messages);
    }
    let mut found = None;
    until_item(messages, |item| match pick(item.get(), ["role", "content"]) {
        Some([Some(role), content]) if role.get() == "\"user\"" => {
            found = content;
            if content.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    });
    found
}

#[cfg(test)]
#[path = "peek/tests.rs"]
mod tests;
