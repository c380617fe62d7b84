//! Streamed completions are made to end with their token counts (payloads.md §3.4, rulings §7).

use super::top_level::{TopLevel, is_empty};
use crate::body::edit::Edits;
use crate::body::peek;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// No stream, or the client asks by itself.
    NotNeeded,
    Asked,
    /// `stream_options` is neither an object nor null, or its `include_usage` is a list or an object.
    NotPossible,
}

/// Only `stream: true` is a stream, and only the top-level `stream_options` counts.
pub(super) fn edit(top: &TopLevel<'_>, edits: &mut Edits<'_>) -> Outcome {
    if top.stream.is_none_or(|stream| stream.get() != "true") {
        return Outcome::NotNeeded;
    }
    let Some(options) = top.stream_options else {
        let end = top.text.trim_end_matches([' ', '\t', '\n', '\r']).len();
        edits.insert(end.saturating_sub(1), r#","stream_options":{"include_usage":true}"#);
        return Outcome::Asked;
    };
    let place = top.place(options);
    if options.get() == "null" {
        edits.replace(place, r#"{"include_usage":true}"#);
        return Outcome::Asked;
    }
    let Some([include_usage]) = peek::pick(options.get(), ["include_usage"]) else { return Outcome::NotPossible };
    match include_usage.map(|value| (value, value.get().as_bytes().first())) {
        None => {
            let new = if is_empty(options) { r#""include_usage":true"# } else { r#""include_usage":true,"# };
            edits.insert(place.start + 1, new);
            Outcome::Asked
        }
        Some((_, Some(b't'))) => Outcome::NotNeeded,
        Some((_, Some(b'{' | b'['))) => Outcome::NotPossible,
        Some((value, _)) => {
            edits.replace(top.place(value), "true");
            Outcome::Asked
        }
    }
}
