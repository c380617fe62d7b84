//! The worked examples of payloads.md §10.1, by number, as rulings §2 and §7 change them, and bodies of each API.

use http::HeaderValue;

use super::*;
use crate::option::catalogue::{Preset, SESSION_SOURCES, find};
use crate::option::resolved::{Affinity, OptionSet, RouteOptions};

type Headers = &'static [(&'static str, &'static str)];

const NO_HEADERS: Headers = &[];

fn options(preset: Preset, set: &[(&str, &str)]) -> RouteOptions {
    let pairs = set.iter().map(|(name, text)| {
        let option = find(name).unwrap();
        (option.name, option.kind.parse_text(text).unwrap())
    });
    RouteOptions::resolve(preset, &pairs.collect::<OptionSet>())
}

/// The id and its source, `none` where there is none.
fn found(options: &RouteOptions, headers: Headers, body: &str) -> (String, String) {
    found_at(Api::Other, options, headers, body)
}

fn found_at(api: Api, options: &RouteOptions, headers: Headers, body: &str) -> (String, String) {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
    let peek = Peek::read(body.as_bytes());
    match options.session_sources.search_with(&headers, peek.as_ref(), None, api).found {
        Some(found) => (String::from_utf8(found.id.into_owned()).unwrap(), found.source.to_owned()),
        None => (String::new(), "none".to_owned()),
    }
}

#[test]
fn examples_1_to_14() {
    let rows: [(u32, Headers, &str, &str, &str); 13] = [
        (
            1,
            &[("x-session-id", "c"), ("x-claude-code-session-id", "b")],
            r#"{"metadata":{"session_id":"m"}}"#,
            "b",
            "header.x-claude-code-session-id",
        ),
        (2, &[("x-litellm-session-id", "   "), ("x-session-id", "z")], "", "z", "header.x-session-id"),
        (3, NO_HEADERS, r#"{"metadata":{"session_id":" s1 "}}"#, " s1 ", "body.metadata.session_id"),
        // Changed by rulings §2: `metadata` comes before `litellm_metadata`.
        (
            4,
            NO_HEADERS,
            r#"{"metadata":{"session_id":"m"},"litellm_metadata":{"user_id":"u"}}"#,
            "m",
            "body.metadata.session_id",
        ),
        (5, NO_HEADERS, r#"{"metadata":{"user_id":{"session_id":"abc"}}}"#, "abc", "body.metadata.user_id.session_id"),
        (
            6,
            NO_HEADERS,
            r#"{"metadata":{"user_id":"{\"session_id\":\"j1\"}"}}"#,
            "j1",
            "body.metadata.user_id[json].session_id",
        ),
        (
            7,
            NO_HEADERS,
            r#"{"metadata":{"user_id":"{\"account\":\"a\"}"}}"#,
            r#"{"account":"a"}"#,
            "body.metadata.user_id[plain]",
        ),
        (8, NO_HEADERS, r#"{"metadata":{"session_id":12345}}"#, "12345", "body.metadata.session_id"),
        (9, NO_HEADERS, r#"{"metadata":{"session_id":true,"user_id":7},"user":"bob"}"#, "bob", "body.user"),
        (10, NO_HEADERS, r#"{"user":42}"#, "", "none"),
        (11, NO_HEADERS, r#"{"metadata":{"session_id":" \t"},"user":" "}"#, "", "none"),
        // Changed by rulings §7: `user` is a source by default, and with the preset.
        (12, NO_HEADERS, r#"{"user":"bob"}"#, "bob", "body.user"),
        (14, &[("x-session-id", "h")], "not json", "h", "header.x-session-id"),
    ];
    for preset in [Preset::None, Preset::Openresty] {
        let options = options(preset, &[]);
        for (number, headers, body, id, source) in rows {
            assert_eq!(found(&options, headers, body), (id.to_owned(), source.to_owned()), "example {number}");
        }
    }
}

#[test]
fn example_12_with_the_source_turned_off() {
    for preset in [Preset::None, Preset::Openresty] {
        let options = options(preset, &[("disable_body_user_affinity", "true")]);
        assert_eq!(found(&options, NO_HEADERS, r#"{"user":"bob"}"#).1, "none");
        assert_eq!(found(&options, NO_HEADERS, r#"{"user":"bob","metadata":{"user_id":"u"}}"#).0, "u", "the control");
    }
}

/// That the source becomes `affinity_off` is the dataplane's doing: its tests `hashing` and `turns` hold it.
#[test]
fn example_13_affinity_off_is_an_option() {
    for (name, word) in [("affinity", "off"), ("session_affinity_enabled", "false")] {
        assert_eq!(options(Preset::None, &[(name, word)]).affinity, Affinity::Off);
    }
    assert_ne!(options(Preset::None, &[]).affinity, Affinity::Off, "the control");
}

/// Changed by rulings §7: the number's text is the id (payloads.md §2.1 would have `1.2345678901235e+17`).
#[test]
fn numbers_are_ids_as_they_are_written() {
    for number in ["123456789012345678", "1.50", "-0", "1e999", "12345678901234567890123456789"] {
        let body = format!(r#"{{"metadata":{{"session_id": {number} }}}}"#);
        assert_eq!(found(&options(Preset::None, &[]), NO_HEADERS, &body).0, number);
    }
}

#[test]
fn bodies_of_each_api() {
    let sources = SourceList::new(SESSION_SOURCES, &[]);
    let options = RouteOptions { session_sources: sources, ..RouteOptions::default() };
    for (body, id, source) in [
        // Chat Completions.
        (
            r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]}],"prompt_cache_key":"k"}"#,
            "k",
            "body.prompt_cache_key",
        ),
        (
            r#"{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#,
            r#"[{"type":"text","text":"hi"}]"#,
            "body.first_user_message",
        ),
        // Completions: the prompt is no session.
        (r#"{"model":"m","prompt":"once","user":"u"}"#, "u", "body.user"),
        (r#"{"model":"m","prompt":"once"}"#, "", "none"),
        // Messages, as Claude Code sends its user id.
        (
            r#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"hi"}],"metadata":{"user_id":"user_1_account_2_session_3"}}"#,
            "user_1_account_2_session_3",
            "body.metadata.user_id[plain]",
        ),
        (
            r#"{"model":"m","max_tokens":9,"system":"s","messages":[{"role":"user","content":"hi"}],"metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"3\"}"}}"#,
            "3",
            "body.metadata.user_id[json].session_id",
        ),
        // Embeddings: a text, or a list of them, is no user's message.
        (r#"{"model":"m","input":"some text"}"#, "", "none"),
        (r#"{"model":"m","input":"some text","user":"u"}"#, "u", "body.user"),
        (r#"{"model":"m","input":["some text","more"],"encoding_format":"float"}"#, "", "none"),
        (
            r#"{"model":"m","input":[[1,2],[3]],"litellm_metadata":{"session_id":"l"}}"#,
            "l",
            "body.litellm_metadata.session_id",
        ),
    ] {
        assert_eq!(found(&options, NO_HEADERS, body), (id.to_owned(), source.to_owned()), "{body}");
    }
    for (body, id, source) in [
        (
            r#"{"model":"m","input":"hi","conversation":"conv_1","previous_response_id":"resp_1","user":"u"}"#,
            "conv_1",
            "body.conversation",
        ),
        (
            r#"{"model":"m","input":[{"role":"user","content":"hi"}],"conversation":{"id":"conv_1"},"prompt_cache_key":"k"}"#,
            "conv_1",
            "body.conversation",
        ),
        (
            r#"{"model":"m","input":[{"type":"message","role":"developer","content":"d"},{"type":"message","role":"user","content":"hi"}],"previous_response_id":"resp_1"}"#,
            "\"hi\"",
            "body.first_user_message",
        ),
        (
            r#"{"model":"m","input":"hi","metadata":{"session_id":"s"},"conversation":null}"#,
            "s",
            "body.metadata.session_id",
        ),
    ] {
        let found = found_at(Api::Responses, &options, NO_HEADERS, body);
        assert_eq!(found, (id.to_owned(), source.to_owned()), "{body}");
    }
}
