//! The worked examples of payloads.md §10.3, and what they leave open.

use super::*;

const NONE: Json = Json::Null;

#[test]
fn payloads_10_3_example_30_no_coercion() {
    for (body, is_met) in [(r#"{"max_tokens":5}"#, true), (r#"{"max_tokens":"5"}"#, false), ("{}", false)] {
        assert_eq!(meets("max_tokens", "lt", &json!(10), body), is_met, "{body}");
    }
}

#[test]
fn payloads_10_3_example_31_a_status_of_its_own() {
    let rules = set(&json!([{"field": "input_bytes", "op": "gt", "value": 500, "status": 413}]));
    let body = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
    let verdict = Verdict { rule: "rule1", status: Some(413), message: None };
    assert_eq!(rules.judge(body(600).as_bytes()), Some(verdict));
    assert_eq!(rules.judge(body(500).as_bytes()), None);
}

#[test]
fn payloads_10_3_example_32_all() {
    let all = json!({"all": [
        {"field": "model", "op": "eq", "value": "danger"}, {"field": "temperature", "op": "gt", "value": 1.5}]});
    let rules = set(&json!([all]));
    assert_eq!(rules.judge(br#"{"model":"danger","temperature":0.5}"#), None);
    let verdict = Verdict { rule: "rule1", status: None, message: None };
    assert_eq!(rules.judge(br#"{"model":"danger","temperature":2.0}"#), Some(verdict));
}

#[test]
fn payloads_10_3_examples_33_34_35_absent_fields() {
    assert!(meets("tier", "ne", &json!("keep"), "{}"));
    assert!(!meets("tier", "ne", &json!("keep"), r#"{"tier":"keep"}"#));
    assert!(meets("tier", "nin", &json!(["a", "b"]), "{}"));
    assert!(!meets("tier", "nin", &json!(["a", "b"]), r#"{"tier":"a"}"#));
    assert!(meets("x", "exists", &NONE, r#"{"x":null}"#));
    assert!(!meets("x", "exists", &NONE, "{}"));
    assert!(meets("x", "absent", &NONE, "{}"));
    assert!(!meets("x", "absent", &NONE, r#"{"x":null}"#));
}

/// Rulings §7: patterns are regular expressions, unless the route says `match_syntax: lua`.
#[test]
fn payloads_10_3_example_36_patterns() {
    let rule = |pattern: &str| json!([{"field": "f", "op": "match", "value": pattern}]);
    let body = br#"{"f":"an err5 here"}"#;
    assert!(set_in(&rule("err%d"), MatchSyntax::Lua).judge(body).is_some());
    assert!(set(&rule("err%d")).judge(body).is_none(), "no class in a regular expression");
    assert!(set(&rule(r"err\d")).judge(body).is_some());
    assert!(set(&rule(r"err\d")).judge(br#"{"f":"an errx"}"#).is_none());
    assert!(set(&rule(r"^\p{Han}+$")).judge(r#"{"f":"你好"}"#.as_bytes()).is_some());
}

#[test]
fn payloads_10_3_example_37_characters_of_messages() {
    let chars = |count: u64| json!([{"field": "input_chars", "op": "eq", "value": count}]);
    for (content, count) in [
        (r#""你好世界""#, 4),
        (r#""\u4f60\ud83d\ude00\n""#, 3),
        (
            r#"[{"type":"text","text":"ab"},{"content":"cd"},"ef",{"text":1,"content":"g"},{"text":"h","content":"xx"},7]"#,
            8,
        ),
        ("null", 0),
        (r#"{"text":"abc"}"#, 0),
    ] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":{content}}}, "bare", [1]], "prompt":"xxx"}}"#);
        assert!(set(&chars(count)).judge(body.as_bytes()).is_some(), "{content}");
    }
    assert!(
        set(&json!([{"field": "input_chars", "op": "gt", "value": 3}]))
            .judge(r#"{"messages":[{"content":"你好世界"}]}"#.as_bytes())
            .is_some()
    );
}

#[test]
fn payloads_10_3_example_38_no_places_of_lists() {
    for body in [r#"{"messages":[{"role":"user"}]}"#, "{}", "[1]"] {
        assert!(!meets("messages.0", "exists", &NONE, body), "{body}");
    }
    assert!(meets("messages.0", "exists", &NONE, r#"{"messages":{"0":1}}"#), "an object may have that name");
}

/// Rulings §6: a new document with a bad rule is refused; only a stored one is read as the example says.
#[test]
fn payloads_10_3_example_39_a_stored_bad_rule_is_left_out_alone() {
    let rules = json!([{"field": "x", "op": "like", "value": 1}, {"field": "x", "op": "exists"}]);
    let problems = RuleList::parse(&rules).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].node, "[0].op");
    assert!(problems[0].problem.starts_with("unknown operator 'like'; allowed: gt, ge, "), "{}", problems[0]);
    let (stored, complaints) = RuleList::parse_stored(&rules);
    assert_eq!(complaints, problems);
    let names: Vec<&str> = stored.rules().iter().map(Rule::name).collect();
    assert_eq!(names, ["rule2"]);
    // The replica reads what the control plane has understood: the name must not change with the place.
    let again = RuleList::parse(&stored.to_json()).unwrap();
    assert_eq!(again.rules()[0].name(), "rule2");
    let set = RuleSet::of_valid(&again, MatchSyntax::Regex);
    assert_eq!(set.judge(br#"{"x":1}"#).unwrap().rule, "rule2");
}

/// Rulings §6, as above.
#[test]
fn payloads_10_3_example_40_a_stored_bad_status_is_the_route_s() {
    let rules = json!([{"field": "x", "op": "exists", "status": 999}]);
    assert_eq!(
        RuleList::parse(&rules).unwrap_err()[0].to_string(),
        "[0].status: 999 is no status of a refusal; allowed: 400..=599"
    );
    let (stored, _) = RuleList::parse_stored(&rules);
    let verdict = Verdict { rule: "rule1", status: None, message: None };
    assert_eq!(RuleSet::of_valid(&stored, MatchSyntax::Regex).judge(br#"{"x":1}"#), Some(verdict));
    assert!(RuleList::parse(&stored.to_json()).is_ok());
}

#[test]
fn the_first_rule_that_is_met_decides() {
    let rules = set(&json!([
        {"field": "a", "op": "exists", "name": "first", "message": "no a"},
        {"any": [{"field": "a", "op": "exists"}, {"field": "b", "op": "exists"}], "status": 400}]));
    let first = Verdict { rule: "first", status: None, message: Some("no a") };
    assert_eq!(rules.judge(br#"{"b":1,"a":1}"#), Some(first));
    assert_eq!(rules.judge(br#"{"b":1}"#).map(|verdict| (verdict.rule, verdict.status)), Some(("rule2", Some(400))));
    assert_eq!(rules.judge(b"{}"), None);
}

#[test]
fn only_objects_and_lists_in_utf_8_are_judged() {
    let rules = set(&json!([{"field": "input_bytes", "op": "ge", "value": 0}]));
    for judged in ["{}", " [ ] ", "[{\"a\":1}]", "\n{\"a\":\"\\ud800\"}", "{\"\\ud800\":1}"] {
        assert!(rules.judge(judged.as_bytes()).is_some(), "{judged}");
    }
    for not in
        ["", " ", "1", "\"{}\"", "null", "{", "{}{}", "{\"a\":}", "[1,]", "{}\u{feff}", "--x\r\n{}", "{\"a\":NaN}"]
    {
        assert!(rules.judge(not.as_bytes()).is_none(), "{not}");
    }
    assert!(rules.judge(b"{\"a\":\"\xff\"}").is_none());
    // A list has no fields, whatever stands in it.
    assert!(meets("messages_count", "eq", &json!(0), r#"[{"messages":[1]}]"#));
    assert!(meets("a", "absent", &NONE, r#"[{"a":1}]"#));
    assert!(meets("input_bytes", "eq", &json!(4), " [] "));
}

#[test]
fn numbers_are_compared_by_value_and_exactly() {
    for (value, body, is_equal) in [
        (json!(1), "1.0", true),
        (json!(1), "10e-1", true),
        (json!(1), "true", false),
        (json!(1), "\"1\"", false),
        (json!(0), "-0", true),
        (json!(9_007_199_254_740_993_u64), "9007199254740992", false),
        (json!(9_007_199_254_740_993_u64), "9007199254740993", true),
        (json!(0.1), "0.1", true),
        (json!(0.1), "0.1000000000000000055511151231257827", false),
    ] {
        let body = format!("{{\"x\":{body}}}");
        assert_eq!(meets("x", "eq", &value, &body), is_equal, "{value} {body}");
        assert_eq!(meets("x", "ne", &value, &body), !is_equal, "{value} {body}");
        assert_eq!(meets("x", "in", &json!([7, value.clone(), "z"]), &body), is_equal, "{value} {body}");
    }
    // Beyond what a double holds, on the client's side.
    assert!(meets("x", "gt", &json!(1e300), "{\"x\":1e999}"));
    assert!(meets("x", "lt", &json!(-5), "{\"x\":-1e999}"));
    assert!(!meets("x", "ge", &json!(10), "{\"x\":9.9999999999999999999999}"));
}

#[test]
fn texts_are_compared_without_their_escapes_and_names_too() {
    let body = r#"{"m\u006fdel":"d\u0061nger","met\u0061":{"us\u0065r":"\u4f60"}}"#;
    for (field, op, value) in [
        ("model", "eq", json!("danger")),
        ("model", "in", json!(["danger"])),
        ("model", "contains", json!("ang")),
        ("model", "contains", json!("")),
        ("model", "prefix", json!("da")),
        ("model", "prefix", json!("")),
        ("model", "match", json!("^d.nger$")),
        ("meta.user", "eq", json!("你")),
    ] {
        assert!(meets(field, op, &value, body), "{field} {op}");
    }
    assert!(!meets("model", "contains", &json!("u0061"), body));
    assert!(!meets("model", "prefix", &json!("danger!"), body));
    assert!(!meets("x", "contains", &json!(""), r#"{"x":[]}"#), "a list is no text");
    assert!(meets("x", "eq", &json!(""), r#"{"x":""}"#));
}

#[test]
fn kinds_do_not_mix_and_lists_and_objects_equal_nothing() {
    for (value, body, is_in) in [
        ("[true]", "true", true),
        ("[true]", "false", false),
        ("[null]", "null", true),
        ("[\"null\"]", "null", false),
        ("[1,\"a\",false]", "[1]", false),
        ("[]", "1", false),
        ("[\"\"]", "{}", false),
    ] {
        let (list, body) = (serde_json::from_str(value).unwrap(), format!("{{\"x\":{body}}}"));
        assert_eq!(meets("x", "in", &list, &body), is_in, "{value} {body}");
        assert_eq!(meets("x", "nin", &list, &body), !is_in, "{value} {body}");
    }
    assert!(!meets("x", "in", &json!([null]), "{}"), "absent is not null");
    assert!(meets("x", "eq", &json!(false), r#"{"x":false}"#));
    assert!(meets("x", "ne", &json!("a"), r#"{"x":["a"]}"#));
    assert!(meets("x", "exists", &NONE, r#"{"x":[]}"#));
}

#[test]
fn of_a_name_that_stands_twice_the_last_counts() {
    assert!(meets("x", "eq", &json!(2), r#"{"x":1,"x":2}"#));
    assert!(!meets("x", "eq", &json!(1), r#"{"x":1,"\u0078":2}"#));
    assert!(meets("a.b", "absent", &NONE, r#"{"a":{"b":1},"a":{}}"#));
    assert!(meets("a.b.c", "absent", &NONE, r#"{"a":{"b":{"c":1},"b":7}}"#));
    assert!(meets("messages_count", "eq", &json!(1), r#"{"messages":[1,2],"messages":[3]}"#));
    assert!(meets("messages_count", "eq", &json!(0), r#"{"messages":[1,2],"messages":{}}"#));
    assert!(meets("input_chars", "eq", &json!(1), r#"{"messages":[{"content":"abc","content":"a"}]}"#));
}

#[test]
fn a_value_and_what_is_in_it_can_both_be_asked_for() {
    let rules = set(&json!([{"all": [
        {"field": "messages", "op": "exists"}, {"field": "messages_count", "op": "eq", "value": 2},
        {"field": "input_chars", "op": "eq", "value": 3}, {"field": "tools_count", "op": "eq", "value": 1},
        {"field": "meta", "op": "exists"}, {"field": "meta.a", "op": "exists"}, {"field": "meta.a.b", "op": "eq", "value": 1},
        {"field": "meta.a.c", "op": "absent"}]}]));
    let body = br#"{"tools":[{}],"meta":{"z":[{"a":0}],"a":{"b":1}},"messages":[{"content":"ab"},{"content":["c"]}]}"#;
    assert!(rules.judge(body).is_some());
    assert!(rules.judge(&body.to_ascii_uppercase()).is_none());
}

#[test]
fn hostile_bodies_take_bounded_time() {
    let rules = set(&json!([{"any": [
        {"field": "a.b", "op": "eq", "value": "x"}, {"field": "messages_count", "op": "gt", "value": 4_000_000},
        {"field": "input_chars", "op": "gt", "value": 100_000_000}, {"field": "n", "op": "gt", "value": 5},
        {"field": "s", "op": "match", "value": "(a*)*b$"}, {"field": "s", "op": "contains", "value": "ab"}]}]));
    let million = 1_000_000;
    let bodies = [
        format!("{{\"a\":{}1{}}}", "[".repeat(million), "]".repeat(million)),
        format!("{{\"a\":{}1{}}}", "{\"b\":".repeat(million), "}".repeat(million)),
        format!("{{\"messages\":{}{}}}", "[".repeat(million), "]".repeat(million)),
        format!("{{\"a\":{{{}\"b\":1}}}}", "\"b\":{},".repeat(million)),
        format!("{{{}\"b\":1}}", "\"a\":{\"b\":2},".repeat(million)),
        format!("{{\"n\":0.{}1}}", "0".repeat(10 * million)),
        format!("{{\"n\":-{}}}", "9".repeat(10 * million)),
        format!("{{\"s\":\"{}\"}}", "a".repeat(10 * million)),
        format!("{{\"s\":\"{}\"}}", "\\u0061".repeat(million)),
        format!("{{\"messages\":[{{\"content\":\"{}\"}}]}}", "\\n".repeat(5 * million)),
        format!("{{\"messages\":[{}1]}}", "{\"content\":[\"\"]},".repeat(million / 2)),
        format!("{{\"messages\":[{{\"content\":{}{}}}]}}", "[".repeat(million), "]".repeat(million)),
    ];
    // Some seconds without optimisation; what grows with the square of these lengths would take hours, and the test be killed.
    for body in &bodies {
        assert!(rules.judge(body.as_bytes()).is_none(), "{}", &body[..20]);
    }
    // The control: what was walked over was read.
    let long = format!("{{\"n\":{}}}", "9".repeat(million));
    assert!(rules.judge(long.as_bytes()).is_some());
    let deep = format!("{{\"s\":\"aab\",\"x\":{}{}}}", "[".repeat(million), "]".repeat(million));
    assert!(rules.judge(deep.as_bytes()).is_some(), "junk beside it hides nothing");
}

#[test]
fn each_condition_s_result_is_told() {
    let rules = set(&json!([
        {"name": "big", "all": [{"field": "messages_count", "op": "gt", "value": 1}, {"field": "model", "op": "absent"}]},
        {"field": "model", "op": "in", "value": ["a", "m"]}]));
    let body = br#"{"messages":[1,2],"model":"\u006d"}"#;
    let told = rules.explain(body).unwrap();
    assert_eq!(told.verdict.unwrap().rule, "rule2");
    let leaf = |node: &NodeResult<'_>| match &node.test {
        Test::Field { field, op, seen, .. } => {
            format!("{field} {} {} {}", op.name(), seen.as_deref().unwrap_or("-"), node.is_met)
        }
        other => panic!("a field expected, got {other:?}"),
    };
    let Test::All(all) = &told.rules[0].condition.test else { panic!("{told:?}") };
    assert_eq!((told.rules[0].name, told.rules[0].condition.is_met), ("big", false));
    let lines: Vec<String> = all.iter().map(leaf).collect();
    assert_eq!(lines, ["messages_count gt 2 true", r#"model absent "\u006d" false"#]);
    assert_eq!(leaf(&told.rules[1].condition), r#"model in "\u006d" true"#);
    assert_eq!(rules.explain(b"x"), None);
    assert_eq!(rules.explain(b"{}").unwrap().verdict, None);
}

#[test]
fn a_byte_order_mark_hides_nothing_and_what_cannot_be_read_is_told_apart() {
    let rules = set(&json!([{"field": "model", "op": "eq", "value": "danger"}]));
    let body = r#"{"model":"danger"}"#;
    assert!(rules.judge(format!("\u{feff}{body}").as_bytes()).is_some());
    assert_eq!(rules.try_judge(b"\xef\xbb\xbf {\"model\":\"m\"}"), Ok(None));
    assert_eq!(rules.try_judge(b"[]"), Ok(None), "a list has no fields");
    let utf_16: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for unreadable in [
        &b""[..],
        b"x",
        b"7",
        br#"{"model":"danger","temperature":NaN}"#,
        br#"{"model":"danger","temperature":-Infinity}"#,
        br#"{"model":"danger"}}"#,
        b"{\"model\":\"danger\xff\"}",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        &utf_16,
    ] {
        assert_eq!(rules.try_judge(unreadable), Err(Unreadable), "{}", String::from_utf8_lossy(unreadable));
        assert_eq!(RuleSet::default().try_judge(unreadable), Ok(None), "without rules nothing is read");
    }
    let measured = set(&json!([{"field": "input_bytes", "op": "eq", "value": 5}]));
    assert!(measured.judge(b"\xef\xbb\xbf{}").is_some(), "of all that was sent");
}
