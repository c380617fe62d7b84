//! Byte edits against the same edits of a parsed tree, written again and plainly.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{event, json as rewritten};

fn drop_nulls(object: &mut Map<String, Value>, names: &[&str]) {
    object.retain(|name, value| !(value.is_null() && names.contains(&name.as_str())));
}

fn rename_reasoning(object: &mut Map<String, Value>) {
    if let Some(reasoning) = object.remove("reasoning") {
        object.insert("reasoning_content".to_owned(), reasoning);
    }
}

/// payloads.md §5.4, of a tree.
fn vllm_format(tree: &mut Value) {
    let Value::Object(top) = tree else { return };
    if !matches!(top.get("choices"), Some(Value::Array(_) | Value::Object(_))) {
        return;
    }
    drop_nulls(top, &["prompt_logprobs", "prompt_token_ids", "prompt_text", "metrics", "logprobs", "token_ids"]);
    for name in ["service_tier", "system_fingerprint", "kv_transfer_params", "ec_transfer_params", "actual_usage"] {
        top.remove(name);
    }
    if let Some(Value::Object(details)) = top.get_mut("usage").and_then(|usage| usage.get_mut("prompt_tokens_details"))
    {
        drop_nulls(details, &["multimodal_tokens"]);
        if let Some(created) = details.remove("created_cache_tokens") {
            details.entry("cache_write_tokens").or_insert(created);
        }
    }
    let Some(Value::Array(choices)) = top.get_mut("choices") else { return };
    for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
        drop_nulls(choice, &["logprobs", "token_ids", "routed_experts", "prompt_token_ids", "prompt_text"]);
        choice.remove("stop_reason");
        rename_reasoning(choice);
        if let Some(Value::Object(delta)) = choice.get_mut("delta") {
            rename_reasoning(delta);
        }
        if let Some(Value::Object(message)) = choice.get_mut("message") {
            drop_nulls(message, &["refusal", "annotations", "audio", "function_call"]);
            rename_reasoning(message);
        }
    }
}

/// Any of the names that some place treats in its own way, and others.
const NAMES: [&str; 24] = [
    "choices",
    "usage",
    "prompt_tokens_details",
    "delta",
    "message",
    "logprobs",
    "token_ids",
    "metrics",
    "stop_reason",
    "reasoning",
    "reasoning_content",
    "refusal",
    "audio",
    "created_cache_tokens",
    "cache_write_tokens",
    "multimodal_tokens",
    "system_fingerprint",
    "service_tier",
    "actual_usage",
    "prompt_text",
    "finish_reason",
    "id",
    "ö",
    "",
];

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("null".to_owned()),
        1 => Just("true".to_owned()),
        1 => Just("0.12345678901234567890".to_owned()),
        1 => Just("-12e3".to_owned()),
        1 => Just("18446744073709551616".to_owned()),
        1 => Just(r#""a\"b\\/\u00e9 你好 😀""#.to_owned()),
        1 => Just(r#""\"logprobs\":null,""#.to_owned()),
    ]
}

fn spaces() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\t "), 1 => Just(" \r")]
}

/// An object's text: names may stand twice, and what is in it may be anything.
fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let field = (proptest::sample::select(&NAMES[..]), value, spaces(), spaces());
    let fields = proptest::collection::vec(field, 0..9);
    (fields, spaces()).prop_map(|(fields, end)| {
        let fields: Vec<String> =
            fields.into_iter().map(|(name, value, a, b)| format!("{a}\"{name}\"{b}:{a}{value}{b}")).collect();
        format!("{{{}{end}}}", fields.join(","))
    })
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (proptest::collection::vec(item, 0..4), spaces())
        .prop_map(|(items, a)| format!("[{a}{}{a}]", items.join(&format!("{a},"))))
}

/// An answer of the shape that handlers look into, with anything at each place.
fn answer() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![3 => scalar(), 1 => list(scalar()), 1 => object(scalar())].boxed();
    let part = prop_oneof![1 => scalar(), 4 => object(leaf.clone())].boxed();
    let choice = prop_oneof![1 => scalar(), 9 => object(part.clone())].boxed();
    let choices = prop_oneof![1 => scalar(), 1 => object(leaf.clone()), 8 => list(choice)].boxed();
    let usage = prop_oneof![1 => scalar(), 5 => object(part)].boxed();
    let rest = object(leaf);
    (choices, usage, rest, any::<bool>()).prop_map(|(choices, usage, rest, is_first)| {
        let own = format!(r#""usage":{usage},"choices":{choices}"#);
        let rest = rest.strip_prefix('{').unwrap().strip_suffix('}').unwrap().trim();
        match (rest.is_empty(), is_first) {
            (true, _) => format!("{{{own}}}"),
            (false, true) => format!("{{{own},{rest}}}"),
            (false, false) => format!("{{{rest},{own}}}"),
        }
    })
}

fn tree_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn byte_edits_are_edits_of_the_tree(text in answer()) {
        let mut expected = tree_of(&text);
        let before = expected.clone();
        vllm_format(&mut expected);
        let edited = rewritten("vllm_format", &text);
        prop_assert_eq!(tree_of(&edited), expected.clone(), "{}", text);
        if expected == before {
            // A name that stands twice may go with its double; else not a byte changes.
            let names = |text: &str| text.matches("\":").count();
            let has_doubles = names(&text) != names(&before.to_string());
            prop_assert!(edited == text || has_doubles, "{} became {}", text, edited);
        }
        // A frame is the same text in a line.
        let line = event("vllm_format", &format!("data: {text}\n"));
        prop_assert_eq!(line, format!("data: {edited}\n"));
        // Once is enough.
        prop_assert_eq!(rewritten("vllm_format", &edited), edited);
    }

    #[test]
    fn what_is_left_keeps_its_bytes(text in answer()) {
        // Everything that went or was renamed is a piece of the text; the rest is its pieces in order.
        let edited = rewritten("vllm_format", &text).replace("\"reasoning_content\"", "\"reasoning\"");
        let edited = edited.replace("\"cache_write_tokens\"", "\"created_cache_tokens\"");
        let text = text.replace("\"reasoning_content\"", "\"reasoning\"");
        let text = text.replace("\"cache_write_tokens\"", "\"created_cache_tokens\"");
        let mut rest = text.bytes();
        prop_assert!(edited.bytes().all(|byte| rest.any(|other| other == byte)), "{} from {}", edited, text);
    }
}

#[test]
fn the_tree_s_edits_are_those_of_the_examples() {
    let mut tree = json!({"choices": [{"delta": {"reasoning": "The"}, "logprobs": null, "stop_reason": "x",
        "finish_reason": null}], "system_fingerprint": "f"});
    vllm_format(&mut tree);
    assert_eq!(tree, json!({"choices": [{"delta": {"reasoning_content": "The"}, "finish_reason": null}]}));
}
