//! Tool call ids of Kimi models become what the model itself writes: `functions.<name>:<number>` (payloads.md §3.3).

use std::borrow::Cow;
use std::collections::HashMap;

use super::KimiStrategy;
use super::look::Look;
use super::string_fields::StringFields;
use super::top_level::TopLevel;
use crate::body::edit::Edits;
use crate::body::peek;

const MODELS: [&str; 6] =
    ["kimi-k2.5", "kimi-k2.6", "Kimi-K2.5", "Kimi-K2.6", "moonshotai/kimi-k2.5", "moonshotai/kimi-k2.6"];

/// The longest number of an id that counts as one, in digits: any number of so many is exact in the reference, too.
const MAX_DIGITS: usize = 15;

/// Replaces ids, all in one pass: one that equals another's new id is not replaced twice. How many were replaced.
pub(super) fn edit(top: &TopLevel<'_>, strategy: KimiStrategy, edits: &mut Edits<'_>) -> u64 {
    let model = top.model.and_then(peek::string);
    if !model.is_some_and(|model| MODELS.contains(&model.as_ref())) {
        return 0;
    }
    let ids = new_ids(calls(top), strategy);
    if ids.is_empty() {
        return 0;
    }
    let mut replaced = 0;
    for field in StringFields::of(top.text) {
        if edits.is_too_long() {
            break;
        }
        if !(field.is_named("id") || field.is_named("tool_call_id")) {
            continue;
        }
        let quoted = top.text.get(field.value.start - 1..=field.value.end).unwrap_or_default();
        if let Some(new) = peek::quoted(quoted).and_then(|old| ids.get(&old)) {
            edits.replace(field.value, new.text());
            replaced += 1;
        }
    }
    replaced
}

/// A tool call whose id may be replaced.
#[derive(Debug)]
struct Call<'t> {
    /// Its place among the conversation's tool calls; those whose ids may not be replaced have places, too.
    position: u64,
    id: Cow<'t, str>,
    name: Cow<'t, str>,
    /// Empty unless it is a string.
    arguments: Cow<'t, str>,
}

/// The calls of all messages, in order.
fn calls<'t>(top: &TopLevel<'t>) -> Vec<Call<'t>> {
    let mut calls = Vec::new();
    let mut position = 0;
    let Some(messages) = top.messages else { return calls };
    let look = Look::new("tool_calls");
    peek::each_item(messages, |message| {
        let list = if look.may_find(message.get()) { peek::field(message, "tool_calls") } else { None };
        list.and_then(|list| {
            peek::each_item(list, |entry| {
                if entry.get().starts_with('{') {
                    calls.extend(Call::read(entry.get(), position));
                    position += 1;
                }
            })
        });
    });
    calls
}

impl<'t> Call<'t> {
    fn read(entry: &'t str, position: u64) -> Option<Self> {
        let [id, function] = peek::pick(entry, ["id", "function"])?;
        let [name, arguments] = peek::pick(function?.get(), ["name", "arguments"])?;
        let (id, name) = (peek::string(id?)?, peek::string(name?)?);
        let is_id = id.bytes().any(|c| !matches!(c, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c));
        let is_name =
            !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-'));
        let arguments = arguments.and_then(peek::string).unwrap_or_default();
        (is_id && is_name).then_some(Self { position, id, name, arguments })
    }

    /// The number of an id that is its function's already.
    fn number(&self) -> Option<u64> {
        let digits = self.id.strip_prefix("functions.")?.strip_prefix(self.name.as_ref())?.strip_prefix(':')?;
        let is_number = digits.bytes().all(|c| c.is_ascii_digit()) && digits.len() <= MAX_DIGITS;
        if is_number { digits.parse().ok() } else { None }
    }

    fn content_number(&self) -> u64 {
        let mut crc = crc32fast::Hasher::new();
        for part in [self.name.as_bytes(), b"\x01", self.arguments.as_bytes()] {
            crc.update(part);
        }
        1_000_000 + u64::from(crc.finalize() % 1_000_000)
    }
}

/// What an id is replaced by; written where it is put in, since one may be put in often.
#[derive(Debug)]
struct NewId<'t> {
    name: Cow<'t, str>,
    number: u64,
}

impl NewId<'_> {
    fn text(&self) -> String {
        format!("functions.{}:{}", self.name, self.number)
    }
}

/// The ids to replace. Of calls that share an id the first that would change it decides.
fn new_ids(calls: Vec<Call<'_>>, strategy: KimiStrategy) -> HashMap<Cow<'_, str>, NewId<'_>> {
    let last = calls.len().checked_sub(1);
    let largest = calls.iter().filter_map(Call::number).max();
    let mut next = 0_u64;
    let mut ids = HashMap::new();
    for (at, call) in calls.into_iter().enumerate() {
        let place = u64::try_from(at).unwrap_or(u64::MAX);
        let number = match strategy {
            KimiStrategy::Rerank => call.position,
            KimiStrategy::Hash => call.content_number(),
            KimiStrategy::RerankMaxlast if Some(at) == last => largest.unwrap_or(place),
            KimiStrategy::RerankMaxlast => place,
            KimiStrategy::Keepinc => {
                let kept = call.number().filter(|number| *number >= next);
                let number = kept.unwrap_or(next);
                next = number.saturating_add(1);
                if kept.is_some() {
                    continue;
                }
                number
            }
        };
        let new = NewId { name: call.name, number };
        if new.text() != call.id {
            ids.entry(call.id).or_insert(new);
        }
    }
    ids
}
