//! Random rules on random bodies, against a naive reading of the specification on a parsed tree.

use proptest::prelude::*;
use serde_json::Map;

use super::*;

/// The specification, word by word.
fn naive(rule: &Json, body: &Json, length: usize) -> bool {
    if let Some(all) = rule.get("all") {
        return all.as_array().unwrap().iter().all(|node| naive(node, body, length));
    }
    if let Some(any) = rule.get("any") {
        return any.as_array().unwrap().iter().any(|node| naive(node, body, length));
    }
    let seen = field(rule["field"].as_str().unwrap(), body, length);
    let value = &rule["value"];
    let numbers = || Some((seen.as_ref()?.as_f64()?, value.as_f64()?));
    let texts = || Some((seen.as_ref()?.as_str()?, value.as_str()?));
    let same = |one: &Json| match (&seen, one) {
        (Some(Json::Number(left)), Json::Number(right)) => left.as_f64() == right.as_f64(),
        (Some(Json::Array(_) | Json::Object(_)) | None, _) => false,
        (Some(left), right) => left == right,
    };
    match rule["op"].as_str().unwrap() {
        "gt" => numbers().is_some_and(|(left, right)| left > right),
        "ge" => numbers().is_some_and(|(left, right)| left >= right),
        "lt" => numbers().is_some_and(|(left, right)| left < right),
        "le" => numbers().is_some_and(|(left, right)| left <= right),
        "eq" => same(value),
        "ne" => !same(value),
        "in" => value.as_array().unwrap().iter().any(same),
        "nin" => !value.as_array().unwrap().iter().any(same),
        "match" => texts().is_some_and(|(left, right)| regex::Regex::new(right).unwrap().is_match(left)),
        "contains" => texts().is_some_and(|(left, right)| left.contains(right)),
        "prefix" => texts().is_some_and(|(left, right)| left.starts_with(right)),
        "exists" => seen.is_some(),
        "absent" => seen.is_none(),
        other => panic!("{other}"),
    }
}

fn field(name: &str, body: &Json, length: usize) -> Option<Json> {
    let list = |name: &str| body.get(name).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let count = |text: &Json| text.as_str().map(|text| text.chars().count());
    let part =
        |part: &Json| count(part).or_else(|| count(&part["text"])).or_else(|| count(&part["content"])).unwrap_or(0);
    Some(match name {
        "input_bytes" => json!(length),
        "messages_count" => json!(list("messages").len()),
        "tools_count" => json!(list("tools").len()),
        "input_chars" => {
            let of = |message: &Json| match &message["content"] {
                Json::Array(parts) => parts.iter().map(part).sum(),
                content => count(content).unwrap_or(0),
            };
            json!(list("messages").iter().map(of).sum::<usize>())
        }
        path => path.split('.').try_fold(body, |at, name| at.as_object()?.get(name))?.clone(),
    })
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "messages", "tools", "content", "text", "é\"\\"]).prop_map(str::to_owned)
}

fn scalar() -> impl Strategy<Value = Json> {
    let texts = prop::sample::select(vec!["", "a", "ab", "abc", "b", "你a", "\"\\\n", "😀"]);
    // Whole numbers that doubles hold exactly: so the naive reading compares them rightly.
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-3_i32..8).prop_map(Json::from),
        (-3_i32..8).prop_map(|half| json!(f64::from(half) / 2.0)),
        texts.prop_map(Json::from),
    ]
}

fn value() -> impl Strategy<Value = Json> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

fn body() -> impl Strategy<Value = Json> {
    let object = prop::collection::vec((name(), value()), 0..6)
        .prop_map(|fields| Json::from(fields.into_iter().collect::<Map<_, _>>()));
    prop_oneof![9 => object, 1 => prop::collection::vec(value(), 0..3).prop_map(Json::from)]
}

fn path() -> impl Strategy<Value = String> {
    let measures = ["input_bytes", "input_chars", "messages_count", "tools_count"];
    prop_oneof![
        prop::sample::select(measures.to_vec()).prop_map(str::to_owned),
        prop::collection::vec(name(), 1..4).prop_map(|names| names.join(".")),
    ]
}

fn leaf() -> impl Strategy<Value = Json> {
    let plain = scalar().prop_filter("eq takes no null", |value| !value.is_null());
    let number =
        prop_oneof![(-3_i32..40).prop_map(Json::from), (-3_i32..8).prop_map(|half| json!(f64::from(half) / 2.0))];
    let text = prop::sample::select(vec!["", "a", "ab", "b", "你", "\""]).prop_map(Json::from);
    let op_and_value = prop_oneof![
        (prop::sample::select(vec!["gt", "ge", "lt", "le"]), number.boxed()),
        (prop::sample::select(vec!["eq", "ne"]), plain.boxed()),
        (prop::sample::select(vec!["in", "nin"]), prop::collection::vec(scalar(), 0..4).prop_map(Json::from).boxed()),
        (prop::sample::select(vec!["match", "contains", "prefix"]), text.boxed()),
        (prop::sample::select(vec!["exists", "absent"]), Just(Json::Null).boxed()),
    ];
    (path(), op_and_value).prop_map(|(field, (op, value))| match op {
        "exists" | "absent" => json!({"field": field, "op": op}),
        _ => json!({"field": field, "op": op, "value": value}),
    })
}

fn node() -> impl Strategy<Value = Json> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        (prop::sample::select(vec!["all", "any"]), prop::collection::vec(inner, 1..4))
            .prop_map(|(name, nodes)| json!({name: nodes}))
    })
}

/// With all that is no letter or digit of ASCII written as an escape, and space between everything.
fn written_otherwise(json: &Json) -> String {
    let text = |text: &str| {
        let escape = |unit: u16| format!("\\u{unit:04x}");
        format!("\"{}\"", text.encode_utf16().map(escape).collect::<String>())
    };
    match json {
        Json::String(one) => text(one),
        Json::Array(items) => {
            format!("[ {} ]", items.iter().map(written_otherwise).collect::<Vec<_>>().join("\n,\t"))
        }
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| format!("{} : {}", text(name), written_otherwise(value));
            // Each stands twice; the last counts.
            let twice = |(name, value): (&String, &Json)| format!("{}:[{{}}], {}", text(name), field((name, value)));
            format!("{{\r\n{} }}", fields.iter().map(twice).collect::<Vec<_>>().join(" , "))
        }
        Json::Number(number) => format!("{number}e0"),
        other => other.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_naive_reading_agrees(rules in prop::collection::vec(node(), 1..5), body in body()) {
        let ready = set(&Json::from(rules.clone()));
        for text in [body.to_string(), written_otherwise(&body)] {
            let expected = rules.iter().position(|rule| naive(rule, &body, text.len())).map(|place| format!("rule{}", place + 1));
            let verdict = ready.judge(text.as_bytes());
            prop_assert_eq!(verdict.map(|verdict| verdict.rule.to_owned()), expected, "{}", &text);
            let told = ready.explain(text.as_bytes()).unwrap();
            prop_assert_eq!(told.verdict, verdict);
            for (told, rule) in told.rules.iter().zip(&rules) {
                prop_assert_eq!(told.condition.is_met, naive(rule, &body, text.len()));
            }
        }
    }

    #[test]
    fn no_bytes_panic(rules in prop::collection::vec(node(), 1..3), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = set(&Json::from(rules)).judge(&bytes);
    }

    #[test]
    fn no_half_body_panics_or_is_judged(rules in prop::collection::vec(node(), 1..3), body in body(), part in 0.0_f64..1.0) {
        let text = body.to_string();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place")]
        let end = (text.len() as f64 * part) as usize;
        let ready = set(&Json::from(rules));
        prop_assert_eq!(ready.judge(&text.as_bytes()[..end]), None);
        prop_assert!(ready.explain(text.as_bytes()).is_some(), "the control");
    }

    #[test]
    fn no_rules_panic_and_what_is_read_reads_back(rules in value()) {
        let (stored, _) = RuleList::parse_stored(&rules);
        prop_assert_eq!(RuleList::parse(&stored.to_json()).unwrap().rules().len(), stored.rules().len());
    }

    #[test]
    fn rules_read_back(rules in prop::collection::vec(node(), 0..4)) {
        let list = RuleList::parse(&Json::from(rules.clone())).unwrap();
        prop_assert_eq!(list.to_json(), Json::from(rules));
        prop_assert_eq!(RuleList::parse(&list.to_json()).unwrap(), list);
    }

    #[test]
    fn no_pattern_panics(pattern in "[a-c%\\[\\]()^$.*+?\\-]{0,12}", text in "[a-c%)\\]]{0,6}", lua: bool) {
        let syntax = if lua { MatchSyntax::Lua } else { MatchSyntax::Regex };
        let list = RuleList::parse(&json!([{"field": "f", "op": "contains", "value": text},
            {"field": "f", "op": "match", "value": pattern}]));
        if let Ok(list) = list {
            let _ = RuleSet::of_valid(&list, syntax).judge(json!({"f": text}).to_string().as_bytes());
        }
    }
}
