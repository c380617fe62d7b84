//! What rules say in words, for status pages (payloads.md §9). Read from the list as it is written, so it says what the
//! operator wrote, not what was made of it.

use serde_json::{Map, Value as Json};

use super::RuleList;

/// One rule of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleText {
    /// Its name; `rule1` for the first of the list when it has none (payloads.md §4.4).
    pub name: String,
    /// Its own status.
    pub status: Option<u16>,
    /// When it is met: `input_bytes gt 500`, `ALL(model eq m & tier in [a,b])`.
    pub condition: String,
}

/// Every rule, in the order in which they are asked.
pub fn describe(rules: &RuleList) -> Vec<RuleText> {
    match rules.to_json() {
        Json::Array(rules) => (1..).zip(&rules).map(|(place, rule)| rule_text(place, rule)).collect(),
        _ => Vec::new(),
    }
}

fn rule_text(place: usize, rule: &Json) -> RuleText {
    let name = rule.get("name").and_then(Json::as_str).map(str::to_owned);
    let status = rule.get("status").and_then(Json::as_u64);
    let mut condition = String::new();
    write_node(&mut condition, rule);
    RuleText {
        name: name.unwrap_or_else(|| format!("rule{place}")),
        status: status.and_then(|status| u16::try_from(status).ok()),
        condition,
    }
}

/// A list of rules is only as deep as a JSON document may be.
fn write_node(out: &mut String, node: &Json) {
    let Some(node) = node.as_object() else { return };
    // `all` alone counts where there are both (payloads.md §4.1).
    for (key, word, between) in [("all", "ALL", " & "), ("any", "ANY", " | ")] {
        if let Some(Json::Array(children)) = node.get(key) {
            out.push_str(word);
            out.push('(');
            for (place, child) in children.iter().enumerate() {
                if place > 0 {
                    out.push_str(between);
                }
                write_node(out, child);
            }
            out.push(')');
            return;
        }
    }
    write_leaf(out, node);
}

fn write_leaf(out: &mut String, leaf: &Map<String, Json>) {
    let word = |key: &str| leaf.get(key).and_then(Json::as_str).unwrap_or_default();
    let op = word("op");
    out.push_str(word("field"));
    out.push(' ');
    out.push_str(op);
    if let Some(value) = leaf.get("value").filter(|_| !matches!(op, "exists" | "absent")) {
        out.push(' ');
        write_value(out, value);
    }
}

/// Text stands without quotes, as the session router shows it.
fn write_value(out: &mut String, value: &Json) {
    match value {
        Json::String(text) => out.push_str(text),
        Json::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(rule: &Json) -> RuleText {
        rule_text(3, rule)
    }

    #[test]
    fn payloads_9_conditions_in_words() {
        for (rule, condition) in [
            (json!({"field": "input_bytes", "op": "gt", "value": 500}), "input_bytes gt 500"),
            (json!({"field": "tier", "op": "nin", "value": ["a", "b"]}), "tier nin [a,b]"),
            (json!({"field": "x", "op": "exists"}), "x exists"),
            (json!({"field": "x", "op": "absent", "value": 1}), "x absent"),
            (json!({"field": "stream", "op": "eq", "value": false}), "stream eq false"),
            (json!({"field": "o", "op": "eq", "value": {"a": "b"}}), r#"o eq {"a":"b"}"#),
            (
                json!({"all": [{"field": "model", "op": "eq", "value": "m"}, {"any": [
                    {"field": "t", "op": "gt", "value": 1.5}, {"field": "n", "op": "exists"}]}], "any": []}),
                "ALL(model eq m & ANY(t gt 1.5 | n exists))",
            ),
        ] {
            assert_eq!(text(&rule).condition, condition);
        }
    }

    #[test]
    fn payloads_4_4_names_and_statuses() {
        let named = text(&json!({"name": "big", "status": 413, "field": "x", "op": "exists"}));
        assert_eq!((named.name.as_str(), named.status), ("big", Some(413)));
        let plain = text(&json!({"field": "x", "op": "exists"}));
        assert_eq!((plain.name.as_str(), plain.status), ("rule3", None));
    }

    #[test]
    fn what_is_no_rule_is_told_as_it_is() {
        // A document that was stored by another version.
        for odd in [json!(null), json!([]), json!({}), json!({"all": 5}), json!({"field": 1, "op": 2, "status": -1})] {
            assert_eq!(text(&odd).name, "rule3");
        }
    }
}
