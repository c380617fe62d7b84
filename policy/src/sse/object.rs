//! A JSON object as it stands in its text: where its fields are, and byte edits of them. What no edit touches keeps its bytes:
//! order, spacing, escapes, the text of numbers (rulings §7).
//!
//! Of fields with one name the last counts, as for any reader of the answer. Names are compared as they are written: engines
//! escape no letters.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

use crate::body::edit::{Edits, place};

/// Fields of an object, or items of a list, that are looked at. With more than that, nothing in it is changed: memory is
/// bounded, and no engine answers so.
const PARTS_MAX: usize = 1 << 16;

/// What is to be done with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
    Renamed(&'static str),
}

#[derive(Debug)]
struct Field {
    /// With its quotes.
    key: Range<usize>,
    value: Range<usize>,
    fate: Fate,
}

/// Which field wins when another takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Winner {
    /// The one that is renamed.
    Renamed,
    /// The one that had the name; the other goes.
    Existing,
}

/// An object in a text.
#[derive(Debug)]
pub(super) struct Object<'a> {
    text: &'a str,
    fields: Vec<Field>,
}

impl<'a> Object<'a> {
    /// The text as an object, with nothing around it but spaces. `None` when it is none.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        Self::read_at(text, &(0..text.len()))
    }

    /// What stands at a place of the text, as an object.
    pub(super) fn read_at(text: &'a str, at: &Range<usize>) -> Option<Self> {
        let part = text.get(at.clone())?;
        if !part.trim_ascii_start().starts_with('{') {
            return None;
        }
        let mut reader = Deserializer::from_str(part);
        let fields = reader.deserialize_map(FieldsOf(text)).ok()?;
        reader.end().ok()?;
        Some(Self { text, fields })
    }

    fn name(&self, field: &Field) -> &'a str {
        self.text.get(unquoted(&field.key)).unwrap_or_default()
    }

    fn last(&self, name: &str) -> Option<usize> {
        self.fields.iter().rposition(|field| self.name(field) == name)
    }

    /// The value of a field.
    pub(super) fn value(&self, name: &str) -> Option<Range<usize>> {
        let last = self.last(name)?;
        self.fields.get(last).map(|field| field.value.clone())
    }

    /// [`Object::value`], as its text.
    pub(super) fn value_text(&self, name: &str) -> Option<&'a str> {
        self.text.get(self.value(name)?)
    }

    /// Takes fields out.
    pub(super) fn drop_all(&mut self, names: &[&str]) {
        for at in 0..self.fields.len() {
            let Some(field) = self.fields.get(at) else { return };
            if names.contains(&self.name(field)) {
                self.mark(at, Fate::Goes);
            }
        }
    }

    /// Takes those out whose value is null.
    pub(super) fn drop_nulls(&mut self, names: &[&str]) {
        for name in names {
            if self.value_text(name) == Some("null") {
                self.drop_all(&[name]);
            }
        }
    }

    /// Gives a field another name.
    pub(super) fn rename(&mut self, from: &str, to: &'static str, winner: Winner) {
        let Some(last) = self.last(from) else { return };
        let is_taken = self.last(to).is_some();
        self.drop_all(&[from]);
        match winner {
            Winner::Renamed => self.drop_all(&[to]),
            Winner::Existing if is_taken => return,
            Winner::Existing => {}
        }
        self.mark(last, Fate::Renamed(to));
    }

    fn mark(&mut self, at: usize, fate: Fate) {
        if let Some(field) = self.fields.get_mut(at) {
            field.fate = fate;
        }
    }

    /// Notes what is to be done to the text. A field goes with one comma: the one before it, unless nothing that stays stands
    /// before it.
    pub(super) fn finish(self, edits: &mut Edits<'_>) {
        let mut some_stays = false;
        let mut before_end = 0;
        let mut fields = self.fields.iter().peekable();
        while let Some(field) = fields.next() {
            match field.fate {
                Fate::Stays => some_stays = true,
                Fate::Renamed(to) => {
                    some_stays = true;
                    edits.replace(unquoted(&field.key), to);
                }
                Fate::Goes if some_stays => edits.remove(before_end..field.value.end),
                Fate::Goes => {
                    let end = fields.peek().map_or(field.value.end, |next| next.key.start);
                    edits.remove(field.key.start..end);
                }
            }
            before_end = field.value.end;
        }
    }
}

fn unquoted(key: &Range<usize>) -> Range<usize> {
    key.start + 1..key.end.saturating_sub(1)
}

/// The items of a list that stands at a place of the text; none when it is no list.
pub(super) fn items(text: &str, at: Range<usize>) -> Vec<Range<usize>> {
    let part = text.get(at).unwrap_or_default();
    if !part.starts_with('[') {
        return Vec::new();
    }
    Deserializer::from_str(part).deserialize_seq(ItemsOf(text)).unwrap_or_default()
}

/// Reads fields of an object in this text.
struct FieldsOf<'de>(&'de str);

impl<'de> Visitor<'de> for FieldsOf<'de> {
    type Value = Vec<Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Field>, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            if fields.len() == PARTS_MAX {
                return Err(A::Error::custom("too many fields"));
            }
            let (key, value) = (place(self.0, key.get()), place(self.0, value.get()));
            fields.push(Field { key, value, fate: Fate::Stays });
        }
        Ok(fields)
    }
}

/// Reads items of a list in this text.
struct ItemsOf<'de>(&'de str);

impl<'de> Visitor<'de> for ItemsOf<'de> {
    type Value = Vec<Range<usize>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Range<usize>>, A::Error> {
        let mut items = Vec::new();
        while items.len() < PARTS_MAX {
            let Some(item) = seq.next_element::<&RawValue>()? else { return Ok(items) };
            items.push(place(self.0, item.get()));
        }
        match seq.next_element::<IgnoredAny>()? {
            None => Ok(items),
            Some(_) => Err(A::Error::custom("too many items")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, edit: impl FnOnce(&mut Object<'_>)) -> String {
        let mut object = Object::read(text).unwrap();
        edit(&mut object);
        let mut edits = Edits::new(text);
        object.finish(&mut edits);
        if edits.is_empty() { format!("unchanged {text}") } else { edits.apply().unwrap() }
    }

    #[test]
    fn a_field_goes_with_one_comma_and_its_spaces() {
        for (text, expected) in [
            (r#"{"x":1}"#, "{}"),
            (r#"{ "x" : 1 }"#, "{  }"),
            (r#"{"x":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":2,"x":1}"#, r#"{"a":2}"#),
            ("{\n  \"a\": 2,\n  \"x\": 1,\n  \"b\": 3\n}", "{\n  \"a\": 2,\n  \"b\": 3\n}"),
            ("{\n  \"x\": 1,\n  \"b\": 3\n}", "{\n  \"b\": 3\n}"),
            (r#"{"x":1,"y":2,"a":3,"x":4,"y":5}"#, r#"{"a":3}"#),
            (r#"{"x":1,"y":2}"#, "{}"),
            (r#"{"x":"},\"x\":[","a":{"x":1}}"#, r#"{"a":{"x":1}}"#),
            (r#"{"é":"ü\u0000","x":"😀","ß":1e400}"#, r#"{"é":"ü\u0000","ß":1e400}"#),
        ] {
            assert_eq!(edited(text, |object| object.drop_all(&["x", "y"])), expected, "{text}");
        }
        let untouched = r#"{"a":1,"X":2}"#;
        assert_eq!(edited(untouched, |object| object.drop_all(&["x"])), format!("unchanged {untouched}"));
    }

    #[test]
    fn the_last_of_a_name_says_whether_it_is_null() {
        let nulls = |text| edited(text, |object| object.drop_nulls(&["x"]));
        assert_eq!(nulls(r#"{"x":null,"a":1}"#), r#"{"a":1}"#);
        assert_eq!(nulls(r#"{"x":7,"a":1,"x":null}"#), r#"{"a":1}"#);
        assert_eq!(nulls(r#"{"x":null,"x":7}"#), r#"unchanged {"x":null,"x":7}"#);
        assert_eq!(nulls(r#"{"x":"null"}"#), r#"unchanged {"x":"null"}"#);
    }

    #[test]
    fn a_field_takes_a_name() {
        let renamed = |text, winner| edited(text, |object| object.rename("old", "new", winner));
        for (text, by_renamed, by_existing) in [
            (r#"{"a":1, "old" : 2}"#, r#"{"a":1, "new" : 2}"#, r#"{"a":1, "new" : 2}"#),
            (r#"{"old":1,"new":2}"#, r#"{"new":1}"#, r#"{"new":2}"#),
            (r#"{"new":null,"old":1}"#, r#"{"new":1}"#, r#"{"new":null}"#),
            (r#"{"old":1,"a":2,"old":3}"#, r#"{"a":2,"new":3}"#, r#"{"a":2,"new":3}"#),
        ] {
            assert_eq!(renamed(text, Winner::Renamed), by_renamed, "{text}");
            assert_eq!(renamed(text, Winner::Existing), by_existing, "{text}");
        }
        assert_eq!(renamed(r#"{"new":1}"#, Winner::Renamed), r#"unchanged {"new":1}"#);
    }

    #[test]
    fn what_is_no_object_and_what_is_too_much() {
        for text in ["", " ", "{", "{}x", "[]", "7", "null", r#"{"a":}"#, r#"{"a":1,}"#, "{\"a\":\"\u{1}\"}", "{1:2}"] {
            assert!(Object::read(text).is_none(), "{text}");
        }
        let object = |fields: usize| format!("{{\"x\":0{}}}", ",\"a\":0".repeat(fields - 1));
        assert!(Object::read(&object(PARTS_MAX)).is_some());
        assert!(Object::read(&object(PARTS_MAX + 1)).is_none());
        let list = |items: usize| format!("[0{}]", ",0".repeat(items - 1));
        let count = |text: &str| items(text, 0..text.len()).len();
        assert_eq!((count(&list(PARTS_MAX)), count(&list(PARTS_MAX + 1))), (PARTS_MAX, 0));
        assert_eq!((count("[]"), count("{}"), count("[[1,2],3]")), (0, 0, 2));
        // Depth costs no stack.
        let deep = format!(r#"{{"a":{}{},"x":1}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(edited(&deep, |object| object.drop_all(&["x"])).ends_with("]}"));
    }
}
