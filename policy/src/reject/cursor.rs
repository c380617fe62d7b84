//! A walk over JSON text that is known to be valid: in place, no recursion of its own, nothing copied. Of text that is not
//! valid it reads something, in bounded time.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::Visitor;
use serde_json::value::RawValue;

/// A place in the text of a JSON value.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(raw: &'a RawValue) -> Self {
        Self { text: raw.get(), at: 0 }
    }

    /// The first byte of the next value; 0 at the end.
    pub(super) fn kind(&mut self) -> u8 {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.byte()
    }

    /// Walks over the next value and returns its text.
    pub(super) fn value(&mut self) -> &'a str {
        let first = self.kind();
        let start = self.at;
        match first {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_structure(),
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']' | b'"') || byte.is_ascii_whitespace();
                let rest = self.text.as_bytes().get(start..).unwrap_or_default();
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The text from here to another place.
    pub(super) fn until(&self, end: &Self) -> &'a str {
        self.text.get(self.at..end.at).unwrap_or_default()
    }

    /// Walks over an object, if the next value is one. `field` is given each name as it stands, without its quotes, and walks
    /// over the value itself.
    pub(super) fn object(&mut self, mut field: impl FnMut(&mut Self, &'a str)) {
        self.members(b'{', |cursor| {
            let name = inner(cursor.value());
            if cursor.kind() == b':' {
                cursor.at += 1;
                field(cursor, name);
            }
        });
    }

    /// Walks over a list, if the next value is one. `item` walks over each item.
    pub(super) fn list(&mut self, item: impl FnMut(&mut Self)) {
        self.members(b'[', item);
    }

    fn members(&mut self, opening: u8, mut member: impl FnMut(&mut Self)) {
        if self.kind() != opening {
            self.value();
            return;
        }
        self.at += 1;
        loop {
            match self.kind() {
                b'}' | b']' | 0 => break,
                b',' => self.at += 1,
                _ => {
                    let before = self.at;
                    member(self);
                    // What is no value can't be walked over.
                    if self.at == before {
                        break;
                    }
                }
            }
        }
        self.at = (self.at + 1).min(self.text.len());
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// From an opening quote to behind the closing one.
    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', rest) {
                None => {
                    self.at = self.text.len();
                    return;
                }
                Some(found) => {
                    self.at += found;
                    if self.byte() == b'"' {
                        self.at += 1;
                        return;
                    }
                    // The backslash, and what it makes special.
                    self.at += 2;
                }
            }
        }
    }

    fn skip_structure(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.byte() {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                0 if self.at >= self.text.len() => return,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }
}

/// What stands between the quotes of a string.
pub(super) fn inner(string: &str) -> &str {
    let open = string.strip_prefix('"').unwrap_or(string);
    open.strip_suffix('"').unwrap_or(open)
}

/// The text that a string stands for, given what stands between its quotes. Half a surrogate pair becomes three bytes that are
/// no UTF-8: engines take such strings, so they are judged like others.
pub(super) fn unescaped(inner: &str) -> Cow<'_, [u8]> {
    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }

    if !inner.contains('\\') {
        return Cow::Borrowed(inner.as_bytes());
    }
    let quoted = format!("\"{inner}\"");
    let mut json = serde_json::Deserializer::from_str(&quoted);
    // What stands there is a string, so this is always one.
    json.deserialize_bytes(Bytes).map_or(Cow::Borrowed(inner.as_bytes()), Cow::Owned)
}

/// The code points of the text that a string stands for, given what stands between its quotes.
pub(super) fn count_chars(inner: &str) -> u64 {
    // As if there were no escapes, and then less for each that there is: few texts have many.
    let mut count = inner.chars().count();
    let mut escaped_to = 0;
    for at in memchr::memchr_iter(b'\\', inner.as_bytes()) {
        // The second of two backslashes starts nothing.
        if at >= escaped_to {
            let length = escape_length(inner.as_bytes().get(at..).unwrap_or_default());
            count = count.saturating_sub(length - 1);
            escaped_to = at + length;
        }
    }
    count as u64
}

/// The bytes of the escape that a text starts with: both halves of a surrogate pair are one.
fn escape_length(text: &[u8]) -> usize {
    match text.get(1) {
        Some(b'u') if is_surrogate(text, 0xD800) && is_surrogate(text.get(6..).unwrap_or_default(), 0xDC00) => 12,
        Some(b'u') => 6,
        _ => 2,
    }
}

/// Whether a text starts with the escape of this half of a surrogate pair.
fn is_surrogate(text: &[u8], half: u16) -> bool {
    let [b'\\', b'u', digits @ ..] = text else { return false };
    let digits = digits.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()).is_some_and(|unit| unit & 0xFC00 == half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn members_are_found_whatever_stands_around_them() {
        let text = "{\"a\\\"}\" : [1 ,\"]\\\\\",{\"x\":[]}, null] ,\n\"b\": -1.5e3\t, \"c\":{} }";
        let mut seen = Vec::new();
        Cursor::new(raw(text)).object(|cursor, name| {
            if cursor.kind() == b'[' {
                cursor.list(|item| seen.push((name, item.value())));
            } else {
                seen.push((name, cursor.value()));
            }
        });
        assert_eq!(
            seen,
            [
                ("a\\\"}", "1"),
                ("a\\\"}", "\"]\\\\\""),
                ("a\\\"}", "{\"x\":[]}"),
                ("a\\\"}", "null"),
                ("b", "-1.5e3"),
                ("c", "{}")
            ]
        );
    }

    #[test]
    fn what_is_no_object_has_no_members_and_is_walked_over() {
        let mut seen = Vec::new();
        Cursor::new(raw("[{\"a\":1}, 2, \"x\", [3], {\"b\":4}]"))
            .list(|cursor| cursor.object(|cursor, name| seen.push((name, cursor.value()))));
        assert_eq!(seen, [("a", "1"), ("b", "4")]);
    }

    #[test]
    fn code_points() {
        for (text, count) in [
            ("", 0),
            ("abc", 3),
            ("你好世界", 4),
            (r"a\n\\\u00e9b", 5),
            (r"\ud83d\ude00!", 2),
            (r"\uD83D x", 3),
            (r"\ude00\ud83d", 2),
            (r"\\ud83d", 6),
            ("🦀\\\"", 2),
        ] {
            assert_eq!(count_chars(text), count, "{text}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_a_text_too() {
        assert_eq!(unescaped(r"a\ud800b").as_ref(), b"a\xed\xa0\x80b");
        assert_eq!(unescaped(r"\u4f60\n").as_ref(), "你\n".as_bytes());
        assert!(matches!(unescaped("你"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn as_serde_reads_them(text in any::<String>(), ascii in any::<bool>()) {
            let mut written = serde_json::to_string(&text).unwrap();
            if ascii {
                written = written.encode_utf16().map(|unit| match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                    _ => format!("\\u{unit:04x}"),
                }).collect();
            }
            prop_assert_eq!(count_chars(inner(&written)), text.chars().count() as u64);
            let bytes = unescaped(inner(&written));
            prop_assert_eq!(bytes.as_ref(), text.as_bytes());
        }

        #[test]
        fn no_text_hangs_or_panics(text in "[\\[\\]{}\",:\\\\a1 ]{0,60}") {
            let mut cursor = Cursor { text: &text, at: 0 };
            cursor.object(|cursor, _| cursor.list(|cursor| cursor.object(|cursor, _| _ = cursor.value())));
            count_chars(&text);
        }
    }
}
