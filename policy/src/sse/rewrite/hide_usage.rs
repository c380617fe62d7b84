//! The frame with token counts that `include_usage` asked for, on a stream whose client did not (rulings §7).

use memchr::memmem;

use crate::sse::object::Object;

/// Whether a frame is that one: no choice, and a usage. One that tells of an error is the client's to see.
pub(super) fn is_usage_frame(payload: &[u8]) -> bool {
    // Most frames have none.
    if memmem::find(payload, b"\"usage\"").is_none() {
        return false;
    }
    let Some(frame) = simdutf8::basic::from_utf8(payload).ok().and_then(Object::read) else { return false };
    let choices = frame.value_text("choices").unwrap_or_default();
    let has_no_choice = choices
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|rest| rest.trim_ascii().is_empty());
    let has_usage = frame.value_text("usage").is_some_and(|usage| usage.starts_with('{'));
    has_no_choice && has_usage && frame.value("error").is_none()
}
