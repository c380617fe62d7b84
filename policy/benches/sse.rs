//! What the rewriting of a stream costs per frame; each frame comes as a chunk, as engines send them.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use router_policy::sse::rewrite::{Handler, Output, Rewriter};

fn main() {
    divan::main();
}

/// A token of vLLM with what `vllm_format` takes out.
const VLLM: &str = concat!(
    r#"data: {"id":"chatcmpl-7f3a1c9e5b2d4860","object":"chat.completion.chunk","created":1764500000,"#,
    r#""model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"reasoning":" token"},"logprobs":null,"#,
    r#""finish_reason":null,"token_ids":null}]}"#,
    "\n\n"
);
/// The same without.
const PLAIN: &str = concat!(
    r#"data: {"id":"chatcmpl-7f3a1c9e5b2d4860","object":"chat.completion.chunk","created":1764500000,"#,
    r#""model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"reasoning_content":" token"},"finish_reason":null}]}"#,
    "\n\n"
);
const USAGE: &str = concat!(
    r#"data: {"id":"chatcmpl-7f3a1c9e5b2d4860","object":"chat.completion.chunk","created":1764500000,"#,
    r#""model":"Qwen/Qwen3-32B","choices":[],"usage":{"prompt_tokens":50,"total_tokens":70,"completion_tokens":20}}"#,
    "\n\n"
);

fn push(bencher: Bencher<'_, '_>, handler: Option<&str>, hides_usage: bool, frame: &str, is_same: bool) {
    let mut rewriter = Rewriter::events(handler.and_then(Handler::named), hides_usage);
    assert_eq!(rewriter.push(frame.as_bytes()) == Output::Same, is_same, "the frame suits the benchmark");
    let bencher = bencher.counter(BytesCount::of_str(frame)).counter(ItemsCount::new(1_usize));
    bencher.bench_local(|| rewriter.push(black_box(frame.as_bytes())));
}

#[divan::bench]
fn vllm_format_changed(bencher: Bencher<'_, '_>) {
    push(bencher, Some("vllm_format"), false, VLLM, false);
}

#[divan::bench]
fn vllm_format_unchanged(bencher: Bencher<'_, '_>) {
    push(bencher, Some("vllm_format"), false, PLAIN, true);
}

#[divan::bench]
fn strip_actual_usage_unchanged(bencher: Bencher<'_, '_>) {
    push(bencher, Some("strip_actual_usage"), false, VLLM, true);
}

#[divan::bench]
fn hide_usage_unchanged(bencher: Bencher<'_, '_>) {
    push(bencher, None, true, VLLM, true);
}

#[divan::bench]
fn hide_usage_taken_out(bencher: Bencher<'_, '_>) {
    push(bencher, None, true, USAGE, false);
}

/// A chunk's end in the middle of a line: it is held, copied and joined.
#[divan::bench]
fn hide_usage_cut_in_two(bencher: Bencher<'_, '_>) {
    let mut rewriter = Rewriter::events(None, true);
    let (before, after) = VLLM.split_at(100);
    bencher
        .counter(BytesCount::of_str(VLLM))
        .bench_local(|| (rewriter.push(black_box(before.as_bytes())), rewriter.push(black_box(after.as_bytes()))));
}

/// A whole answer of about 100 KiB in which something changes.
#[divan::bench]
fn json_changed(bencher: Bencher<'_, '_>) {
    let text = "Some text of an answer, with \\\"quotes\\\" and\\nlines. ".repeat(2000);
    let body = format!(r#"{{"choices":[{{"message":{{"content":"{text}","refusal":null}}}}],"service_tier":null}}"#);
    let Some(handler) = Handler::named("vllm_format") else { return };
    bencher.counter(BytesCount::of_str(&body)).bench_local(|| {
        let mut rewriter = Rewriter::json(handler);
        (rewriter.push(black_box(body.as_bytes())), rewriter.end())
    });
}
