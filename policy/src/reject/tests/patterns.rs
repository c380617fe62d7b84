//! Patterns: what is refused, and Lua's in the other notation (rulings §7).

use super::*;

fn rule(pattern: &str) -> Json {
    json!([{"field": "f", "op": "match", "value": pattern}])
}

fn found(pattern: &str, text: &str, syntax: MatchSyntax) -> bool {
    set_in(&rule(pattern), syntax).judge(json!({"f": text}).to_string().as_bytes()).is_some()
}

fn refused(pattern: &str, syntax: MatchSyntax) -> String {
    let problems = RuleSet::compile(&RuleList::parse(&rule(pattern)).unwrap(), syntax).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].node, "[0].value");
    problems[0].problem.clone()
}

#[test]
fn lua_patterns_find_what_they_find_in_lua() {
    for (pattern, yes, no) in [
        ("", &["", "x"][..], &[][..]),
        ("abc", &["xabcx"], &["ab", "ABC"]),
        ("a.c", &["abc", "a\nc", "a.c"], &["ac"]),
        ("^ab", &["abc"], &["xab", "x\nab"]),
        ("ab$", &["xab"], &["abx", "ab\n"]),
        ("^$", &[""], &["x"]),
        ("a^b$c", &["xa^b$c"], &["ab"]),
        ("%d+%%", &["a 50% b"], &["50"]),
        ("%a%d%s%w%p%x%u%l", &["z9\tq;fQq"], &["z9\tq;gQq", "é9\tq;fQq"]),
        ("%A%D%S%W%P%X%U%L", &["1a1;az1A"], &["aa1;az1A"]),
        ("%c", &["a\u{1}"], &["a"]),
        ("%g", &["x"], &[" "]),
        ("%z", &["a\0b"], &["ab"]),
        ("%.%(%)%[%^%$%-", &[".()[^$-"], &["x"]),
        ("%q", &["q"], &["%"]),
        ("ab*c", &["ac", "abbbc"], &["adc"]),
        ("ab-c", &["ac", "abbbc"], &["adc"]),
        ("ab?c", &["ac", "abc"], &["abbc"]),
        ("ab+c", &["abc", "abbc"], &["ac"]),
        ("*a", &["*a"], &["a"]),
        ("^*a", &["*a"], &["a"]),
        ("[abc]+x", &["cabx"], &["dx"]),
        ("^[^abc]+$", &["xyz"], &["xaz", ""]),
        ("[a-c%d]z", &["bz", "7z"], &["dz", "-z"]),
        ("[]]x", &["]x"], &["[x"]),
        ("^[^]]x", &["ax"], &["]x"]),
        ("[a-]x", &["ax", "-x"], &["bx"]),
        ("[%a-z]!", &["-!", "q!", "z!"], &["1!"]),
        ("[%]]x", &["]x"], &["%x"]),
        ("[c-a]x", &[], &["bx", "ax", "-x"]),
        ("[a-%]x]!", &["x!", "]!"], &["a!", "-!", "b!"]),
        ("[%w_.]+@", &["a_b.c@"], &["@", "é@"]),
        ("[.*+]", &["a.b"], &["abc"]),
        ("(ab)c", &["abc"], &["ac"]),
        ("(ab)*c", &["ab*c"], &["ab**c", "abc", "ababc"]),
        ("(ab)**c", &["ab*c", "ab**c", "abc"], &["ababx", "c"]),
        ("((a)(b))$", &["xab"], &["abx"]),
        ("(^a)", &["x^a"], &["a"]),
        ("(a$)b", &["a$b"], &["a"]),
        ("你", &["x你"], &["x"]),
        // The `+` belongs to the last byte alone, as in Lua.
        ("^你+$", &["你"], &["你你"]),
        ("^...$", &["abc", "你"], &["你好"]),
        ("{2}|a\\d", &["{2}|a\\d"], &["a", "aa", "a1"]),
        ("&& ~~ --", &["&& ~~ -"], &["& "]),
        ("[[:alpha:]]", &["a]", ":]"], &["z]", "a"]),
        ("[a&&b]", &["&", "a"], &["c"]),
    ] {
        for text in yes {
            assert!(found(pattern, text, MatchSyntax::Lua), "{pattern} is not found in {text:?}");
        }
        for text in no {
            assert!(!found(pattern, text, MatchSyntax::Lua), "{pattern} is found in {text:?}");
        }
    }
}

#[test]
fn what_has_no_counterpart_is_refused_with_its_place() {
    for (pattern, why) in [
        ("a%b()", "`%b` (balanced brackets) is not supported (byte 2)"),
        ("%f[%w]x", "`%f` (frontier) is not supported (byte 1)"),
        ("(a)%1", "back references are not supported (byte 4)"),
        ("%0", "back references are not supported (byte 1)"),
        ("a()b", "position captures `()` are not supported; leave it out (byte 2)"),
        ("ab%", "it ends with `%` (byte 3)"),
        ("a[bc", "`[` without `]` (byte 2)"),
        ("[]", "`[` without `]` (byte 1)"),
        ("[^]", "`[` without `]` (byte 1)"),
        ("[a%]", "`[` without `]` (byte 1)"),
        ("[a%", "`[` without `]` (byte 1)"),
        ("(a", "`(` without `)` (byte 3)"),
        ("a)b", "`)` without `(` (byte 2)"),
    ] {
        assert_eq!(
            refused(pattern, MatchSyntax::Lua),
            format!("not a Lua pattern that can be used: {why}"),
            "{pattern}"
        );
    }
    assert!(refused(&"(a)".repeat(33), MatchSyntax::Lua).contains("too many captures"));
    assert!(found(&"(a)".repeat(32), &"a".repeat(32), MatchSyntax::Lua));
}

#[test]
fn regular_expressions_that_are_none_are_refused_on_one_line() {
    for (pattern, why) in [
        ("a(b", "unclosed group"),
        ("x*{", "repetition"),
        (r"(a)\1", "backreferences are not supported"),
        ("(?=a)", "look-around"),
        ("[z-a]", "invalid character class range"),
        ("a{1000}{1000}{10}", "too large"),
        (&"(".repeat(100), ""),
    ] {
        let told = refused(pattern, MatchSyntax::Regex);
        assert!(told.contains(why) && !told.contains('\n'), "{pattern}: {told}");
    }
    for (pattern, text) in
        [(r"(?i)ß|é", "É"), (r"\bx\b", "a x b"), (r"^\w+$", "größe"), ("(?s-u:^.{3}$)", "你"), ("a|b", "b")]
    {
        assert!(found(pattern, text, MatchSyntax::Regex), "{pattern}");
    }
}

#[test]
fn every_bad_pattern_is_named_and_a_stored_one_takes_its_rule_along() {
    let leaf = |pattern: &str| json!({"field": "f", "op": "match", "value": pattern});
    let written = json!([leaf("("), {"any": [leaf("a"), leaf("["), {"all": [leaf(")")]}]}, leaf("ok")]);
    let mut rules = RuleList::parse(&written).unwrap();
    let places = |problems: Vec<InvalidRule>| problems.into_iter().map(|one| one.node).collect::<Vec<_>>();
    let expected = ["[0].value", "[1].any[1].value", "[1].any[2].all[0].value"];
    assert_eq!(places(RuleSet::compile(&rules, MatchSyntax::Regex).unwrap_err()), expected);
    let valid = RuleSet::of_valid(&rules, MatchSyntax::Regex);
    assert_eq!(valid.judge(br#"{"f":"ok"}"#).unwrap().rule, "rule3");
    assert_eq!(places(rules.keep_valid(MatchSyntax::Regex)), expected);
    assert_eq!(rules.to_json(), json!([{"name": "rule3", "field": "f", "op": "match", "value": "ok"}]));
    assert!(rules.keep_valid(MatchSyntax::Regex).is_empty());
    assert_eq!(
        RuleSet::compile(&rules, MatchSyntax::Regex).unwrap(),
        RuleSet::compile(&rules, MatchSyntax::Regex).unwrap()
    );
}
