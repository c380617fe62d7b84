//! What an answer says: its text, its reasoning, its tool calls and its usage, out of JSON or of a stream of events
//! (payloads.md §7.2). Works on whatever was kept of an answer: what can't be read is skipped.

mod tool_calls;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::json::{self, Members, one_line};
use tool_calls::{BLOCK, ToolCalls};

/// Members of an answer or an event, of `OpenAI`'s APIs and of Anthropic's.
const TOP: &[&str] = &[
    "actual_usage",
    "choices",
    "content",
    "content_block",
    "delta",
    "error",
    "id",
    "index",
    "message",
    "model",
    "output",
    "response",
    "stop_reason",
    "type",
    "usage",
];
const CHOICE: &[&str] = &["delta", "finish_reason", "index", "message", "stop_reason", "text"];
/// Members of a delta, a message or a content block.
const PART: &[&str] = &[
    "content",
    "partial_json",
    "reasoning",
    "reasoning_content",
    "stop_reason",
    "text",
    "thinking",
    "tool_calls",
    "type",
];
/// Names of reasoning, the usual one first: an engine that writes several writes the same under each.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// What an answer says. Values that are not texts stay JSON.
#[derive(Debug, Default)]
pub(crate) struct Extracted {
    /// All text, joined.
    pub(crate) text: String,
    reasoning: String,
    id: Option<String>,
    model: Option<String>,
    finish_reason: Option<String>,
    stop_reason: Option<String>,
    error: Option<String>,
    actual_usage: Option<String>,
    usage: IndexMap<String, String>,
    tool_calls: ToolCalls,
}

impl Extracted {
    /// Reads an answer: as one JSON object, else as lines of an event stream.
    pub(crate) fn read(body: &[u8]) -> Self {
        let mut all = Self::default();
        if let Some(object) = Members::read(body, TOP) {
            all.take(&object);
        }
        if all.text.is_empty() && all.reasoning.is_empty() && all.error.is_none() {
            for line in body.split(|byte| *byte == b'\n') {
                let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { continue };
                if let Some(event) = Members::read(data, TOP) {
                    all.take(&event);
                }
            }
        }
        all
    }

    /// Whether it was an answer at all. Otherwise it is kept as it came.
    pub(crate) fn is_answer(&self) -> bool {
        let is_said = !self.text.is_empty() || !self.reasoning.is_empty() || !self.tool_calls.is_empty();
        is_said || self.error.is_some() || self.finish_reason.is_some() || self.stop_reason.is_some()
    }

    /// Token counts.
    pub(crate) fn usage(&self) -> Option<String> {
        (!self.usage.is_empty()).then(|| object(self.usage.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
    }

    /// The model that answered.
    pub(crate) fn model(&self) -> Option<String> {
        self.model.as_deref().and_then(as_text)
    }

    /// Why the answer ended, in the words of its API.
    pub(crate) fn finish_reason(&self) -> Option<String> {
        [&self.finish_reason, &self.stop_reason].into_iter().flatten().find_map(|reason| as_text(reason))
    }

    /// `resp_meta`: only what is there.
    pub(crate) fn meta(&self) -> String {
        let reasoning = (!self.reasoning.is_empty()).then(|| quoted(&self.reasoning));
        let members = [
            ("id", self.id.clone()),
            ("finish_reason", self.finish_reason.clone()),
            ("model", self.model.clone()),
            ("usage", self.usage()),
            ("actual_usage", self.actual_usage.clone()),
            ("tool_calls", self.tool_calls.json()),
            ("reasoning", reasoning),
            ("stop_reason", self.stop_reason.clone()),
            ("error", self.error.clone()),
        ];
        object(members.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))))
    }

    fn take(&mut self, event: &Members<'_>) {
        self.take_origin(event);
        for nested in ["message", "response"] {
            // Events that open or close a stream of Messages or Responses hold the answer as it is then.
            self.take_origin(&event.object(nested, TOP));
        }
        for choice in event.items("choices") {
            self.take_choice(&Members::of(choice, CHOICE));
        }
        match event.get("delta") {
            Some(delta) if delta.get().starts_with('"') => self.take_text_delta(event, delta),
            Some(delta) => self.take_part(&Members::of(delta, PART), event.get("index")),
            None => {}
        }
        if let Some(block) = event.get("content_block") {
            self.take_block(block, event.get("index"));
        }
        for block in event.items("content") {
            self.take_block(block, None);
        }
        self.take_output(event);
    }

    /// What says whose answer it is, what it cost, and how it ended.
    fn take_origin(&mut self, event: &Members<'_>) {
        keep_first(&mut self.id, event.get("id"));
        keep_first(&mut self.model, event.get("model"));
        keep_first(&mut self.error, event.get("error"));
        keep_last(&mut self.stop_reason, event.get("stop_reason"));
        keep_last(&mut self.actual_usage, event.get("actual_usage"));
        let usage = event.get("usage").map(RawValue::get);
        let usage: Option<IndexMap<String, &RawValue>> = usage.and_then(|usage| serde_json::from_str(usage).ok());
        // By member: a stream of Messages tells the prompt's tokens first and the answer's last.
        for (name, value) in usage.into_iter().flatten() {
            self.usage.insert(name, one_line(value.get()));
        }
    }

    fn take_choice(&mut self, choice: &Members<'_>) {
        keep_last(&mut self.finish_reason, choice.get("finish_reason"));
        keep_last(&mut self.stop_reason, choice.get("stop_reason"));
        self.text.extend(choice.text("text"));
        for name in ["delta", "message"] {
            let part = choice.object(name, PART);
            self.take_part(&part, None);
            for call in part.items("tool_calls") {
                self.tool_calls.take_fragment(call, choice.get("index"));
            }
        }
    }

    fn take_part(&mut self, part: &Members<'_>, block: Option<&RawValue>) {
        self.text.extend(part.text("text"));
        match part.get("content") {
            Some(content) if content.get().starts_with('[') => {
                for block in json::items(content) {
                    self.take_block(block, None);
                }
            }
            Some(content) => self.text.extend(json::text(content)),
            None => {}
        }
        self.reasoning.extend(REASONING.iter().find_map(|name| part.text(name)));
        keep_last(&mut self.stop_reason, part.get("stop_reason"));
        if let Some(json) = part.text("partial_json") {
            self.tool_calls.take_input(&json, block);
        }
    }

    /// One block of a message; `index` joins it with what comes after it in a stream.
    fn take_block(&mut self, block: &RawValue, index: Option<&RawValue>) {
        let part = Members::of(block, BLOCK);
        if let Some("tool_use" | "server_tool_use") = part.text("type").as_deref() {
            self.tool_calls.take_block(block, index);
        } else {
            self.text.extend(part.text("text"));
            self.reasoning.extend(part.text("thinking"));
        }
    }

    /// A stream of Responses names the kind of text in the event's type.
    fn take_text_delta(&mut self, event: &Members<'_>, delta: &RawValue) {
        let kind = event.text("type").unwrap_or_default();
        if kind == "response.output_text.delta" {
            self.text.extend(json::text(delta));
        } else if kind.starts_with("response.reasoning") {
            self.reasoning.extend(json::text(delta));
        }
    }

    /// The whole answer of Responses. At the end of a stream it holds again the texts that came before, but the tool calls
    /// only there.
    fn take_output(&mut self, event: &Members<'_>) {
        let is_end = event.text("type").as_deref() == Some("response.completed");
        let output = if is_end { event.object("response", TOP).items("output") } else { event.items("output") };
        for item in output {
            let part = Members::of(item, PART);
            match part.text("type").as_deref() {
                Some("function_call" | "custom_tool_call") => self.tool_calls.take_block(item, None),
                _ if !is_end => self.take_part(&part, None),
                _ => {}
            }
        }
    }
}

fn keep_first(kept: &mut Option<String>, value: Option<&RawValue>) {
    if kept.is_none() {
        keep_last(kept, value);
    }
}

fn keep_last(kept: &mut Option<String>, value: Option<&RawValue>) {
    if let Some(value) = value.filter(|value| value.get() != "\"\"") {
        *kept = Some(one_line(value.get()));
    }
}

fn as_text(json: &str) -> Option<String> {
    serde_json::from_str(json).ok().filter(|text: &String| !text.is_empty())
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    // A text can always be written as JSON.
    serde_json::to_string(text).unwrap_or_default()
}

/// An object of members that are JSON already.
pub(crate) fn object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (name, value) in members {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&quoted(name));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests;
