use proptest::prelude::*;

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
    for body in ["", "{", "[]", "1", "{} {}", "{\"a\":}", "\u{feff}\u{feff}{}"] {
        assert!(Peek::read(body.as_bytes()).is_none(), "{body}");
    }
    assert!(Peek::read(b"{\"a\": \"\xff\"}").is_none());
    for body in [" {} ", "\u{feff}{}"] {
        assert!(Peek::read(body.as_bytes()).is_some(), "{body}");
    }
    let stream_word = Peek::read(br#"{"stream": "true"}"#).unwrap();
    assert!(!stream_word.wants_stream());
}

#[test]
fn what_is_skipped_is_checked_too() {
    for value in [
        "[1 2]",
        "[1,]",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "{1:2}",
        "\"\\q\"",
        "\"\u{1}\"",
        "01",
        "1.",
        "-",
        "tru",
        "[}]",
        "\"\\u12g4\"",
        "NaN",
        "'a'",
    ] {
        for key in ["model", "messages", "other"] {
            let body = format!("{{\"{key}\": {value}, \"user\": \"u\"}}");
            assert!(Peek::read(body.as_bytes()).is_none(), "{body}");
        }
    }
    for value in ["[1, 2]", "{}", "\"\\/\\ud800\"", "-0.0e-0", "1e999", "null"] {
        for key in ["model", "messages", "other"] {
            let body = format!("{{\"{key}\": {value}, \"user\": \"u\"}}");
            assert_eq!(Peek::read(body.as_bytes()).unwrap().user.unwrap().get(), "\"u\"", "{body}");
        }
    }
}

/// No stack is used for it, so that no depth is too much.
#[test]
fn deep_nesting_is_read() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for key in ["model", "other"] {
            let body = format!("{{\"{key}\": {}1{}, \"user\": \"u\"}}", open.repeat(100_000), close.repeat(100_000));
            assert!(Peek::read(body.as_bytes()).is_some_and(|peek| peek.user.is_some()));
            assert!(Peek::read(&body.as_bytes()[..body.len() - 1]).is_none());
        }
    }
}

#[test]
fn some_fields_in_one_pass() {
    let picked = |text, names: [&str; 2]| Some(pick(text, names)?.map(|value| value.map_or("-", RawValue::get)));
    assert_eq!(picked(r#"{"a": 1, "b": [2 ], "a" : {"b":3}}"#, ["b", "a"]), Some(["[2 ]", r#"{"b":3}"#]));
    assert_eq!(picked("{}", ["b", "a"]), Some(["-", "-"]));
    for text in ["", "[]", "1", "null", "\"a\"", "{} {}", "{\"a\":}"] {
        assert_eq!(picked(text, ["b", "a"]), None, "{text}");
    }
}

#[test]
fn items_one_by_one() {
    let raw = |text| serde_json::from_str::<&RawValue>(text).unwrap();
    let texts: Vec<&str> = items(raw("[1, \"a\" ,[2],{}]")).unwrap().into_iter().map(RawValue::get).collect();
    assert_eq!(texts, ["1", "\"a\"", "[2]", "{}"]);
    for text in ["{}", "1", "null", "\"[]\""] {
        assert!(items(raw(text)).is_none(), "{text}");
    }
    let mut seen = 0;
    until_item(raw("[1,2,3]"), |item| {
        seen += 1;
        if item.get() == "2" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(seen, 2, "what follows is not read");
}

#[test]
fn the_first_user_message_that_has_content() {
    let first = |text: &str| first_user_content(serde_json::from_str(text).unwrap()).map(|raw| raw.get().to_owned());
    let user = r#"{"role":"user","content":"a"}"#;
    for (text, expected) in [
        (format!(r#"[{{"role":"system","content":"s"}},1,{user},{{"role":"user","content":"b"}}]"#), Some("\"a\"")),
        (format!(r#"[{{"role":"user"}},{{"role":["user"]}},{user}]"#), Some("\"a\"")),
        (format!(r#"[{{"role":"user","content":"x","role":"tool"}},{user}]"#), Some("\"a\"")),
        ("\"bare\"".to_owned(), Some("\"bare\"")),
        ("[]".to_owned(), None),
        (user.to_owned(), None),
    ] {
        assert_eq!(first(&text).as_deref(), expected, "{text}");
    }
}

proptest! {
    /// What is read is just what is one JSON object in UTF-8; but a control character that stands bare in a key is read over,
    /// since keys are read as bytes.
    #[test]
    fn it_accepts_what_a_parser_accepts(text in r#"[ ]{0,1}\{("[ab]":([0-9]{1,2}|"[a\\"n]{0,3}"|true|\[\]|\{\}),?){0,3}\}[ }]{0,1}"#, cut in any::<prop::sample::Index>(), byte in 0x20_u8..) {
        let is_object = |bytes: &[u8]| {
            serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
                && std::str::from_utf8(bytes).is_ok_and(|text| text.trim_start().starts_with('{'))
        };
        let mut bytes = text.into_bytes();
        prop_assert_eq!(Peek::read(&bytes).is_some(), is_object(&bytes));
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        prop_assert_eq!(Peek::read(&bytes).is_some(), is_object(&bytes));
    }
}
