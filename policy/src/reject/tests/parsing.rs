//! How rules are read: strictly when they are new, as far as they go when they are stored (payloads.md §4.4, rulings §6).

use super::*;

fn problems(rules: &Json) -> Vec<String> {
    RuleList::parse(rules).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn everything_that_is_wrong_is_named_with_its_place_and_what_is_allowed() {
    let rules = json!([
        {"field": "x", "op": "exists"},
        7,
        {"all": [{"field": "a", "op": "gt", "value": "5"}, {"field": "a", "op": "like"}, 3, {"any": []}, {"op": "eq"}]},
        {"any": {"field": "x"}},
        {"feild": "x", "op": "exists"},
        {"field": "x", "op": "exists", "value": 1, "name": 3, "status": "429", "message": ""},
        {"all": [{"field": "x", "op": "exists", "name": "inner"}], "field": "y", "any": []},
        {"field": "a..b", "op": "match", "value": 5},
        {"field": ".", "op": "in", "value": [1, [2], {}]},
        {"field": "x", "op": "eq", "value": null},
        {"field": "x", "op": "ne", "value": {"a": 1}},
        {"field": "x", "op": "lt"},
        {"field": "", "op": 4},
        {"field": "x", "op": "exists", "status": 399.5},
        {}]);
    let found = problems(&rules);
    for expected in [
        "[1]: rule expected, an object, got number",
        "[2].all[0].value: number expected by gt, got string",
        "[2].all[1].op: unknown operator 'like'; allowed: gt, ge, lt, le, eq, ne, in, nin, match, contains, prefix, \
         exists, absent",
        "[2].all[2]: condition expected, an object, got number",
        "[2].all[3].any: empty list; allowed: one condition or more",
        "[2].all[4].field: missing; a condition has a field and an op, or `all`, or `any`",
        "[3].any: list of conditions expected, got object",
        "[4].feild: unknown field; allowed: field, op, value, all, any, name, status, message",
        "[5].value: exists takes no value",
        "[5].name: string expected, got number",
        "[5].status: number expected, got string; allowed: 400..=599",
        "[5].message: 0 characters; allowed: 1..=1024, no control characters",
        "[6].all[0].name: unknown field; allowed: field, op, value, all, any",
        "[6].field: no place beside `all`: one condition has one of them",
        "[6].any: no place beside `all`: one condition has one of them",
        "[7].field: path with an empty name; allowed: names with one dot between two",
        "[7].value: string expected by match, got number",
        "[8].field: path of 0 names; allowed: 1..=32, with a dot between two",
        "[8].value[1]: string, number, boolean or null expected, got list",
        "[8].value[2]: string, number, boolean or null expected, got object",
        "[9].value: string, number or boolean expected by eq, got null",
        "[10].value: string, number or boolean expected by ne, got object",
        "[11].value: missing; lt compares with one",
        "[12].field: empty",
        "[12].op: word expected, got number; allowed: gt, ge, lt, le, eq, ne, in, nin, match, contains, prefix, exists, absent",
        "[13].status: 399.5 is no status of a refusal; allowed: 400..=599",
        "[14].field: missing; a condition has a field and an op, or `all`, or `any`",
    ] {
        assert!(found.iter().any(|one| one == expected), "{expected} is not in:\n{}", found.join("\n"));
    }
    assert!(!found.iter().any(|one| one.starts_with("[0]")));
    for wrong in [json!({"field": "x", "op": "exists"}), json!("x"), json!(1)] {
        assert_eq!(problems(&wrong).len(), 1, "{wrong}");
        assert!(problems(&wrong)[0].starts_with("list of rules expected, got "), "{wrong}");
    }
    assert!(problems(&json!([])).is_empty() && problems(&Json::Null).is_empty());
}

#[test]
fn a_stored_list_keeps_what_can_be_used_as_the_session_router_reads_it() {
    let (rules, complaints) = RuleList::parse_stored(&json!([
        {"all": [{"field": "x", "op": "exists"}], "any": [], "field": "y", "more": 1, "name": "", "status": "a"},
        {"any": [{"field": "x", "op": "exists"}, {"field": "x", "op": "like"}]},
        {"field": "a..b.", "op": "exists", "value": 3, "message": 5}]));
    assert_eq!(complaints.len(), 9, "{complaints:?}");
    let told: Vec<(&str, String)> = rules.rules().iter().map(|rule| (rule.name(), rule.condition())).collect();
    assert_eq!(told, [("rule1", "ALL(x exists)".to_owned()), ("rule3", "a.b exists".to_owned())]);
    let again = RuleList::parse(&rules.to_json()).unwrap();
    let told_again: Vec<(&str, String)> = again.rules().iter().map(|rule| (rule.name(), rule.condition())).collect();
    assert_eq!(told_again, told);
    // The control: what is as it should be stays as it was written.
    let written = json!([{"op": "exists", "field": "x"}, {"status": 400, "field": "y", "op": "absent"}]);
    assert_eq!(RuleList::parse_stored(&written).0.to_json().to_string(), written.to_string());
}

#[test]
fn the_limits_are_for_mistakes() {
    let nested = |depth: usize| {
        let mut node = json!({"field": "x", "op": "exists"});
        for _ in 1..depth {
            node = json!({"all": [node]});
        }
        json!([node])
    };
    assert!(problems(&nested(32)).is_empty());
    assert!(problems(&nested(33))[0].ends_with("conditions nested too deep; allowed: 32 levels"));
    let leaf = json!({"field": "x", "op": "exists"});
    assert!(problems(&Json::from(vec![leaf.clone(); 1000])).is_empty());
    for many in [Json::from(vec![leaf.clone(); 3000]), json!([{"any": vec![leaf; 3000]}])] {
        let found = problems(&many);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("too many conditions; allowed: 1000"), "{found:?}");
    }
    let of = |op: &str, value: Json| json!([{"field": "x", "op": op, "value": value}]);
    assert!(problems(&of("in", Json::from(vec![1; 10_000]))).is_empty());
    assert_eq!(problems(&of("in", Json::from(vec![1; 10_001]))), ["[0].value: 10001 values; allowed: 10000"]);
    assert!(problems(&of("eq", json!("x".repeat(4096)))).is_empty());
    assert_eq!(problems(&of("eq", json!("x".repeat(4097)))), ["[0].value: 4097 bytes; allowed: 4096"]);
    assert_eq!(problems(&of("in", json!(["x".repeat(4097)]))), ["[0].value[0]: 4097 bytes; allowed: 4096"]);
    let patterns = |count: usize| Json::from(vec![json!({"field": "x", "op": "match", "value": "a"}); count]);
    assert!(problems(&patterns(200)).is_empty());
    assert!(problems(&patterns(201))[0].contains("too many patterns; allowed: 200"));
    assert!(problems(&json!([{"field": "a.".repeat(40), "op": "exists"}]))[0].contains("path of 40 names"));
    assert!(problems(&json!([{"field": "a".repeat(600), "op": "exists"}]))[0].contains("600 bytes"));
    let shown = &problems(&json!([{"field": "x", "op": "y\n".repeat(300)}]))[0];
    assert!(shown.len() < 200 && !shown.contains('\n'), "{shown}");
}

#[test]
fn payloads_9_conditions_as_the_status_page_tells_them() {
    let rules = RuleList::parse(&json!([
        {"field": "a", "op": "in", "value": ["x", 1, true, null]},
        {"all": [{"field": "a", "op": "gt", "value": 1.5}, {"any": [{"field": "b", "op": "exists"},
            {"field": "c", "op": "prefix", "value": "x y"}]}]}]))
    .unwrap();
    let told: Vec<String> = rules.rules().iter().map(Rule::condition).collect();
    assert_eq!(told, ["a in [x,1,true,null]", "ALL(a gt 1.5 & ANY(b exists | c prefix x y))"]);
}

#[test]
fn lists_and_sets_are_equal_by_what_they_say() {
    let list = |name: &str| RuleList::parse(&json!([{"name": name, "field": "x", "op": "exists"}])).unwrap();
    assert_eq!(list("a"), list("a"));
    assert_ne!(list("a"), list("b"));
    let ready = |name: &str, syntax| RuleSet::of_valid(&list(name), syntax);
    assert_eq!(ready("a", MatchSyntax::Lua), ready("a", MatchSyntax::Lua));
    assert_ne!(ready("a", MatchSyntax::Lua), ready("a", MatchSyntax::Regex));
    assert_ne!(ready("a", MatchSyntax::Lua), ready("b", MatchSyntax::Lua));
}

#[test]
fn fields_that_are_most_likely_slips_are_doubted() {
    let doubt = |field: &str| {
        let rules = RuleList::parse(&json!([{"field": "x", "op": "exists"},
            {"all": [{"field": "y", "op": "exists"}, {"any": [{"field": field, "op": "exists"}]}]}]));
        let doubts: Vec<String> = rules.unwrap().doubts().iter().map(ToString::to_string).collect();
        assert!(doubts.len() <= 1, "{doubts:?}");
        doubts.into_iter().next()
    };
    for (field, measure) in [
        ("inputchars", "input_chars"),
        ("inputChars", "input_chars"),
        ("input_char", "input_chars"),
        ("input_cahrs", "input_chars"),
        ("input-bytes", "input_bytes"),
        ("message_count", "messages_count"),
        ("messages.count", "messages_count"),
        ("tool_count", "tools_count"),
    ] {
        let told =
            format!("[1].all[1].any[0].field: a name of the body, and not the measure {measure}: is that meant?");
        assert_eq!(doubt(field), Some(told), "{field}");
    }
    for place in ["messages.0.role", "messages[0].role", "tools[12]", "0"] {
        assert!(doubt(place).is_some_and(|told| told.contains("not into lists")), "{place}");
    }
    // The control: measures, and names that requests really have.
    for known in [
        "input_chars",
        "input_bytes",
        "messages_count",
        "tools_count",
        "model",
        "messages",
        "tools",
        "input",
        "tool_choice",
        "metadata.user_id",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "stream_options.include_usage",
        "top_logprobs",
        "reasoning.effort",
        "metadata.v2",
        "a[b]",
        "[]",
    ] {
        assert_eq!(doubt(known), None, "{known}");
    }
    assert_eq!(doubt(&"ü".repeat(250)), None);
}
