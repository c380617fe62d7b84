//! What the worked examples leave open (payloads.md §3.3).

use serde_json::{Value, json};

use super::*;

/// The ids of the calls after the edit, and how many ids were replaced.
fn normalized(strategy: KimiStrategy, messages: &Value) -> (Vec<String>, u64) {
    let body = json!({"model": "kimi-k2.6", "messages": messages}).to_string();
    let top = TopLevel::read(body.as_bytes()).unwrap();
    let mut edits = Edits::new(top.text);
    let replaced = edit(&top, strategy, &mut edits);
    let after: Value = serde_json::from_str(&edits.apply().unwrap().unwrap_or(body)).unwrap();
    let messages = after["messages"].as_array().unwrap();
    let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
    (calls.map(|call| call["id"].to_string().replace('"', "")).collect(), replaced)
}

/// One message per call.
fn calls(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(id, name)| json!({"tool_calls": [{"id": id, "function": {"name": name}}]})).collect()
}

#[test]
fn rerank_counts_calls_that_it_leaves_alone() {
    let messages = json!([
        {"tool_calls": [
            {"id": "a", "function": {"name": "f"}},
            {"id": " \t", "function": {"name": "f"}},
            "no object",
            {"id": 7, "function": {"name": "f"}},
            {"id": "b", "function": {"name": "no name"}},
            {"id": "c", "function": {"name": ""}},
            {"id": "d", "function": "f"},
            {"id": "e"},
        ]},
        {"role": "assistant", "tool_calls": {"id": "x", "function": {"name": "f"}}},
        "no message",
        {"role": "user", "tool_calls": [{"id": "g", "function": {"name": "A_z.9-"}}]},
    ]);
    let (ids, replaced) = normalized(KimiStrategy::Rerank, &messages);
    let expected = ["functions.f:0", " \\t", "null", "7", "b", "c", "d", "e", "functions.A_z.9-:7"];
    assert_eq!((ids, replaced), (expected.map(str::to_owned).to_vec(), 2));
    // The strategies that count for themselves give no number to those.
    for strategy in [KimiStrategy::RerankMaxlast, KimiStrategy::Keepinc] {
        assert_eq!(normalized(strategy, &messages).0.last().unwrap(), "functions.A_z.9-:1");
    }
}

#[test]
fn the_first_of_two_mappings_wins_and_none_is_applied_twice() {
    let same = calls(&[("a", "f"), ("a", "g"), ("b", "f")]);
    assert_eq!(normalized(KimiStrategy::Rerank, &same).0, ["functions.f:0", "functions.f:0", "functions.f:2"]);
    // The old id of the second is the new one of the first.
    let crossed = calls(&[("functions.f:1", "f"), ("functions.f:0", "f")]);
    assert_eq!(normalized(KimiStrategy::Rerank, &crossed), (vec!["functions.f:0".into(), "functions.f:1".into()], 2));
    // One that is right by its place is no mapping; a later call with the same id is.
    let right_then_wrong = calls(&[("functions.f:0", "f"), ("functions.f:0", "f")]);
    assert_eq!(normalized(KimiStrategy::Rerank, &right_then_wrong).0, ["functions.f:1", "functions.f:1"]);
}

#[test]
fn maxlast_gives_the_last_the_largest_number_seen() {
    for (pairs, expected) in [
        (
            &[("a", "f"), ("functions.f:9", "f"), ("b", "g")][..],
            &["functions.f:0", "functions.f:1", "functions.g:9"][..],
        ),
        (&[("a", "f"), ("b", "g")], &["functions.f:0", "functions.g:1"]),
        // The number of another function's id, of a sign, of too many digits is none.
        (&[("functions.g:9", "f"), ("functions.f:+8", "f")], &["functions.f:0", "functions.f:1"]),
        (&[("functions.f:1234567890123456", "f")], &["functions.f:0"]),
        (&[("functions.f:123456789012345", "f")], &["functions.f:123456789012345"]),
        (&[("functions.f:", "f"), ("functions.f:007", "f")], &["functions.f:0", "functions.f:7"]),
    ] {
        assert_eq!(normalized(KimiStrategy::RerankMaxlast, &calls(pairs)).0, expected);
    }
    assert_eq!(normalized(KimiStrategy::RerankMaxlast, &json!([])), (vec![], 0));
}

#[test]
fn keepinc_keeps_numbers_that_rise() {
    let pairs =
        [("functions.f:0", "f"), ("functions.f:4", "f"), ("a", "g"), ("functions.f:5", "f"), ("functions.f:9", "f")];
    let expected = ["functions.f:0", "functions.f:4", "functions.g:5", "functions.f:6", "functions.f:9"];
    assert_eq!(normalized(KimiStrategy::Keepinc, &calls(&pairs)).0, expected);
    let others = [("functions.g:3", "f"), ("functions.f:0", "f")];
    assert_eq!(normalized(KimiStrategy::Keepinc, &calls(&others)).0, ["functions.f:0", "functions.f:1"]);
}

#[test]
fn hash_takes_arguments_that_are_a_string() {
    let call =
        |arguments: Value| json!([{"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}]);
    let of = |arguments| normalized(KimiStrategy::Hash, &call(arguments)).0;
    assert_eq!(of(json!({"a": 1})), of(json!("")));
    assert_ne!(of(json!("{}")), of(json!("")));
    // The text counts, not how it is written.
    let number = |arguments: &str| {
        let raw = format!(r#"{{"id":"a","function":{{"name":"f","arguments":"{arguments}"}}}}"#);
        Call::read(&raw, 0).unwrap().content_number()
    };
    assert_eq!(number("é"), number(r"\u00e9"));
    assert_eq!(number(""), number(r"\ud800"), "half a surrogate pair is no text");
}

#[test]
fn ids_are_replaced_wherever_they_stand_and_however_they_are_written() {
    let body = r#"{"model":"kimi-k2.6","id" : "a","messages":[{"tool_calls":[{"id":"\u0061","function":{"name":"f"}}]},
        {"tool_call_id":"a","content":"a","x":{"i\u0064":"a","ID":"a"}}]}"#;
    let top = TopLevel::read(body.as_bytes()).unwrap();
    let mut edits = Edits::new(top.text);
    assert_eq!(edit(&top, KimiStrategy::Rerank, &mut edits), 4);
    let expected = r#"{"model":"kimi-k2.6","id" : "functions.f:0","messages":[{"tool_calls":[{"id":"functions.f:0","function":{"name":"f"}}]},
        {"tool_call_id":"functions.f:0","content":"a","x":{"i\u0064":"functions.f:0","ID":"a"}}]}"#;
    assert_eq!(edits.apply().unwrap().as_deref(), Some(expected));
}
