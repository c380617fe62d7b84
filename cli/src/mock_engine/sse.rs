//! Writes Server-Sent Events (WHATWG HTML, section 9.2) into a byte buffer.
//!
//! The mock has a writer of its own on purpose: were it shared with the router, a bug in it would hide itself.

/// Appends one event whose data is `data`; each line of it becomes a `data:` line.
pub(crate) fn push_data(out: &mut Vec<u8>, data: &str) {
    for line in data.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
    out.push(b'\n');
}

/// Appends one event of type `event`, which holds no line end.
pub(crate) fn push_event(out: &mut Vec<u8>, event: &str, data: &str) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    out.push(b'\n');
    push_data(out, data);
}

/// Appends the end marker of `OpenAI`.
pub(crate) fn push_done(out: &mut Vec<u8>) {
    push_data(out, "[DONE]");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_is_one_data_line_and_a_blank_line() {
        let mut out = Vec::new();
        push_data(&mut out, r#"{"a":1}"#);
        push_done(&mut out);
        assert_eq!(out, b"data: {\"a\":1}\n\ndata: [DONE]\n\n");
    }

    #[test]
    fn a_named_event_starts_with_its_name() {
        let mut out = Vec::new();
        push_event(&mut out, "ping", "{}");
        assert_eq!(out, b"event: ping\ndata: {}\n\n");
    }

    #[test]
    fn lines_of_the_data_are_written_apart() {
        let mut out = Vec::new();
        push_data(&mut out, "one\ntwo");
        assert_eq!(out, b"data: one\ndata: two\n\n");
    }
}
