//! The row of one request without its bodies (payloads.md §7.4): what queries, minutes and metrics are made of.

use serde::{Deserialize, Serialize};

use super::json::Members;
use super::record::tokens;

/// Longest text in a row, in bytes: names come out of bodies and may be of any length.
const LONGEST_TEXT: usize = 512;
/// Longest path with its query.
const LONGEST_URI: usize = 2048;

const USAGE: &[&str] = &[
    "cache_read_input_tokens",
    "completion_tokens",
    "completion_tokens_details",
    "input_tokens",
    "input_tokens_details",
    "output_tokens",
    "output_tokens_details",
    "prompt_tokens",
    "prompt_tokens_details",
    "reasoning_tokens",
    "total_tokens",
];
const USAGE_DETAILS: &[&str] = &["cached_tokens", "reasoning_tokens"];

/// One row. Times in seconds, sizes in bytes; empty texts and an unknown `stream` are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) ts: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) ts_end: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) request_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) source_addr: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uri: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<bool>,
    pub(crate) status: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) peer: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) forwarded_to: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) backend: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) mode: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) session_src: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) route: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) key_id: String,
    /// The gate that refused, or `rule:` and the rule's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) refused: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) finish_reason: String,
    /// From the start to the first chunk.
    pub(crate) frt: f64,
    /// From the start to the last chunk.
    pub(crate) lct: f64,
    pub(crate) rt: f64,
    pub(crate) chunk_count: u64,
    pub(crate) req_bytes: u64,
    pub(crate) resp_bytes: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) total_tokens: u64,
    pub(crate) reasoning_tokens: u64,
    /// Of the stored answer: what minutes count.
    #[serde(skip)]
    pub(crate) stored_resp_bytes: u64,
    /// The model is the one that the client asked for, as the answer names none: it may be anything.
    #[serde(skip)]
    pub(crate) model_is_asked: bool,
}

impl Details {
    /// The line of the details file, with its line end.
    pub(crate) fn line(&self) -> Vec<u8> {
        // Texts and finite numbers can always be written as JSON.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Reads token counts, in whichever API's words.
    pub(super) fn take_usage(&mut self, usage: Option<&str>) {
        let usage = usage.and_then(|usage| Members::read(usage.as_bytes(), USAGE)).unwrap_or_default();
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| usage.number(name)).map(tokens);
        let inside = |names: [&str; 2], name: &str| {
            names.into_iter().find_map(|object| usage.object(object, USAGE_DETAILS).number(name)).map(tokens)
        };
        self.prompt_tokens = first(["prompt_tokens", "input_tokens"]).unwrap_or(0);
        self.completion_tokens = first(["completion_tokens", "output_tokens"]).unwrap_or(0);
        self.total_tokens =
            usage.number("total_tokens").map_or(self.prompt_tokens.saturating_add(self.completion_tokens), tokens);
        self.cached_tokens = inside(["prompt_tokens_details", "input_tokens_details"], "cached_tokens")
            .or_else(|| usage.number("cache_read_input_tokens").map(tokens))
            .unwrap_or(0);
        self.reasoning_tokens = inside(["completion_tokens_details", "output_tokens_details"], "reasoning_tokens")
            .or_else(|| usage.number("reasoning_tokens").map(tokens))
            .unwrap_or(0);
    }

    /// Cuts what is too long for a row.
    pub(super) fn shorten(&mut self) {
        cut(&mut self.uri, LONGEST_URI);
        for text in [
            &mut self.ts,
            &mut self.request_id,
            &mut self.method,
            &mut self.peer,
            &mut self.forwarded_to,
            &mut self.backend,
            &mut self.mode,
            &mut self.session_src,
            &mut self.route,
            &mut self.key_id,
            &mut self.refused,
            &mut self.model,
            &mut self.finish_reason,
        ] {
            cut(text, LONGEST_TEXT);
        }
    }
}

fn cut(text: &mut String, longest: usize) {
    text.truncate(text.floor_char_boundary(longest));
}

/// The backend that answered: what the next router names, without scheme and path, else the peer.
pub(super) fn backend(forwarded_to: Option<&str>, peer: Option<&str>) -> String {
    let named = forwarded_to.map(|url| {
        let address = url.split_once("://").map_or(url, |(_, address)| address);
        address.split('/').next().unwrap_or_default()
    });
    named.filter(|address| !address.is_empty()).or(peer).unwrap_or("(none)").to_owned()
}

/// Whether a request asks for a stream: the first `stream` that is a name in an object and says true or false. The text
/// may be cut off, so it is not parsed.
pub(super) fn is_stream(request: &str) -> Option<bool> {
    const NAME: &str = "\"stream\"";
    request.match_indices(NAME).find_map(|(at, _)| {
        let (before, rest) = request.split_at_checked(at)?;
        // A name has a brace or a comma before it; the space between is as wide as the client likes, within reason.
        let before = before.get(before.floor_char_boundary(before.len().saturating_sub(256))..)?;
        let is_name = before.trim_end_matches(is_space).ends_with(['{', ',']);
        let value = rest.get(NAME.len()..)?;
        let value = value.get(..value.floor_char_boundary(256)).unwrap_or(value).trim_start_matches(is_space);
        let value = value.strip_prefix(':')?.trim_start_matches(is_space);
        let literal = [("true", true), ("false", false)].into_iter().find(|(word, _)| value.starts_with(word));
        literal.filter(|_| is_name).map(|(_, is_stream)| is_stream)
    })
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_10_5_row_52_backend() {
        assert_eq!(backend(Some("http://10.0.0.5:8000/x"), Some("10.0.0.9:80")), "10.0.0.5:8000");
        assert_eq!(backend(None, Some("10.0.0.9:80 (retry#1)")), "10.0.0.9:80 (retry#1)");
        assert_eq!(backend(Some(""), None), "(none)");
        assert_eq!(backend(Some("node-3"), None), "node-3");
    }

    #[test]
    fn payloads_10_5_row_56_stream() {
        assert_eq!(is_stream(r#"{"stream":true}"#), Some(true));
        assert_eq!(is_stream(r#"{"stream_options":{}}"#), None);
        assert_eq!(is_stream(r#"{"content":"say {\"stream\":true} to it"}"#), None);
        assert_eq!(is_stream("{\n  \"a\": \"stream\",\n  \"stream\" : false, \"stream\": true}"), Some(false));
        assert_eq!(is_stream(r#"{"stream": "true"}"#), None);
        assert_eq!(is_stream(r#"{"stream""#), None);
        assert_eq!(is_stream(""), None);
    }

    #[test]
    fn tokens_are_read_in_the_words_of_each_api() {
        let read = |usage: &str| {
            let mut details = Details::default();
            details.take_usage(Some(usage));
            let d = &details;
            [d.prompt_tokens, d.completion_tokens, d.cached_tokens, d.total_tokens, d.reasoning_tokens]
        };
        let chat = r#"{"prompt_tokens":9,"completion_tokens":4,"total_tokens":14,
            "prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":3}}"#;
        assert_eq!(read(chat), [9, 4, 8, 14, 3]);
        assert_eq!(read(r#"{"input_tokens":9,"output_tokens":4,"cache_read_input_tokens":5}"#), [9, 4, 5, 13, 0]);
        let responses = r#"{"input_tokens":9,"output_tokens":4,"input_tokens_details":{"cached_tokens":2},
            "output_tokens_details":{"reasoning_tokens":1}}"#;
        assert_eq!(read(responses), [9, 4, 2, 13, 1]);
        assert_eq!(read(r#"{"prompt_tokens":1,"reasoning_tokens":2}"#), [1, 0, 0, 1, 2]);
        let hostile = r#"{"prompt_tokens":1e300,"completion_tokens":-4,"total_tokens":"9","prompt_tokens_details":[]}"#;
        assert_eq!(read(hostile), [0; 5]);
        assert_eq!(read("[]"), [0; 5]);
    }

    #[test]
    fn a_row_leaves_out_what_is_empty_and_cuts_what_is_long() {
        let mut details = Details { model: "é".repeat(1 << 20), ..Details::default() };
        details.shorten();
        assert_eq!(details.model.len(), 512);
        details.model.clear();
        let line = String::from_utf8(details.line()).unwrap();
        assert_eq!(
            line,
            "{\"status\":0,\"frt\":0.0,\"lct\":0.0,\"rt\":0.0,\"chunk_count\":0,\"req_bytes\":0,\"resp_bytes\":0,\
             \"prompt_tokens\":0,\"completion_tokens\":0,\"cached_tokens\":0,\"total_tokens\":0,\"reasoning_tokens\":0}\n"
        );
    }
}
