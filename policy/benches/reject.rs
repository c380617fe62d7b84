//! What a route's reject rules cost on a request that meets none of them, so that all are asked.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use router_policy::reject::{MatchSyntax, RuleList, RuleSet};
use serde_json::{Value as Json, json};

#[path = "support/bodies.rs"]
#[expect(dead_code, reason = "two kinds of text are enough here")]
mod bodies;

use bodies::Text;

const SIZES: [usize; 3] = [1 << 10, 100 << 10, 10 << 20];

fn main() {
    divan::main();
}

/// 20 conditions with every field and operator, none of which refuses.
fn twenty_conditions() -> Json {
    json!([
        {"field": "input_bytes", "op": "gt", "value": 100_000_000},
        {"field": "input_chars", "op": "gt", "value": 100_000_000},
        {"field": "messages_count", "op": "gt", "value": 1_000_000},
        {"field": "tools_count", "op": "ge", "value": 1_000_000},
        {"all": [
            {"field": "model", "op": "in", "value": ["old-1", "old-2", "old-3"]},
            {"field": "temperature", "op": "lt", "value": 0.1}]},
        {"any": [
            {"field": "model", "op": "eq", "value": "danger"},
            {"field": "model", "op": "prefix", "value": "internal-"},
            {"field": "model", "op": "contains", "value": "secret"},
            {"field": "model", "op": "match", "value": "^(gpt|o[0-9])-"}]},
        {"all": [
            {"field": "metadata.user_id", "op": "exists"},
            {"field": "metadata.user_id", "op": "nin", "value": ["a", "b"]},
            {"field": "metadata.team", "op": "ne", "value": "research"},
            {"field": "metadata.banned", "op": "eq", "value": true}]},
        {"field": "n", "op": "gt", "value": 8},
        {"field": "logit_bias", "op": "exists"},
        {"all": [{"field": "max_tokens", "op": "absent"}, {"field": "max_tokens", "op": "le", "value": 0}]}])
}

fn judge(bencher: Bencher<'_, '_>, rules: &Json, body: &str) {
    let rules = RuleList::parse(rules).and_then(|list| RuleSet::compile(&list, MatchSyntax::Regex)).unwrap_or_default();
    assert!(!rules.is_empty());
    assert!(rules.judge(body.as_bytes()).is_none() && rules.explain(body.as_bytes()).is_some());
    bencher.counter(BytesCount::of_str(body)).bench_local(|| rules.judge(black_box(body.as_bytes())).is_some());
}

#[divan::bench(args = SIZES)]
fn twenty_on_english(bencher: Bencher<'_, '_>, size: usize) {
    judge(bencher, &twenty_conditions(), &bodies::chat(Text::English, size));
}

#[divan::bench(args = SIZES)]
fn twenty_on_chinese(bencher: Bencher<'_, '_>, size: usize) {
    judge(bencher, &twenty_conditions(), &bodies::chat(Text::Chinese, size));
}

#[divan::bench(args = SIZES)]
fn one_on_english(bencher: Bencher<'_, '_>, size: usize) {
    let rule = json!([{"field": "model", "op": "eq", "value": "danger"}]);
    judge(bencher, &rule, &bodies::chat(Text::English, size));
}
