mod examples;
mod parsing;
mod patterns;
mod properties;

use serde_json::{Value as Json, json};

use super::*;

/// Rules that must be valid.
fn set(rules: &Json) -> RuleSet {
    set_in(rules, MatchSyntax::Regex)
}

fn set_in(rules: &Json, syntax: MatchSyntax) -> RuleSet {
    RuleSet::compile(&RuleList::parse(rules).unwrap(), syntax).unwrap()
}

/// Whether a body is refused by the one rule `field op value`.
fn meets(field: &str, op: &str, value: &Json, body: &str) -> bool {
    let mut rule = json!({"field": field, "op": op});
    if !value.is_null() {
        rule["value"] = value.clone();
    }
    set(&json!([rule])).judge(body.as_bytes()).is_some()
}
