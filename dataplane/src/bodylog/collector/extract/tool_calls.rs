//! Tool calls, put together from the fragments of a stream (payloads.md §7.2).

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{object, quoted};
use crate::bodylog::collector::json::{self, Members, one_line};

/// Members of a block that tell what it is.
pub(super) const BLOCK: &[&str] = &["text", "thinking", "type"];
const FRAGMENT: &[&str] = &["function", "index"];
const FUNCTION: &[&str] = &["arguments"];
/// In bytes: 64 bits as a decimal number.
const LONGEST_INDEX: usize = 20;

/// All calls of one answer, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct ToolCalls {
    calls: Vec<Call>,
    /// By the index of the choice (empty for a block) and the call's own.
    places: HashMap<(String, String), usize>,
}

/// One call. Members are JSON.
#[derive(Debug, Default)]
struct Call {
    members: IndexMap<String, String>,
    function: IndexMap<String, String>,
    arguments: Option<String>,
    input: String,
}

impl ToolCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// An entry of `tool_calls`: the start of a call, or more of one. Without an index it is a whole call.
    pub(super) fn take_fragment(&mut self, fragment: &RawValue, choice: Option<&RawValue>) {
        let Some(members) = members(fragment) else { return };
        let known = Members::of(fragment, FRAGMENT);
        let choice = choice.and_then(place_of).unwrap_or_else(|| "0".to_owned());
        let call = self.place(known.get("index").and_then(place_of).map(|index| (choice, index)));
        for (name, value) in members {
            if name != "function" {
                keep_first(&mut call.members, name, value);
            }
        }
        for (name, value) in known.get("function").and_then(self::members).unwrap_or_default() {
            if name != "arguments" {
                keep_first(&mut call.function, name, value);
            }
        }
        let arguments = known.object("function", FUNCTION).get("arguments");
        match arguments.map(|value| (value, value.get().starts_with('"'))) {
            Some((value, true)) => call.arguments.get_or_insert_default().extend(json::text(value)),
            // Some engines write an object where a text belongs.
            Some((value, false)) => keep_first(&mut call.function, "arguments".to_owned(), value),
            None => {}
        }
    }

    /// A block that is a call: kept as it is.
    pub(super) fn take_block(&mut self, block: &RawValue, index: Option<&RawValue>) {
        let Some(members) = members(block) else { return };
        let call = self.place(index.and_then(place_of).map(|index| (String::new(), index)));
        for (name, value) in members {
            keep_first(&mut call.members, name, value);
        }
    }

    /// More of the input of a block's call.
    pub(super) fn take_input(&mut self, part: &str, index: Option<&RawValue>) {
        let Some(index) = index.and_then(place_of) else { return };
        let place = self.places.get(&(String::new(), index));
        if let Some(call) = place.and_then(|place| self.calls.get_mut(*place)) {
            call.input.push_str(part);
        }
    }

    /// The array of them; `None` without any.
    pub(super) fn json(&self) -> Option<String> {
        let calls: Vec<String> = self.calls.iter().map(Call::json).collect();
        (!calls.is_empty()).then(|| format!("[{}]", calls.join(",")))
    }

    fn place(&mut self, key: Option<(String, String)>) -> &mut Call {
        let next = self.calls.len();
        let place = key.map_or(next, |key| *self.places.entry(key).or_insert(next));
        if place == next {
            self.calls.push(Call::default());
        }
        // In bounds: it was just made, or found in the map of those that were.
        #[expect(clippy::indexing_slicing, reason = "places hold indices of calls, and calls only grow")]
        &mut self.calls[place]
    }
}

impl Call {
    fn json(&self) -> String {
        let mut members: IndexMap<&str, String> =
            self.members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        if !self.function.is_empty() || self.arguments.is_some() {
            let arguments = self.arguments.as_deref().map(quoted);
            let known = self.function.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            members.insert("function", object(known.chain(arguments.as_deref().map(|text| ("arguments", text)))));
        }
        if !self.input.is_empty() {
            // Cut off in the middle it is no JSON, and stands as the text that came.
            let is_whole = serde_json::from_str::<&RawValue>(&self.input).is_ok();
            members.insert("input", if is_whole { one_line(&self.input) } else { quoted(&self.input) });
        }
        object(members.iter().map(|(name, value)| (*name, value.as_str())))
    }
}

/// An index as a key. What is longer than any number is none: kept for each fragment of an answer, it would fill the memory.
fn place_of(index: &RawValue) -> Option<String> {
    (index.get().len() <= LONGEST_INDEX).then(|| index.get().to_owned())
}

fn members(value: &RawValue) -> Option<IndexMap<String, &RawValue>> {
    serde_json::from_str(value.get()).ok()
}

fn keep_first(kept: &mut IndexMap<String, String>, name: String, value: &RawValue) {
    kept.entry(name).or_insert_with(|| one_line(value.get()));
}
