use super::*;

#[test]
fn fields_are_borrowed_from_the_body() {
    let body =
        br#"{"model": "m", "stream": true, "messages": [{"role": "user", "content": "x"}], "other": {"user": 1}}"#;
    let peek = Peek::read(body).unwrap();
    assert!(matches!(peek.model_name(), Some(Cow::Borrowed("m"))));
    assert!(peek.wants_stream());
    assert!(peek.user.is_none(), "only the top level counts");
}

#[test]
fn the_last_of_two_counts_and_escaped_keys_are_read() {
    let peek = Peek::read(br#"{"user": "a", "us\u0065r": "b"}"#).unwrap();
    assert_eq!(peek.user.unwrap().get(), "\"b\"");
}

#[test]
fn only_whole_objects_count() {
    for body in ["", "{", "[]", "1", "{} {}", "{\"a\":}", "\u{feff}{}"] {
        assert!(Peek::read(body.as_bytes()).is_none(), "{body}");
    }
    assert!(Peek::read(b"{\"a\": \"\xff\"}").is_none());
    assert!(Peek::read(b" {} ").is_some());
    let stream_word = Peek::read(br#"{"stream": "true"}"#).unwrap();
    assert!(!stream_word.wants_stream());
}

#[test]
fn deep_nesting_is_refused_not_overflowed() {
    let body = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let _ = Peek::read(body.as_bytes());
}
