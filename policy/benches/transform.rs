//! What each request transform costs on a body of 100 KiB: when it changes something, and when there is nothing to do.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use router_policy::body::transform::{KimiStrategy, Transforms};

#[path = "support/bodies.rs"]
#[expect(dead_code, reason = "prose is enough here")]
mod bodies;

use bodies::Text;

const SIZE: usize = 100 << 10;
const NONE: Transforms =
    Transforms { cch_strip: false, kimi_normalize: None, include_usage: false, system_hoist: false };

fn main() {
    divan::main();
}

/// A chat in which these stand before the first message.
fn body(first: &str) -> String {
    bodies::chat(Text::English, SIZE).replacen(r#""messages":["#, &format!(r#""messages":[{first}"#), 1)
}

fn apply(bencher: Bencher<'_, '_>, transforms: Transforms, body: &str, is_changed: bool) {
    assert_eq!(transforms.apply(body.as_bytes()).0.is_some(), is_changed, "the body suits the benchmark");
    bencher.counter(BytesCount::of_str(body)).bench_local(|| transforms.apply(black_box(body.as_bytes())));
}

#[divan::bench]
fn cch_strip(bencher: Bencher<'_, '_>) {
    let marker = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=ab;";
    let body = body(&format!(r#"{{"role":"user","content":"{marker} Hello"}},"#));
    apply(bencher, Transforms { cch_strip: true, ..NONE }, &body, true);
}

#[divan::bench(args = ["rerank", "hash", "rerank_maxlast", "keepinc"])]
fn kimi_normalize(bencher: Bencher<'_, '_>, strategy: &str) {
    let strategy = match strategy {
        "hash" => KimiStrategy::Hash,
        "rerank_maxlast" => KimiStrategy::RerankMaxlast,
        "keepinc" => KimiStrategy::Keepinc,
        _ => KimiStrategy::Rerank,
    };
    let mut calls = String::new();
    for turn in 0..50 {
        let function = r#"{"name":"read_file","arguments":"{\"path\":\"/srv/app/main.rs\"}"}"#;
        calls += &format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"call_{turn}","type":"function","function":{function}}}]}},
            {{"role":"tool","tool_call_id":"call_{turn}","content":"fn main() {{}}"}},"#
        );
    }
    apply(bencher, Transforms { kimi_normalize: Some(strategy), ..NONE }, &body(&calls), true);
}

#[divan::bench]
fn include_usage(bencher: Bencher<'_, '_>) {
    apply(bencher, Transforms { include_usage: true, ..NONE }, &body(""), true);
}

#[divan::bench]
fn system_hoist(bencher: Bencher<'_, '_>) {
    apply(bencher, Transforms { system_hoist: true, ..NONE }, &body(""), true);
}

#[divan::bench]
fn nothing_to_do(bencher: Bencher<'_, '_>) {
    let all = Transforms {
        cch_strip: true,
        kimi_normalize: Some(KimiStrategy::Rerank),
        include_usage: true,
        system_hoist: true,
    };
    let body = body("").replace("\"system\"", "\"user\"").replace("\"stream\":true,", "");
    apply(bencher, all, &body, false);
}
