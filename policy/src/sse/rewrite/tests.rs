//! The worked examples by number, then the properties: any cut gives the same bytes, byte edits are the edits of a parsed
//! tree, and nothing fails.

mod cuts;
mod streams;
mod tree;

use super::whole::HELD_MAX;
use super::*;
use crate::sse::line::LINE_MAX;

fn handler(name: &str) -> Handler {
    Handler::named(name).unwrap()
}

/// What a client gets of a stream that comes in these chunks.
fn through<'a>(mut rewriter: Rewriter, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in chunks {
        match rewriter.push(chunk) {
            Output::Same => out.extend_from_slice(chunk),
            Output::First(bytes) => out.extend_from_slice(&chunk[..bytes]),
            Output::Changed(changed) => out.extend(changed),
        }
    }
    out.extend(rewriter.end());
    out
}

fn event(name: &str, line: &str) -> String {
    String::from_utf8(through(Rewriter::events(Some(handler(name)), false), [line.as_bytes()])).unwrap()
}

fn json(name: &str, body: &str) -> String {
    String::from_utf8(through(Rewriter::json(handler(name)), [body.as_bytes()])).unwrap()
}

fn hidden(stream: &str) -> String {
    String::from_utf8(through(Rewriter::events(None, true), [stream.as_bytes()])).unwrap()
}

const FRAME_41: &str = concat!(
    r#"data: {"choices":[{"delta":{"reasoning":"The"},"logprobs":null,"stop_reason":"x","finish_reason":null}],"#,
    "\"system_fingerprint\":\"f\"}\n"
);
const REWRITTEN_41: &str = "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"The\"},\"finish_reason\":null}]}\n";

/// Rulings §7 on all of these: key order is free in the spec, and that of the engine here.
#[test]
fn payloads_10_4_frames() {
    for (number, line, expected) in [
        (41, FRAME_41, REWRITTEN_41),
        (42, "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\n", ""),
        (43, "data:{\"choices\":[],\"prompt_token_ids\":null}\r\n", "data: {\"choices\":[]}\r\n"),
        (44, "data: {\"prompt_token_ids\":null}\n", ""),
        (44, "data: [DONE]\n", ""),
        (44, ": ping\n", ""),
        (44, "data: {bad\n", ""),
        (
            45,
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"created_cache_tokens\":3,\"multimodal_tokens\":null}}}\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens_details\":{\"cache_write_tokens\":3}}}\n",
        ),
    ] {
        let expected = if expected.is_empty() { line } else { expected };
        assert_eq!(event("vllm_format", line), expected, "{number}");
    }
}

#[test]
fn payloads_10_4_example_46_a_cut_line_leaves_whole() {
    let (before, after) = FRAME_41.split_at(40);
    let mut rewriter = Rewriter::events(Some(handler("vllm_format")), false);
    assert_eq!(rewriter.push(before.as_bytes()), Output::First(0));
    assert_eq!(rewriter.push(after.as_bytes()), Output::Changed(REWRITTEN_41.into()));
    assert!(rewriter.end().is_empty());
}

/// 48 (a status of 500) is the dataplane's to see to.
#[test]
fn payloads_10_4_examples_47_and_49_json() {
    assert_eq!(
        json("vllm_format", r#"{"choices":[{"message":{"content":"a","refusal":null,"reasoning":null}}]}"#),
        r#"{"choices":[{"message":{"content":"a","reasoning_content":null}}]}"#
    );
    assert_eq!(json("strip_actual_usage", r#"{"usage":{"a":1},"actual_usage":{"a":2}}"#), r#"{"usage":{"a":1}}"#);
}

#[test]
fn payloads_5_3_only_the_top_level_is_stripped() {
    let inner = r#"{"usage":{"actual_usage":1},"x":[{"actual_usage":2}]}"#;
    assert_eq!(json("strip_actual_usage", inner), inner);
    assert_eq!(event("strip_actual_usage", "data: {\"actual_usage\":null,\"choices\":1}\n"), "data: {\"choices\":1}\n");
}

#[test]
fn payloads_5_4_each_place() {
    let all = r#"{"id":"x","prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"metrics":null,"logprobs":null,
        "token_ids":null,"service_tier":null,"system_fingerprint":"f","kv_transfer_params":{"a":[1]},"ec_transfer_params":1,
        "actual_usage":{"b":2},"choices":[{"index":0,"logprobs":null,"token_ids":null,"routed_experts":null,
        "prompt_token_ids":null,"prompt_text":null,"stop_reason":null,"reasoning":"r","finish_reason":null,
        "message":{"role":"assistant","refusal":null,"annotations":null,"audio":null,"function_call":null,
        "reasoning":"r","reasoning_content":"older"}}]}"#;
    let rewritten = r#"{"id":"x","choices":[{"index":0,"reasoning_content":"r","finish_reason":null,
        "message":{"role":"assistant",
        "reasoning_content":"r"}}]}"#;
    let one_line = |text: &str| text.split_inclusive('\n').map(str::trim_start).collect::<String>();
    assert_eq!(json("vllm_format", &one_line(all)), one_line(rewritten));
    for stays in [
        r#"{"choices":[{"logprobs":{"content":[{"logprob":-0.12345678901234567890}]},"token_ids":[1]}]}"#,
        r#"{"choices":[{"delta":{"refusal":null,"audio":null,"annotations":null,"function_call":null}}]}"#,
        r#"{"choices":[{"message":{"refusal":"no"},"finish_reason":null}],"prompt_logprobs":[null]}"#,
        r#"{"choices":[{"index":0}],"usage":{"stop_reason":1,"logprobs":null,"prompt_tokens_details":null}}"#,
        // No object, or none with choices that are a list or an object.
        r#"[{"choices":[],"logprobs":null}]"#,
        r#"{"choices":null,"logprobs":null}"#,
        r#"{"choices":"[]","logprobs":null}"#,
        r#"{"choices":[7,null,"reasoning",["logprobs",null]]}"#,
    ] {
        assert_eq!(json("vllm_format", stays), stays);
    }
    assert_eq!(json("vllm_format", r#"{"choices":{},"logprobs":null}"#), r#"{"choices":{}}"#);
    let existing =
        r#"{"choices":[],"usage":{"prompt_tokens_details":{"cache_write_tokens":null,"created_cache_tokens":3}}}"#;
    assert_eq!(
        json("vllm_format", existing),
        r#"{"choices":[],"usage":{"prompt_tokens_details":{"cache_write_tokens":null}}}"#
    );
}

/// Rulings §7: the reference printed numbers with 14 digits, and escaped what it had not read escaped.
#[test]
fn rulings_7_what_no_edit_touches_keeps_its_bytes() {
    let line = "data: { \"choices\" : [ {\"delta\":{\"reasoning\":\"a\\u002fb/\\/ ü\"},\"n\":0.12345678901234567890e-05} ],\t\"a\":1E400}\r\n";
    assert_eq!(event("vllm_format", line), line.replace("reasoning", "reasoning_content"));
    let body = " \n{\"actual_usage\":1, \"big\": 123456789012345678901234567890 }\n";
    assert_eq!(json("strip_actual_usage", body), " \n{\"big\": 123456789012345678901234567890 }\n");
    // Also where nothing is to be done, and where nothing can be read.
    for body in ["", "{", "actual_usage", "{\"actual_usage\":}", "\u{feff}{\"actual_usage\":1}", "{ \"a\" : 1.0 }\r\n"]
    {
        assert_eq!(json("strip_actual_usage", body), body);
    }
    let broken = b"{\"actual_usage\":1,\"a\":\"\xff\"}";
    assert_eq!(through(Rewriter::json(handler("strip_actual_usage")), [&broken[..]]), broken);
}

#[test]
fn payloads_5_2_the_last_line_needs_no_ending() {
    assert_eq!(event("vllm_format", FRAME_41.trim_end()), REWRITTEN_41.trim_end());
    assert_eq!(event("vllm_format", "data: {\"choices\":[]"), "data: {\"choices\":[]");
}

#[test]
fn a_chunk_that_needs_no_change_is_not_copied() {
    for chunk in ["data: {\"choices\":[{\"logprobs\":[1]}]}\n\n", ": ping\n\ndata: [DONE]\n\n", "\n"] {
        let mut rewriter = Rewriter::events(Some(handler("vllm_format")), true);
        assert_eq!(rewriter.push(chunk.as_bytes()), Output::Same, "{chunk}");
    }
    let mut rewriter = Rewriter::events(Some(handler("vllm_format")), true);
    assert_eq!(rewriter.push(b": a\ndata: x"), Output::First(4), "the control: half a line is held");
}

const USAGE: &str = "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";

#[test]
fn rulings_7_the_usage_frame_goes_with_its_blank_line_and_nothing_else_does() {
    let stream = |usage: &str| format!("data: {{\"choices\":[{{}}],\"usage\":null}}\n\n{usage}data: [DONE]\n\n");
    for usage in [
        USAGE,
        "data:{\"choices\": [ ], \"usage\": {}}\r\n\r\n",
        "data: {\"usage\":{\"a\":\"}\\\"\"},\"choices\":[]}\n\n",
    ] {
        assert_eq!(hidden(&stream(usage)), stream(""), "{usage}");
    }
    for stays in [
        "data: {\"choices\":[],\"usage\":null}\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
        "data: {\"choices\":[{}],\"usage\":{\"prompt_tokens\":1}}\n\n",
        "data: {\"usage\":{\"prompt_tokens\":1}}\n\n",
        "data: {\"choices\":[],\"usage\":{},\"error\":{\"message\":\"no room\"}}\n\n",
        "data: {\"error\":{\"message\":\"no \\\"usage\\\"\"},\"choices\":[]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"choices\\\":[],\\\"usage\\\":{}\"}}]}\n\n",
        ": \"choices\":[],\"usage\":{}\n\n",
        "data: {\"choices\":[],\"usage\":{}\n\n",
    ] {
        assert_eq!(hidden(&stream(stays)), stream(stays));
    }
    let mut shown = Rewriter::events(Some(handler("vllm_format")), false);
    assert_eq!(shown.push(USAGE.as_bytes()), Output::Same, "the control: not asked to hide");
}

#[test]
fn rulings_7_what_stands_around_a_usage_frame_stays_an_event() {
    // Its id has left; the blank line keeps it from the next event.
    assert_eq!(hidden(&format!("id: 5\n{USAGE}data: a\n\n")), "id: 5\n\ndata: a\n\n");
    assert_eq!(
        hidden(&format!("{}: ping\n\ndata: a\n\n", USAGE.trim_end_matches('\n').to_owned() + "\n")),
        ": ping\n\ndata: a\n\n"
    );
    assert_eq!(hidden(&format!("{USAGE}\n{USAGE}{USAGE}")), "\n");
    assert_eq!(hidden(USAGE.trim_end()), "");
}

#[test]
fn both_are_done_to_one_stream() {
    let rewriter = Rewriter::events(Some(handler("vllm_format")), true);
    let stream = format!("{FRAME_41}\n{USAGE}data: [DONE]\n\n");
    let out = through(rewriter, [stream.as_bytes()]);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{REWRITTEN_41}\ndata: [DONE]\n\n"));
}

#[test]
fn payloads_5_2_a_json_answer_is_held_up_to_8_mib_and_strictly_more_passes() {
    const HEAD: &str = r#"{"actual_usage":1,"a":""#;
    let body = |bytes: usize| format!("{HEAD}{}\"}}", "x".repeat(bytes - HEAD.len() - 2));
    let most = body(HELD_MAX);
    let rewritten = json("strip_actual_usage", &most);
    assert_eq!(rewritten.len(), HELD_MAX - r#""actual_usage":1,"#.len());
    let more = body(HELD_MAX + 1);
    for size in [HELD_MAX + 1, HELD_MAX, 100_000] {
        let mut rewriter = Rewriter::json(handler("strip_actual_usage"));
        let mut sent = Vec::new();
        for chunk in more.as_bytes().chunks(size) {
            assert_eq!(rewriter.gave_up(), !sent.is_empty());
            match rewriter.push(chunk) {
                Output::Same => sent.extend_from_slice(chunk),
                Output::First(bytes) => assert_eq!(bytes, 0, "all of it is held"),
                Output::Changed(changed) => sent.extend(changed),
            }
        }
        assert!(rewriter.gave_up());
        assert!(sent == more.as_bytes(), "all of it, in pieces of {size}");
        assert!(rewriter.end().is_empty());
    }
}

#[test]
fn conventions_2_a_line_that_is_too_long_passes_as_it_is() {
    let frame = |bytes: usize| {
        let (before, after) = ("data: {\"actual_usage\":1,\"a\":\"", "\"}\n");
        format!("{before}{}{after}", "x".repeat(bytes - before.len() - after.len()))
    };
    assert_ne!(event("strip_actual_usage", &frame(LINE_MAX)), frame(LINE_MAX), "the control");
    let stream = format!("{}\ndata: {{\"actual_usage\":1}}\n", frame(LINE_MAX + 1));
    let mut rewriter = Rewriter::events(Some(handler("strip_actual_usage")), false);
    for chunk in stream.as_bytes().chunks(4096) {
        rewriter.push(chunk);
    }
    assert!(rewriter.gave_up());
    let out = through(Rewriter::events(Some(handler("strip_actual_usage")), false), stream.as_bytes().chunks(4096));
    assert!(out == format!("{}\ndata: {{}}\n", frame(LINE_MAX + 1)).as_bytes());
}

#[test]
fn depth_costs_no_stack_and_breadth_is_bounded() {
    let deep = format!("{}{}", "[{\"a\":".repeat(100_000), "}]".repeat(100_000).replacen('}', "1}", 1));
    for (text, stripped) in [
        (format!("{{\"choices\":{deep},\"logprobs\":null}}"), format!("{{\"choices\":{deep}}}")),
        (
            format!("{{\"logprobs\":null,\"choices\":[{{\"message\":{deep}}}]}}"),
            format!("{{\"choices\":[{{\"message\":{deep}}}]}}"),
        ),
        (
            format!("{{\"choices\":[{}{{\"stop_reason\":1}}]}}", "{\"stop_reason\":1},".repeat(50_000)),
            format!("{{\"choices\":[{}{{}}]}}", "{},".repeat(50_000)),
        ),
        (format!("{{\"choices\":[]{}}}", ",\"logprobs\":null".repeat(60_000)), "{\"choices\":[]}".to_owned()),
    ] {
        assert!(json("vllm_format", &text) == stripped, "{} bytes", text.len());
    }
}

#[test]
fn no_name_is_looked_for_in_vain() {
    // What a handler looks for is what makes it look: each name alone is found.
    for handler in HANDLERS {
        for name in handler.looks_for.iter().copied().flatten() {
            assert!(handler.concerns(format!("{{\"{name}\":1}}").as_bytes()), "{name}");
            assert!(!handler.concerns(format!("{{\"x{name}\":\"\\\"{name}\\\"\"}}").as_bytes()), "{name}");
        }
        assert_eq!(Handler::named(handler.name), Some(handler));
    }
    assert_eq!(Handler::named("none"), None);
    assert_eq!(HANDLER_NAMES, ["none", "strip_actual_usage", "vllm_format"]);
}

#[test]
fn a_held_answer_that_is_given_up_passes_as_it_is() {
    let mut rewriter = Rewriter::json(handler("strip_actual_usage"));
    assert_eq!(rewriter.push(b"{\"actual_usage\":1,"), Output::First(0));
    assert_eq!(rewriter.give_up(), b"{\"actual_usage\":1,");
    assert!(rewriter.gave_up());
    assert_eq!((rewriter.push(b"\"a\":1}"), rewriter.end()), (Output::Same, Vec::new()));
}
