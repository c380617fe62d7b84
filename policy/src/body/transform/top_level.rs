//! The fields of a body that transforms look at.

use std::ops::Range;

use serde_json::value::RawValue;

use crate::body::{edit, peek};

/// A body that is one JSON object, and its top-level fields. Of a field that stands twice the last counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopLevel<'t> {
    pub(super) text: &'t str,
    pub(super) model: Option<&'t RawValue>,
    pub(super) stream: Option<&'t RawValue>,
    pub(super) stream_options: Option<&'t RawValue>,
    pub(super) messages: Option<&'t RawValue>,
    pub(super) system: Option<&'t RawValue>,
}

impl<'t> TopLevel<'t> {
    /// `None` unless the body is one JSON object in UTF-8.
    pub(super) fn read(body: &'t [u8]) -> Option<Self> {
        let text = simdutf8::basic::from_utf8(body).ok()?;
        let names = ["model", "stream", "stream_options", "messages", "system"];
        let [model, stream, stream_options, messages, system] = peek::pick(text, names)?;
        Some(Self { text, model, stream, stream_options, messages, system })
    }

    /// Where a value of the body stands in it.
    pub(super) fn place(&self, value: &RawValue) -> Range<usize> {
        edit::place(self.text, value.get())
    }
}

/// Whether a list or an object has nothing in it.
pub(super) fn is_empty(container: &RawValue) -> bool {
    let raw = container.get();
    raw.get(1..raw.len().saturating_sub(1)).is_some_and(|inner| inner.trim_matches([' ', '\t', '\n', '\r']).is_empty())
}
