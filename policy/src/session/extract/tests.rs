use http::HeaderValue;

use super::*;
use crate::option::catalogue::SESSION_SOURCES;

fn all() -> SourceList {
    SourceList::new(SESSION_SOURCES, &[])
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

fn found(pairs: &[(&'static str, &'static str)], body: &str) -> Option<(String, String)> {
    let (list, headers) = (all(), headers(pairs));
    let peek = Peek::read(body.as_bytes());
    let found = list.find(&headers, peek.as_ref())?;
    Some((String::from_utf8(found.id.into_owned()).unwrap(), found.source.to_owned()))
}

fn expect(pairs: &[(&'static str, &'static str)], body: &str, id: &str, source: &str) {
    assert_eq!(found(pairs, body), Some((id.to_owned(), source.to_owned())), "{body}");
}

#[test]
fn rulings_2_headers_in_order() {
    expect(&[("x-session-id", "b"), ("x-session-affinity", "a")], "", "a", "header.x-session-affinity");
    expect(&[("x-session-id", "b"), ("x-claude-code-session-id", "c")], "", "c", "header.x-claude-code-session-id");
    expect(&[("x-session-affinity", "  "), ("x-session-id", "b")], "", "b", "header.x-session-id");
    expect(&[("x-session-id", "b")], r#"{"user": "u"}"#, "b", "header.x-session-id");
}

#[test]
fn headers_that_name_no_session() {
    let mut twice = headers(&[("x-session-id", "a")]);
    twice.append("x-session-id", HeaderValue::from_static("b"));
    assert_eq!(all().find(&twice, None), None);
    let at_the_bound = HeaderValue::from_str(&"x".repeat(256)).unwrap();
    let over_it = HeaderValue::from_str(&"x".repeat(257)).unwrap();
    assert!(
        all().find(&HeaderMap::from_iter([(HeaderName::from_static("x-session-id"), at_the_bound)]), None).is_some()
    );
    assert!(all().find(&HeaderMap::from_iter([(HeaderName::from_static("x-session-id"), over_it)]), None).is_none());
}

#[test]
fn rulings_2_body_fields_in_order() {
    let rows = [
        (
            r#"{"metadata": {"session_id": "m"}, "litellm_metadata": {"session_id": "l"}}"#,
            "m",
            "body.metadata.session_id",
        ),
        (
            r#"{"metadata": {"user_id": "p"}, "litellm_metadata": {"session_id": "l"}}"#,
            "l",
            "body.litellm_metadata.session_id",
        ),
        (r#"{"metadata": {"user_id": {"session_id": 7}}}"#, "7", "body.metadata.user_id.session_id"),
        (r#"{"metadata": {"user_id": "{\"session_id\": \"j\"}"}}"#, "j", "body.metadata.user_id[json].session_id"),
        (r#"{"metadata": {"user_id": "{\"x\": 1}"}}"#, "{\"x\": 1}", "body.metadata.user_id[plain]"),
        (r#"{"litellm_metadata": {"user_id": "123"}, "user": "u"}"#, "123", "body.litellm_metadata.user_id[plain]"),
        (r#"{"conversation": "c", "prompt_cache_key": "p", "user": "u"}"#, "c", "body.conversation"),
        (r#"{"conversation": {"id": "c"}, "user": "u"}"#, "c", "body.conversation"),
        (r#"{"user": "u", "prompt_cache_key": "p"}"#, "p", "body.prompt_cache_key"),
        (r#"{"messages": [{"role": "user", "content": "hi"}], "user": "\u00fc"}"#, "ü", "body.user"),
        (
            r#"{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}"#,
            "\"hi\"",
            "body.first_user_message",
        ),
        (r#"{"metadata": {"session_id": 123456789012345678}}"#, "123456789012345678", "body.metadata.session_id"),
    ];
    for (body, id, source) in rows {
        expect(&[], body, id, source);
    }
}

#[test]
fn values_that_name_no_session() {
    for body in [
        "",
        r#"{"messages": [{"role": "user", "content": ""}]}"#,
        r#"{"messages": [{"role": "user", "content": null}]}"#,
        r#"{"input": " \n "}"#,
        "not json",
        "[]",
        "7",
        "{",
        r#"{"user": 7}"#,
        r#"{"user": " \t"}"#,
        r#"{"user": null}"#,
        r#"{"metadata": {"session_id": true}}"#,
        r#"{"metadata": {"user_id": 5}}"#,
        r#"{"metadata": "x"}"#,
        r#"{"metadata": {"user_id": {}}}"#,
        r#"{"messages": []}"#,
        r#"{"messages": [{"role": "assistant", "content": "x"}]}"#,
        r#"{"user": "u"} trailing"#,
        r#"{"user": "\ud800"}"#,
    ] {
        assert_eq!(found(&[], body), None, "{body}");
    }
    let long = format!(r#"{{"user": "{}"}}"#, "x".repeat(257));
    assert_eq!(found(&[], &long), None);
}

#[test]
fn rulings_2_a_blank_or_too_long_id_is_passed_over_and_the_long_one_counted() {
    let long = "x".repeat(257);
    let json_long = format!(r#"{{\"session_id\": \"{long}\"}}"#);
    let rows = [
        // Each body source, with the next one in order to fall back on.
        (format!(r#"{{"metadata": {{"session_id": "{long}"}}, "litellm_metadata": {{"session_id": "n"}}}}"#), 1),
        (format!(r#"{{"metadata": {{"user_id": {{"session_id": "{long}"}}}}, "user": "n"}}"#), 1),
        // The text that holds it is too long as a plain id, too.
        (format!(r#"{{"metadata": {{"user_id": "{json_long}"}}, "user": "n"}}"#), 2),
        (format!(r#"{{"litellm_metadata": {{"user_id": "{long}"}}, "user": "n"}}"#), 1),
        (format!(r#"{{"metadata": {{"session_id": {}}}, "user": "n"}}"#, "7".repeat(257)), 1),
        (format!(r#"{{"conversation": {{"id": "{long}"}}, "prompt_cache_key": "n"}}"#), 1),
        (format!(r#"{{"conversation": "{long}", "prompt_cache_key": "{long}", "user": "n"}}"#), 2),
        (r#"{"metadata": {"session_id": " \t"}, "litellm_metadata": {"session_id": ""}, "user": "n"}"#.to_owned(), 0),
        (r#"{"conversation": {"id": " "}, "prompt_cache_key": "\n", "user": "n"}"#.to_owned(), 0),
        // What stands after the id that counts is not looked at.
        (format!(r#"{{"prompt_cache_key": "n", "user": "{long}"}}"#), 0),
    ];
    for (body, too_long) in &rows {
        let (list, headers) = (all(), HeaderMap::new());
        let peek = Peek::read(body.as_bytes());
        let search = list.search(&headers, peek.as_ref());
        assert_eq!(search.found.unwrap().id.as_ref(), b"n", "{body}");
        assert_eq!(search.too_long, *too_long, "{body}");
    }
    let header = HeaderMap::from_iter([(HeaderName::from_static("x-session-affinity"), long.parse().unwrap())]);
    let peek = Peek::read(br#"{"user": "n"}"#);
    let list = all();
    let search = list.search(&header, peek.as_ref());
    assert_eq!((search.found.unwrap().source, search.too_long), ("body.user", 1));
    // 256 characters are no more than that, however many bytes they take; a message may be longer.
    let at_the_bound = format!(r#"{{"user": "{}"}}"#, "é".repeat(256));
    let message = format!(r#"{{"messages": [{{"role": "user", "content": "{long}"}}]}}"#);
    for body in [at_the_bound, message] {
        let peek = Peek::read(body.as_bytes());
        let headers = HeaderMap::new();
        let search = list.search(&headers, peek.as_ref());
        assert!(search.found.is_some() && search.too_long == 0, "{body}");
    }
}

#[test]
fn extra_headers_come_after_the_header_sources() {
    let list = SourceList::new(&["header.x-session-id", "body.user"], &["x-smg-routing-key".to_owned()]);
    let both = headers(&[("x-smg-routing-key", "k"), ("x-session-id", "s")]);
    assert_eq!(list.find(&both, None).unwrap().source, "header.x-session-id");
    let only = headers(&[("x-smg-routing-key", "k")]);
    let peek = Peek::read(br#"{"user": "u"}"#);
    assert_eq!(list.find(&only, peek.as_ref()).unwrap().source, "header.x-smg-routing-key");
    assert_eq!(list.headers().count(), 2);
    assert!(list.reads_body());
    assert!(!SourceList::new(&["header.x-session-id"], &[]).reads_body());
}

#[test]
fn rulings_2_the_session_priority_header_s_id_comes_between_headers_and_body() {
    let given = || Some(Found { id: Cow::Borrowed(b"given"), source: "header.x-phanrouter-session" });
    let words = ["header.x-session-id", "body.user"];
    let with_headers = SourceList::new(&words, &["x-smg-routing-key".to_owned()]);
    let body_alone = SourceList::new(&["body.user"], &[]);
    let (header, extra, neither) =
        (headers(&[("x-session-id", "s")]), headers(&[("x-smg-routing-key", "k")]), HeaderMap::new());
    let peek = Peek::read(br#"{"user": "u"}"#);
    for (list, headers, given, expected) in [
        (&with_headers, &header, given(), "header.x-session-id"),
        (&with_headers, &extra, given(), "header.x-smg-routing-key"),
        (&with_headers, &neither, given(), "header.x-phanrouter-session"),
        (&with_headers, &neither, None, "body.user"),
        (&body_alone, &header, given(), "header.x-phanrouter-session"),
        (&body_alone, &header, None, "body.user"),
    ] {
        let search = list.search_with(headers, peek.as_ref(), given, Api::Other);
        assert_eq!(search.found.unwrap().source, expected);
    }
}

#[test]
fn rulings_2_input_is_a_user_s_message_in_the_responses_api_alone() {
    let list = all();
    let source = |path: &str, body: &str| {
        let (headers, peek) = (HeaderMap::new(), Peek::read(body.as_bytes()));
        let search = list.search_with(&headers, peek.as_ref(), None, Api::of_path(path));
        search.found.map(|found| (String::from_utf8(found.id.into_owned()).unwrap(), found.source.to_owned()))
    };
    let once = Some(("\"once\"".to_owned(), "body.first_user_message".to_owned()));
    for body in [r#"{"input": "once"}"#, r#"{"input": [{"role": "user", "content": "once"}]}"#] {
        for path in ["/v1/responses", "/v1/responses/", "/v1/responses/input_tokens"] {
            assert_eq!(source(path, body), once, "{path} {body}");
        }
        for path in ["/v1/embeddings", "/v1/moderations", "/v1/audio/speech", "/v1/responsesx", "/v1/completions"] {
            assert_eq!(source(path, body), None, "{path} {body}");
        }
    }
    let messages = r#"{"messages": [{"role": "user", "content": "once"}], "input": "other"}"#;
    assert_eq!(source("/v1/chat/completions", messages), once);
}

#[test]
fn json_in_a_user_id_is_read_up_to_16_kib_and_a_longer_one_is_a_plain_id() {
    let list = all();
    let with_pad = |pad: usize| {
        let inner = format!(r#"{{\"pad\":\"{}\",\"session_id\":\"j\"}}"#, "p".repeat(pad));
        (format!(r#"{{"metadata":{{"user_id":"{inner}"}},"user":"n"}}"#), inner.len())
    };
    let other = with_pad(0).1;
    for (length, id, too_long) in [(16 << 10, "j", 0), ((16 << 10) + 1, "n", 1), (10 << 20, "n", 1)] {
        let (body, is) = with_pad(length - other);
        assert_eq!(is, length);
        let (headers, peek) = (HeaderMap::new(), Peek::read(body.as_bytes()));
        let search = list.search(&headers, peek.as_ref());
        assert_eq!((search.found.unwrap().id.as_ref(), search.too_long), (id.as_bytes(), too_long), "{length}");
    }
}

#[test]
fn an_id_of_256_characters_may_be_all_escapes() {
    let list = all();
    for (count, expected) in [(256, "body.metadata.user_id[plain]"), (257, "body.user")] {
        let body = format!(r#"{{"metadata":{{"user_id":"{}"}},"user":"n"}}"#, r"\ud83d\ude00".repeat(count));
        let (headers, peek) = (HeaderMap::new(), Peek::read(body.as_bytes()));
        assert_eq!(list.find(&headers, peek.as_ref()).unwrap().source, expected);
    }
}
