//! The billing marker at the start of prompts, whose hash changes with every turn, is taken off (payloads.md §3.2, rulings §7).

use super::string_fields::StringFields;
use super::top_level::TopLevel;
use crate::body::edit::Edits;

/// How a marker starts.
pub(super) const MARKER: &str = "x-anthropic-billing-header:";

/// Its parts; each ends with a semicolon.
const PARTS: [&str; 3] = ["cc_version=", "cc_entrypoint=", "cch="];

/// Takes markers off every `content` and `text` string at any depth and off a top-level `system` string. Whether any was.
pub(super) fn edit(top: &TopLevel<'_>, edits: &mut Edits<'_>) -> bool {
    let mut is_changed = false;
    let system = top.system.map(|system| top.place(system).start + 1);
    for field in StringFields::of(top.text) {
        let value = top.text.get(field.value.clone()).unwrap_or_default();
        let Some(length) = marker_length(value) else { continue };
        if field.is_named("content") || field.is_named("text") || system == Some(field.value.start) {
            edits.remove(field.value.start..field.value.start + length);
            is_changed = true;
        }
    }
    is_changed
}

/// How many bytes the marker has that this string starts with. The string is raw, as it stands in the body: a marker that
/// is written with escapes is none.
fn marker_length(value: &str) -> Option<usize> {
    let mut rest = value.strip_prefix(MARKER)?;
    for part in PARTS {
        let after = rest.trim_start_matches(' ').strip_prefix(part)?;
        let end = after.find([';', '"'])?;
        rest = after.get(end..)?.strip_prefix(';')?;
    }
    Some(value.len() - rest.len())
}
