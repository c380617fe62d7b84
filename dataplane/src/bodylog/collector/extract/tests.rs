//! Answers as `OpenAI`'s and Anthropic's APIs and engines send them, whole, streamed and cut.

use serde_json::{Value, json};

use super::*;

fn read(body: &str) -> (String, Value) {
    let extracted = Extracted::read(body.as_bytes());
    let meta = extracted.meta();
    assert!(!meta.contains('\n'), "one line: {meta}");
    (extracted.text.clone(), serde_json::from_str(&meta).unwrap())
}

fn events(events: &[Value]) -> String {
    let frames: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    format!("{}data: [DONE]\n\n", frames.concat())
}

#[test]
fn a_chat_completion() {
    let body = r#"{"id": "c1", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant",
        "content": "Hi", "reasoning_content": "hm", "reasoning": "hm"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 1.0e0, "total_tokens": 123456789012345678901}}"#;
    let extracted = Extracted::read(body.as_bytes());
    assert_eq!(extracted.text, "Hi");
    assert_eq!(
        extracted.meta(),
        r#"{"id":"c1","finish_reason":"stop","model":"m","usage":{"prompt_tokens":12,"completion_tokens":1.0e0,"total_tokens":123456789012345678901},"reasoning":"hm"}"#
    );
    assert_eq!((extracted.model().as_deref(), extracted.finish_reason().as_deref()), (Some("m"), Some("stop")));
}

#[test]
fn a_chat_stream_with_tool_calls_in_fragments() {
    let delta = |delta: Value| json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta}]});
    let call = |call: Value| delta(json!({"tool_calls": [call]}));
    let body = events(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "let me "})),
        delta(json!({"reasoning_content": "see"})),
        delta(json!({"content": "Loo"})),
        delta(json!({"content": "king"})),
        call(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "get", "arguments": ""}})),
        call(json!({"index": 1, "id": "b", "type": "function", "function": {"name": "put", "arguments": "{\"x\""}})),
        call(json!({"index": 0, "function": {"name": "other", "arguments": "{\"city\": "}})),
        call(json!({"index": 0, "id": "later", "function": {"arguments": "\"Bonn\"}"}})),
        call(json!({"index": 1, "function": {"arguments": ":1}"}})),
        call(json!({"id": "c", "function": {"name": "whole", "arguments": "{}"}})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}),
    ]);
    let (text, meta) = read(&body);
    assert_eq!(text, "Looking");
    assert_eq!(
        meta,
        json!({"id": "c1", "model": "m", "finish_reason": "tool_calls", "reasoning": "let me see",
        "usage": {"prompt_tokens": 3, "completion_tokens": 5},
        "tool_calls": [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "get", "arguments": "{\"city\": \"Bonn\"}"}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "put", "arguments": "{\"x\":1}"}},
            {"id": "c", "function": {"name": "whole", "arguments": "{}"}},
        ]})
    );
}

#[test]
fn calls_of_two_choices_stay_apart() {
    let call = |choice: u8, text: &str| json!({"choices": [{"index": choice, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}}]});
    let (_, meta) = read(&events(&[call(0, "a"), call(1, "x"), call(0, "b"), call(1, "y")]));
    let arguments: Vec<&str> = meta["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(arguments, ["ab", "xy"]);
}

#[test]
fn completions_whole_and_streamed() {
    let (text, meta) = read(r#"{"choices": [{"text": "abc", "finish_reason": "length", "stop_reason": 128009}]}"#);
    assert_eq!((text.as_str(), meta), ("abc", json!({"finish_reason": "length", "stop_reason": 128_009})));
    let (text, _) = read(&events(&[json!({"choices": [{"text": "a"}]}), json!({"choices": [{"text": "b"}]})]));
    assert_eq!(text, "ab");
}

#[test]
fn messages_whole() {
    let (text, meta) = read(
        r#"{"id": "msg_1", "type": "message", "model": "claude", "stop_reason": "tool_use", "content": [
            {"type": "thinking", "thinking": "so"}, {"type": "text", "text": "I look"},
            {"type": "tool_use", "id": "t1", "name": "get", "input": {"city": "Bonn"}}],
            "usage": {"input_tokens": 10, "output_tokens": 4}}"#,
    );
    assert_eq!(text, "I look");
    assert_eq!(
        meta,
        json!({"id": "msg_1", "model": "claude", "stop_reason": "tool_use", "reasoning": "so",
            "usage": {"input_tokens": 10, "output_tokens": 4},
            "tool_calls": [{"type": "tool_use", "id": "t1", "name": "get", "input": {"city": "Bonn"}}]})
    );
}

#[test]
fn messages_streamed() {
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude", "content": [], "stop_reason": null,
            "usage": {"input_tokens": 25, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "so"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hel"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "lo"}}),
        json!({"type": "content_block_start", "index": 2,
            "content_block": {"type": "tool_use", "id": "t1", "name": "get", "input": {}}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"a\""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 15}}),
        json!({"type": "message_stop"}),
    ];
    let frame = |event: &Value| format!("event: {}\r\ndata: {event}\r\n\r\n", event["type"].as_str().unwrap());
    let body = events.iter().map(frame).collect::<Vec<_>>().concat();
    let (text, meta) = read(&body);
    assert_eq!(text, "Hello");
    assert_eq!(
        meta,
        json!({"id": "msg_1", "model": "claude", "reasoning": "so", "stop_reason": "tool_use",
            "usage": {"input_tokens": 25, "output_tokens": 15},
            "tool_calls": [{"type": "tool_use", "id": "t1", "name": "get", "input": {"a": 1}}]})
    );
    // Cut off inside the input, the text that came is kept.
    let cut = body.split("\\\"a\\\"\"").next().unwrap().to_owned() + "\\\"a\\\"\"}}\n";
    assert_eq!(read(&cut).1["tool_calls"][0]["input"], "{\"a\"");
}

#[test]
fn responses_whole_and_streamed() {
    let output = json!([
        {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
        {"type": "function_call", "call_id": "f1", "name": "get", "arguments": "{}"},
    ]);
    let whole = json!({"id": "resp_1", "model": "m", "output": output, "error": null,
        "usage": {"input_tokens": 4, "output_tokens": 2}});
    let streamed = [
        json!({"type": "response.created", "response": {"id": "resp_1", "model": "m", "output": []}}),
        json!({"type": "response.output_text.delta", "delta": "Hel"}),
        json!({"type": "response.output_text.delta", "delta": "lo"}),
        json!({"type": "response.output_text.done", "text": "Hello"}),
        json!({"type": "response.completed", "response": whole}),
    ];
    let expected = json!({"id": "resp_1", "model": "m", "usage": {"input_tokens": 4, "output_tokens": 2},
        "tool_calls": [{"type": "function_call", "call_id": "f1", "name": "get", "arguments": "{}"}]});
    assert_eq!(read(&whole.to_string()), ("Hello".to_owned(), expected.clone()));
    assert_eq!(read(&events(&streamed)), ("Hello".to_owned(), expected));
}

#[test]
fn errors_in_an_answer() {
    let (_, meta) = read(
        r#"{"error": {"message": "boom",
        "code": 1}}"#,
    );
    assert_eq!(meta["error"], json!({"message": "boom", "code": 1}));
    let (text, meta) =
        read("data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"type\":\"error\",\"error\":\"late\"}\n");
    assert_eq!((text.as_str(), &meta["error"]), ("a", &json!("late")));
}

#[test]
fn a_cut_stream_gives_what_is_there_on_both_sides_of_the_gap() {
    let event = |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let (head, tail) = (event("über"), event("end"));
    let mut body = head.repeat(2).into_bytes();
    body.extend_from_slice(&head.as_bytes()[..=head.find('ü').unwrap()]);
    body.extend_from_slice(b"\n[BODYLOG_TRUNCATED 5000 BYTES MISSING IN MIDDLE]\n");
    body.extend_from_slice(&"ü".as_bytes()[1..]);
    body.extend_from_slice(b"ber\"}}]}\n\n");
    body.extend_from_slice(tail.as_bytes());
    let extracted = Extracted::read(&body);
    assert!(extracted.is_answer());
    assert_eq!(extracted.text, "überüberend");
}

#[test]
fn what_is_no_answer_is_none() {
    let bomb = "[".repeat(1 << 20);
    let deep = format!("{{\"choices\":{bomb}}}");
    let strange = r#"{"choices":{"0":1},"delta":[1],"content":"text","usage":[],"message":7,"error":null,"output":{}}"#;
    let cut = r#"{"choices":[{"message":{"content":"#;
    let embedding = r#"{"data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":3}}"#;
    for body in
        ["", "hello", "data:", "data: \n\ndata: [DONE]", "data: {", &deep, strange, cut, embedding, "{}", "null"]
    {
        assert!(!Extracted::read(body.as_bytes()).is_answer(), "{}", &body[..body.len().min(80)]);
    }
    assert!(!Extracted::read(b"\xff\xfe{}").is_answer());
    let hostile =
        r#"{"choices":[{"finish_reason":"stop","delta":{"tool_calls":[null,1,{"index":{}},{"function":3}]}}]}"#;
    let meta: Value = serde_json::from_str(&Extracted::read(hostile.as_bytes()).meta()).unwrap();
    assert_eq!(meta["finish_reason"], "stop");
}

#[test]
fn an_index_that_is_no_number_is_not_kept_for_each_fragment() {
    // 1 MB of it for each of 1000 fragments would be 1 GB.
    let index = "A".repeat(1 << 20);
    let fragments: Vec<Value> =
        (0..1000).map(|number| json!({"index": number, "function": {"name": "f", "arguments": "{}"}})).collect();
    let body = json!({"choices": [{"index": index, "delta": {"tool_calls": fragments}}]}).to_string();
    let started = std::time::Instant::now();
    let (_, meta) = read(&body);
    assert_eq!(meta["tool_calls"].as_array().map(Vec::len), Some(1000), "the control: the calls are there");
    assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
}
