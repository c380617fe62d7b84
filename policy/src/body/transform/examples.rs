//! The worked examples of payloads.md §10.2, by number.

use super::*;

pub(super) const ALL: Transforms =
    Transforms { cch_strip: true, kimi_normalize: Some(KimiStrategy::Rerank), include_usage: true, system_hoist: true };
const CCH: Transforms = Transforms { cch_strip: true, ..NONE };
const KIMI: Transforms = Transforms { kimi_normalize: Some(KimiStrategy::Rerank), ..NONE };
const USAGE: Transforms = Transforms { include_usage: true, ..NONE };
const HOIST: Transforms = Transforms { system_hoist: true, ..NONE };
const NONE: Transforms =
    Transforms { cch_strip: false, kimi_normalize: None, include_usage: false, system_hoist: false };

const MARKER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab;";

fn apply(transforms: Transforms, body: &str) -> (Option<String>, Changes) {
    let (edited, changes) = transforms.apply(body.as_bytes());
    (edited.map(|edited| String::from_utf8(edited).unwrap()), changes)
}

#[track_caller]
fn changed(transforms: Transforms, body: &str, expected: &str) -> Changes {
    let (edited, changes) = apply(transforms, body);
    assert_eq!(edited.as_deref(), Some(expected), "of {body}");
    // What is off changes nothing; what is on beside it has nothing to do.
    assert_eq!(apply(NONE, body), (None, Changes::default()), "of {body}");
    changes
}

#[track_caller]
fn unchanged(transforms: Transforms, body: &str) -> Changes {
    let (edited, changes) = apply(transforms, body);
    assert_eq!(edited, None, "of {body}");
    changes
}

#[test]
fn example_15_a_marker_at_the_start_goes_and_the_space_after_it_stays() {
    let body = format!(r#"{{"messages":[{{"role":"system","content":"{MARKER} You"}}]}}"#);
    let changes = changed(CCH, &body, r#"{"messages":[{"role":"system","content":" You"}]}"#);
    assert_eq!(changes, Changes { cch_stripped: true, ..Changes::default() });
}

#[test]
fn example_16_in_any_message_at_any_depth() {
    let body = format!(
        r#"{{"messages":[{{"content":"a"}},{{"content":"{MARKER}b"}},{{"content":[{{"type":"text","text" : "{MARKER}"}}]}}]}}"#
    );
    let expected = r#"{"messages":[{"content":"a"},{"content":"b"},{"content":[{"type":"text","text" : ""}]}]}"#;
    assert!(changed(CCH, &body, expected).cch_stripped);
    let blocks = format!(r#"{{"system":[{{"type":"text","text":"{MARKER} A"}}]}}"#);
    changed(CCH, &blocks, r#"{"system":[{"type":"text","text":" A"}]}"#);
}

#[test]
fn example_17_what_is_no_marker_stays() {
    for text in [
        "x-anthropic-billing-header: cc_version=1; cch=ab; You",
        &format!("hello {MARKER} You"),
        "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab",
        // Of §3.2: an escaped quote inside a part, and another case.
        r#"x-anthropic-billing-header: cc_version=\"1\"; cc_entrypoint=cli; cch=ab; You"#,
        "X-Anthropic-Billing-Header: cc_version=1; cc_entrypoint=cli; cch=ab; You",
        &format!(r#"\"{MARKER} You"#),
    ] {
        let changes = unchanged(CCH, &format!(r#"{{"messages":[{{"content":"{text}"}}]}}"#));
        assert_eq!(changes, Changes::default());
    }
    for key in ["name", "system", "contents"] {
        unchanged(CCH, &format!(r#"{{"messages":[{{"{key}":"{MARKER} You"}}]}}"#));
    }
    let empty_parts = "x-anthropic-billing-header:cc_version=;cc_entrypoint=;   cch=;";
    changed(CCH, &format!(r#"{{"messages":[{{"content":"{empty_parts}x"}}]}}"#), r#"{"messages":[{"content":"x"}]}"#);
    // An escaped key is that key; no part ends in the next string.
    changed(CCH, &format!(r#"{{"c\u006fntent":"{MARKER}x"}}"#), r#"{"c\u006fntent":"x"}"#);
    unchanged(CCH, r#"{"content":"x-anthropic-billing-header: cc_version=1","text":"; cc_entrypoint=1; cch=2;"}"#);
}

/// Changed by rulings §7: the strip covers a top-level `system` string, too, on every path.
#[test]
fn example_18_a_top_level_system_string_is_covered() {
    let body = format!(r#"{{"system":"{MARKER} x","metadata":{{"system":"{MARKER} y"}}}}"#);
    changed(CCH, &body, &format!(r#"{{"system":" x","metadata":{{"system":"{MARKER} y"}}}}"#));
}

fn call(id: &str, name: &str) -> String {
    format!(
        r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}]}}"#
    )
}

fn answer(id: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"c1"}}"#)
}

fn kimi(model: &str, messages: &[String]) -> String {
    format!(r#"{{"model":"{model}","messages":[{}]}}"#, messages.join(","))
}

#[test]
fn example_19_calls_are_numbered_over_the_conversation() {
    let body = kimi("kimi-k2.6", &[call("c1", "read"), answer("c1"), call("c2", "bash")]);
    let expected = kimi(
        "kimi-k2.6",
        &[call("functions.read:0", "read"), answer("functions.read:0"), call("functions.bash:1", "bash")],
    );
    assert_eq!(changed(KIMI, &body, &expected), Changes { kimi_ids: 3, ..Changes::default() });
}

#[test]
fn example_20_ids_that_are_right_stay() {
    let body = kimi("kimi-k2.6", &[call("functions.read:0", "read"), call("functions.bash:1", "bash")]);
    assert_eq!(unchanged(KIMI, &body), Changes::default());
}

#[test]
fn example_21_only_the_wrong_one_is_replaced() {
    let body = kimi("Kimi-K2.5", &[call("functions.read:0", "read"), call("call_z", "bash"), answer("orphan")]);
    let expected =
        kimi("Kimi-K2.5", &[call("functions.read:0", "read"), call("functions.bash:1", "bash"), answer("orphan")]);
    assert_eq!(changed(KIMI, &body, &expected).kimi_ids, 1);
}

#[test]
fn example_22_by_content() {
    let hash = Transforms { kimi_normalize: Some(KimiStrategy::Hash), ..NONE };
    let body = kimi("kimi-k2.6", &[call("a", "read"), call("b", "Bash"), call("c", "read")]);
    let expected = kimi(
        "kimi-k2.6",
        &[
            call("functions.read:1466615", "read"),
            call("functions.Bash:1662697", "Bash"),
            call("functions.read:1466615", "read"),
        ],
    );
    assert_eq!(changed(hash, &body, &expected).kimi_ids, 3);
}

#[test]
fn example_23_other_models_stay() {
    for model in ["other", "kimi-k2", "kimi-k2.6 ", "x/kimi-k2.6"] {
        assert_eq!(unchanged(KIMI, &kimi(model, &[call("c1", "read")])), Changes::default());
    }
    let escaped = kimi(r"moonshotai\/k\u0069mi-k2.5", &[call("c1", "read")]);
    assert_eq!(apply(KIMI, &escaped).1.kimi_ids, 1, "the control, written with escapes");
}

/// Changed by rulings §7: whether the route has a pool per model is no matter here; the caller decides by the route's
/// options and the path.
#[test]
fn examples_24_and_28_a_stream_without_options() {
    let changes = changed(
        USAGE,
        "{\"a\":1,\"stream\":true}\n",
        "{\"a\":1,\"stream\":true,\"stream_options\":{\"include_usage\":true}}\n",
    );
    assert_eq!(changes, Changes { usage_asked: true, ..Changes::default() });
    assert_eq!(unchanged(NONE, "{\"a\":1,\"stream\":true}\n"), Changes::default());
}

#[test]
fn example_25_options_that_say_other_things() {
    let body = r#"{"stream":true,"stream_options":{"foo":1}}"#;
    changed(USAGE, body, r#"{"stream":true,"stream_options":{"include_usage":true,"foo":1}}"#);
}

#[test]
fn example_26_empty_null_and_false_options() {
    for options in ["{}", "null", r#"{"include_usage":0}"#] {
        let body = format!(r#"{{"stream":true,"stream_options":{options}}}"#);
        assert!(changed(USAGE, &body, r#"{"stream":true,"stream_options":{"include_usage":true}}"#).usage_asked);
    }
    for value in ["false", "null", r#""true""#, "-1.5e3"] {
        let body = format!(r#"{{"stream":true,"stream_options":{{"a":1, "include_usage" : {value} }}}}"#);
        changed(USAGE, &body, r#"{"stream":true,"stream_options":{"a":1, "include_usage" : true }}"#);
    }
}

#[test]
fn example_27_options_that_cannot_say_it() {
    for options in ["5", "true", r#""x""#, "[]", r#"{"include_usage":{}}"#, r#"{"include_usage":[true]}"#] {
        let changes = unchanged(USAGE, &format!(r#"{{"stream":true,"stream_options":{options}}}"#));
        assert_eq!(changes, Changes { usage_not_possible: true, ..Changes::default() }, "{options}");
    }
}

/// Of §3.4, as rulings §7 settle it.
#[test]
fn only_true_is_a_stream_and_only_the_top_level_counts() {
    for stream in ["false", "null", "0", "1", r#""true""#, "[]"] {
        assert_eq!(unchanged(USAGE, &format!(r#"{{"stream":{stream}}}"#)), Changes::default());
    }
    assert_eq!(unchanged(USAGE, r#"{"stream":true,"stream_options":{"include_usage":true}}"#), Changes::default());
    let schema = r#"{"tools":[{"stream_options":{"include_usage":false}}],"stream":true}"#;
    changed(
        USAGE,
        schema,
        r#"{"tools":[{"stream_options":{"include_usage":false}}],"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    // Of two the last counts, and an escaped key is that key.
    unchanged(USAGE, r#"{"stream":true,"stream":false}"#);
    let twice = r#"{"stream":true,"stream_options":null,"stream_opt\u0069ons":{"include_usage":false}}"#;
    changed(USAGE, twice, r#"{"stream":true,"stream_options":null,"stream_opt\u0069ons":{"include_usage":true}}"#);
}

#[test]
fn example_29_system_messages_move_up() {
    let body = r#"{"system":"A","messages":[{"role":"system","content":"B"},{"role":"user","content":"c"}]}"#;
    let expected = r#"{"system":[{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":"c"}]}"#;
    assert_eq!(changed(HOIST, body, expected), Changes { hoisted: 1, ..Changes::default() });
}

/// Of §3.5.
#[test]
fn what_system_messages_hold_and_where_it_goes() {
    let messages = |system: &str, list: &str| format!(r#"{{{system}"messages":[{list}]}}"#);
    let (user, b) = (r#"{"role":"user","content":1.50}"#, r#"{"role":"system","content":"B"}"#);
    let block = r#"{"type":"text","text":"B"}"#;
    for (system, list, system_after, list_after) in [
        ("", format!("{user} , {b}"), format!(r#""system":[{block}],"#), user.to_owned()),
        ("", b.to_owned(), format!(r#""system":[{block}],"#), String::new()),
        (r#""system":[ ], "#, format!("{b},{b}"), format!(r#""system":[ {block},{block}], "#), String::new()),
        (r#""system":[1], "#, format!("{b} ,{user}"), format!(r#""system":[1,{block}], "#), user.to_owned()),
        (
            r#""system":null, "#,
            format!("{user}, {b} ,{user}"),
            format!(r#""system":[{block}], "#),
            format!("{user}, {user}"),
        ),
        (r#""system":{"a":1}, "#, b.to_owned(), format!(r#""system":[{block}], "#), String::new()),
        (
            "",
            r#"{"role":"system","content":[{"cache" : 1.0},"B",5,null,[]]}"#.to_owned(),
            format!(r#""system":[{{"cache" : 1.0}},{block}],"#),
            String::new(),
        ),
        (
            "",
            r#"{"role":"system","content":{}},{"role":"system"}"#.to_owned(),
            r#""system":[],"#.to_owned(),
            String::new(),
        ),
        (
            r#""system":[1],"#,
            r#"{"role":"system","content":5}"#.to_owned(),
            r#""system":[1],"#.to_owned(),
            String::new(),
        ),
    ] {
        changed(HOIST, &messages(system, &list), &messages(&system_after, &list_after));
    }
    for body in [
        messages(r#""system":"A","#, user),
        messages("", r#"{"role":"System","content":"B"},"system",["system"],{"role":["system"]}"#),
        r#"{"messages":{"role":"system"},"x":"system"}"#.to_owned(),
        r#"{"role":"system"}"#.to_owned(),
    ] {
        assert_eq!(unchanged(HOIST, &body), Changes::default());
    }
}

/// Both edits stand at the end.
#[test]
fn a_system_that_is_the_last_field_and_an_ask_for_usage() {
    let body = r#"{"stream":true,"messages":[{"role":"system","content":"B"}],"system":"A"}"#;
    let expected = r#"{"stream":true,"messages":[],"system":[{"type":"text","text":"A"},{"type":"text","text":"B"}],"stream_options":{"include_usage":true}}"#;
    changed(ALL, body, expected);
}

/// Of §3: cch, kimi, usage, hoist, one after the other.
#[test]
fn all_at_once() {
    let messages = [
        format!(r#"{{"role":"system","content":[{{"type":"text","text":"{MARKER}S","id":"c1"}}]}}"#),
        call("c1", "read"),
    ];
    let body = kimi(r#"kimi-k2.6","stream":true,"system":"T"#, &messages);
    let expected = format!(
        r#"{{"model":"kimi-k2.6","stream":true,"system":[{{"type":"text","text":"T"}},{{"type":"text","text":"S","id":"functions.read:0"}}],"messages":[{}],"stream_options":{{"include_usage":true}}}}"#,
        call("functions.read:0", "read")
    );
    let changes = changed(ALL, &body, &expected);
    assert_eq!(
        changes,
        Changes { cch_stripped: true, kimi_ids: 2, usage_asked: true, hoisted: 1, ..Changes::default() }
    );
}
