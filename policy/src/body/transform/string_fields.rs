//! Every field of a JSON text whose value is a string, at any depth, in one pass and without a stack.

use std::ops::Range;

use memchr::{memchr, memchr2};

use crate::body::peek;

/// A field with a string in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StringField<'t> {
    /// Raw, with its quotes.
    key: &'t str,
    /// Where the value stands, without its quotes.
    pub(super) value: Range<usize>,
}

impl StringField<'_> {
    /// Whether this is the key, written with escapes or without.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let inner = self.key.get(1..self.key.len().saturating_sub(1)).unwrap_or_default();
        // An escape has six bytes at most; a longer key is not worth its decoding.
        inner == name
            || (inner.len() <= 6 * name.len() && peek::quoted(self.key).is_some_and(|key| key.as_ref() == name))
    }
}

/// Goes through a text that is known to be JSON. In such a text a string that a colon follows is a key.
#[derive(Debug)]
pub(super) struct StringFields<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> StringFields<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    /// The closing quote of the string that starts after its opening quote.
    fn string_end(&self, mut at: usize) -> Option<usize> {
        loop {
            at += memchr2(b'"', b'\\', self.text.as_bytes().get(at..)?)?;
            if self.byte(at) == Some(b'"') {
                return Some(at);
            }
            // The backslash and what it stands before.
            at += 2;
        }
    }

    fn after_space(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            at += 1;
        }
        at
    }
}

impl<'t> Iterator for StringFields<'t> {
    type Item = StringField<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let open = self.at + memchr(b'"', self.text.as_bytes().get(self.at..)?)?;
            let close = self.string_end(open + 1)?;
            let colon = self.after_space(close + 1);
            if self.byte(colon) != Some(b':') {
                self.at = colon;
                continue;
            }
            let value = self.after_space(colon + 1);
            if self.byte(value) != Some(b'"') {
                self.at = value;
                continue;
            }
            let end = self.string_end(value + 1)?;
            self.at = end + 1;
            return Some(StringField { key: self.text.get(open..=close)?, value: value + 1..end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_at_any_depth_and_nothing_else() {
        let text = r#"{"a" : "x", "b": ["c", {"d":"\"e\":\"f\"", "g": 1, "h": {"\u0069":"" }}], "j": null}"#;
        let found: Vec<_> = StringFields::of(text).map(|field| (field.key, &text[field.value])).collect();
        assert_eq!(found, [("\"a\"", "x"), ("\"d\"", r#"\"e\":\"f\""#), (r#""\u0069""#, "")]);
        let [a, .., i] = &StringFields::of(text).collect::<Vec<_>>()[..] else { panic!() };
        assert!(a.is_named("a") && !a.is_named("i") && i.is_named("i") && !i.is_named("u0069"));
    }

    #[test]
    fn texts_that_are_no_json_end() {
        for text in ["", "\"", "\"\\", "\"a\"", "\"a\":", "\"a\":\"", "\"a\":\"\\", "\"a\" : \"b\\\""] {
            assert_eq!(StringFields::of(text).count(), 0, "{text}");
        }
    }
}
