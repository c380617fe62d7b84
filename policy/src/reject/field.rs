//! The fields that rules speak of, and how those of all rules are found in a body (payloads.md §4.2): it is parsed once, and of
//! that only the fields that rules name are read again, to their own depth.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::cursor::{Cursor, count_chars, inner, unescaped};
use super::number::Number;
use crate::body::peek::without_bom;

/// Names in a path: as deep as conditions may be.
const MAX_PATH: usize = 32;
/// Bytes of a field as written.
const MAX_LENGTH: usize = 512;
/// Letters that may be other ones in what is taken for a slip of the pen.
const MAX_SLIPS: usize = 2;
/// Characters of a field that are compared and repeated.
const SHOWN: usize = 40;

/// What a condition looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    InputBytes,
    InputChars,
    MessagesCount,
    ToolsCount,
    /// Names of objects in objects, at least one.
    Path(Vec<String>),
}

const MEASURES: [(&str, Field); 4] = [
    ("input_bytes", Field::InputBytes),
    ("input_chars", Field::InputChars),
    ("messages_count", Field::MessagesCount),
    ("tools_count", Field::ToolsCount),
];

impl Field {
    /// Reads a field. Beside it: what should not be so, although it can be read.
    pub(super) fn parse(text: &str) -> Result<(Self, Option<String>), String> {
        if let Some((_, measure)) = MEASURES.iter().find(|(name, _)| *name == text) {
            return Ok((measure.clone(), None));
        }
        if text.len() > MAX_LENGTH {
            return Err(format!("{} bytes; allowed: {MAX_LENGTH}", text.len()));
        }
        let path: Vec<String> = text.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if path.is_empty() || path.len() > MAX_PATH {
            return Err(format!("path of {} names; allowed: 1..={MAX_PATH}, with a dot between two", path.len()));
        }
        let has_gaps = path.len() != text.split('.').count();
        let problem = "path with an empty name; allowed: names with one dot between two";
        Ok((Field::Path(path), has_gaps.then(|| problem.to_owned())))
    }
}

/// What is odd about a field that is no measure: it can be there, and most likely never is. `None` for one that is not odd.
pub(super) fn doubt(field: &str) -> Option<String> {
    let Ok((Field::Path(path), _)) = Field::parse(field) else { return None };
    if let Some(name) = path.iter().find(|name| is_place(name)) {
        let name = name.chars().take(SHOWN).collect::<String>();
        return Some(format!(
            "a path goes through objects, not into lists: '{name}' is no place in one, and so absent"
        ));
    }
    let plain = |text: &str| {
        let letters = text.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' '));
        letters.flat_map(char::to_lowercase).take(SHOWN).collect::<String>()
    };
    let written = plain(field);
    let near = |name: &&str| strsim::osa_distance(&plain(name), &written) <= MAX_SLIPS;
    let near = MEASURES.iter().map(|(name, _)| *name).find(near)?;
    Some(format!("a name of the body, and not the measure {near}: is that meant?"))
}

/// Whether a name looks like a place in a list: `0`, `messages[0]`.
fn is_place(name: &str) -> bool {
    let digits = name.strip_suffix(']').and_then(|rest| rest.split_once('[')).map_or(name, |(_, digits)| digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Path(path) => f.write_str(&path.join(".")),
            measure => f.write_str(MEASURES.iter().find(|(_, known)| known == measure).map_or("", |(name, _)| name)),
        }
    }
}

/// What a body has in a field.
#[derive(Debug, Clone, Default)]
pub(super) enum Found<'b> {
    #[default]
    Absent,
    Null,
    Bool(bool),
    /// With its text.
    Number(Number<'b>, Cow<'b, str>),
    Text(Text<'b>),
    /// A list or an object, as it stands.
    Structure(&'b str),
}

/// A string of a body.
#[derive(Debug, Clone)]
pub(super) struct Text<'b> {
    /// With its quotes.
    raw: &'b str,
    /// What it stands for; made once, and only if something compares it.
    bytes: OnceCell<Cow<'b, [u8]>>,
}

impl<'b> Text<'b> {
    fn new(raw: &'b str) -> Self {
        Self { raw, bytes: OnceCell::new() }
    }

    /// What it stands for.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| unescaped(inner(self.raw)))
    }
}

impl<'b> Found<'b> {
    fn count(count: u64) -> Self {
        Self::Number(Number::from(count), Cow::Owned(count.to_string()))
    }

    fn scalar(raw: &'b str) -> Self {
        match raw.as_bytes().first() {
            Some(b'"') => Self::Text(Text::new(raw)),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') => Self::Null,
            Some(_) => Self::Number(Number::read(raw), Cow::Borrowed(raw)),
            None => Self::Absent,
        }
    }

    /// As the body has it; `None` when it is absent.
    pub(super) fn json(&self) -> Option<Cow<'b, str>> {
        Some(match self {
            Self::Absent => return None,
            Self::Null => Cow::Borrowed("null"),
            Self::Bool(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
            Self::Number(_, text) => text.clone(),
            Self::Text(text) => Cow::Borrowed(text.raw),
            Self::Structure(raw) => Cow::Borrowed(raw),
        })
    }
}

/// Which fields the rules of a route need, each in a slot of its own.
#[derive(Debug, Default)]
pub(super) struct Plan {
    root: Branch,
    /// In order of slot.
    fields: Vec<Field>,
}

/// A value of the body that is looked at.
#[derive(Debug, Default)]
struct Branch {
    /// Slot of the value itself.
    value: Option<usize>,
    /// Slot of its length, when it is a list.
    length: Option<usize>,
    /// Slot of the characters of its messages, when it is a list.
    chars: Option<usize>,
    /// Its own values that are looked at, in order of name.
    members: Vec<(String, Branch)>,
}

impl Plan {
    /// The slot of a field.
    pub(super) fn slot(&mut self, field: &Field) -> usize {
        if let Some(known) = self.fields.iter().position(|known| known == field) {
            return known;
        }
        let slot = self.fields.len();
        self.fields.push(field.clone());
        match field {
            Field::InputBytes => {}
            Field::InputChars => self.root.member("messages").chars = Some(slot),
            Field::MessagesCount => self.root.member("messages").length = Some(slot),
            Field::ToolsCount => self.root.member("tools").length = Some(slot),
            Field::Path(path) => {
                path.iter().fold(&mut self.root, |branch, name| branch.member(name)).value = Some(slot);
            }
        }
        slot
    }

    /// Finds every field, in order of slot; `None` unless the body is one JSON object or list in UTF-8. A list has no fields.
    pub(super) fn find<'b>(&self, body: &'b [u8]) -> Option<Vec<Found<'b>>> {
        let json = without_bom(body);
        let first = *json.trim_ascii_start().first()?;
        // Uploads of other kinds are not even looked through.
        if first != b'{' && first != b'[' {
            return None;
        }
        let text = simdutf8::basic::from_utf8(json).ok()?;
        let mut found: Vec<Found<'b>> = Vec::new();
        found.resize_with(self.fields.len(), Found::default);
        for (slot, field) in found.iter_mut().zip(&self.fields) {
            if !matches!(field, Field::Path(_)) {
                *slot = Found::count(if *field == Field::InputBytes { body.len() as u64 } else { 0 });
            }
        }
        let mut json = serde_json::Deserializer::from_str(text);
        if first == b'{' {
            let members = json.deserialize_map(RootVisitor(&self.root)).ok()?;
            for ((_, branch), raw) in self.root.members.iter().zip(members) {
                if let Some(raw) = raw {
                    branch.walk(&mut Cursor::new(raw), &mut found);
                }
            }
        } else {
            IgnoredAny::deserialize(&mut json).ok()?;
        }
        json.end().ok()?;
        Some(found)
    }
}

impl Branch {
    fn member(&mut self, name: &str) -> &mut Branch {
        let place = match self.members.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(place) => place,
            Err(place) => {
                self.members.insert(place, (name.to_owned(), Branch::default()));
                place
            }
        };
        #[expect(clippy::indexing_slicing, reason = "found or inserted there")]
        &mut self.members[place].1
    }

    /// The place of a member, by its name.
    fn place(&self, name: &[u8]) -> Option<usize> {
        self.members.binary_search_by(|(known, _)| known.as_bytes().cmp(name)).ok()
    }

    /// Each branch is walked once at most: members are looked into when the last of each name is known.
    fn walk<'b>(&self, cursor: &mut Cursor<'b>, found: &mut [Found<'b>]) {
        let kind = cursor.kind();
        let mut start = cursor.clone();
        match kind {
            b'{' if !self.members.is_empty() => {
                let mut members: Vec<Option<Cursor<'b>>> = vec![None; self.members.len()];
                cursor.object(|cursor, name| {
                    let member = self.place(&unescaped(name)).and_then(|place| members.get_mut(place));
                    if let Some(member) = member {
                        *member = Some(cursor.clone());
                    }
                    cursor.value();
                });
                for ((_, branch), member) in self.members.iter().zip(members) {
                    if let Some(mut member) = member {
                        branch.walk(&mut member, found);
                    }
                }
            }
            b'[' if self.length.is_some() || self.chars.is_some() => {
                let (mut length, mut chars) = (0, 0);
                cursor.list(|item| {
                    length += 1;
                    match self.chars {
                        Some(_) => chars += message_chars(item),
                        None => drop(item.value()),
                    }
                });
                put(found, self.length, Found::count(length));
                put(found, self.chars, Found::count(chars));
            }
            _ => drop(cursor.value()),
        }
        if self.value.is_some() {
            let value = if matches!(kind, b'{' | b'[') {
                Found::Structure(start.until(cursor))
            } else {
                Found::scalar(start.value())
            };
            put(found, self.value, value);
        }
    }
}

fn put<'b>(found: &mut [Found<'b>], slot: Option<usize>, value: Found<'b>) {
    if let Some(place) = slot.and_then(|slot| found.get_mut(slot)) {
        *place = value;
    }
}

/// The characters of a message's content.
fn message_chars(message: &mut Cursor<'_>) -> u64 {
    let mut chars = 0;
    message.object(|cursor, name| {
        if unescaped(name).as_ref() == b"content" {
            chars = content_chars(cursor);
        } else {
            cursor.value();
        }
    });
    chars
}

/// Those of a string, or of the strings of its parts: `text` of an object, else its `content`.
fn content_chars(content: &mut Cursor<'_>) -> u64 {
    if content.kind() != b'[' {
        return string_chars(content.value()).unwrap_or(0);
    }
    let mut chars = 0;
    content.list(|part| {
        if part.kind() != b'{' {
            chars += string_chars(part.value()).unwrap_or(0);
            return;
        }
        let (mut text, mut other) = (None, None);
        part.object(|cursor, name| {
            let value = cursor.value();
            match unescaped(name).as_ref() {
                b"text" => text = string_chars(value),
                b"content" => other = string_chars(value),
                _ => {}
            }
        });
        chars += text.or(other).unwrap_or(0);
    });
    chars
}

/// `None` for what is no string.
fn string_chars(value: &str) -> Option<u64> {
    value.starts_with('"').then(|| count_chars(inner(value)))
}

/// Reads the top level: the text of each member that is looked at, the last one of a name.
struct RootVisitor<'p>(&'p Branch);

impl<'de> Visitor<'de> for RootVisitor<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = vec![None; self.0.members.len()];
        while let Some(place) = map.next_key_seed(NameSeed(self.0))? {
            match place.and_then(|place| members.get_mut(place)) {
                Some(member) => *member = Some(map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(members)
    }
}

/// Maps a name to its place without copying it. As bytes, so that a name with half a surrogate pair is one as well.
struct NameSeed<'p>(&'p Branch);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.place(name))
    }
}
