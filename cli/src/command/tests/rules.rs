//! `routerctl rules test`, and what is said of rules that are off.

use super::*;

const RULES: &str = "\
# a comment
- name: no_danger
  all:
    - {field: model, op: eq, value: danger}
    - any:
        - {field: temperature, op: gt, value: 1.5}
        - {field: metadata.team, op: absent}
- {field: input_chars, op: gt, value: 3, status: 413, message: too long}
";

/// Files of a folder of its own.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    /// The line with the folder in front of each `@`.
    async fn run(&self, at: &str, line: &str) -> Ran {
        run_at(at, &line.replace('@', &format!("{}/", self.0.path().display()))).await
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Nobody listens there: most of this needs no control plane.
const NOBODY: &str = "127.0.0.1:9";

#[tokio::test]
async fn each_condition_is_told_with_what_it_saw() {
    let long = "x".repeat(60);
    let body = format!(
        r#"{{"model":"danger","temperature":0.5,"metadata":{{"team":"\u001b{long}"}},"messages":[{{"content":"你好世界"}}]}}"#
    );
    let folder = Folder::new(&[("rules.yaml", RULES), ("request.json", &body)]);
    let ran = folder.run(NOBODY, "rules test -f @rules.yaml --body @request.json").await;
    assert_eq!((ran.code(), ran.error(), ran.stderr.as_str()), (1, "", ""));
    assert_eq!(
        ran.stdout,
        "\
verdict  rejected by rule rule2
status   413
message  too long

false  rule no_danger
false    all of
true       model eq \"danger\"    is \"danger\"
false      any of
false        temperature gt 1.5    is 0.5
false        metadata.team absent    is \"\\u001bxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...
true   rule rule2
true     input_chars gt 3    is 4
"
    );
    std::fs::write(folder.path("request.json"), r#"{"model":"danger","temperature":2}"#).unwrap();
    let ran = folder.run(NOBODY, "rules test -f @rules.yaml --body @request.json -o json").await;
    assert_eq!(ran.code(), 1);
    let told: Json = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        told,
        json!({"is_rejected": true, "is_judged": true, "rule": "no_danger", "status": 429,
            "message": "request rejected by rule 'no_danger'", "rules": [
            {"name": "no_danger", "condition": {"is_met": true, "all": [
                {"is_met": true, "field": "model", "op": "eq", "value": "\"danger\"", "seen": "\"danger\""},
                {"is_met": true, "any": [
                    {"is_met": true, "field": "temperature", "op": "gt", "value": "1.5", "seen": "2"},
                    {"is_met": true, "field": "metadata.team", "op": "absent"}]}]}},
            {"name": "rule2", "condition": {"is_met": false, "field": "input_chars", "op": "gt", "value": "3", "seen": "0"}}]})
    );
    // The control: one that passes.
    std::fs::write(folder.path("request.json"), "{}").unwrap();
    let ran = folder.run(NOBODY, "rules test -f @rules.yaml --body @request.json").await;
    assert_eq!(ran.code(), 0);
    assert!(ran.stdout.starts_with("verdict  passes\n\nfalse  rule no_danger\n"), "{}", ran.stdout);
    std::fs::write(folder.path("request.json"), "no json").unwrap();
    let ran = folder.run(NOBODY, "rules test -f @rules.yaml --body @request.json").await;
    assert_eq!((ran.code(), ran.stdout.as_str()), (0, "verdict  passes\n"));
    assert_eq!(ran.stderr, "note: the body is no JSON object or list in UTF-8, so no rule is asked\n");
}

#[tokio::test]
async fn a_file_may_state_the_syntax_and_the_status() {
    let document =
        "match_syntax: lua\nreject_rules_status: 400\nreject_rules: [{field: f, op: match, value: 'err%d'}]\n";
    let folder = Folder::new(&[("rules.yaml", document), ("body", r#"{"f":"an err5 here"}"#), ("none.yaml", "[]")]);
    let ran = folder.run(NOBODY, "rules test -f @rules.yaml --body @body -o json").await;
    let told: Json = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code(), &told["status"], &told["rule"]), (1, &json!(400), &json!("rule1")));
    let ran = folder.run(NOBODY, "rules test -f @rules.yaml --body @body --match-syntax regex").await;
    assert_eq!(ran.code(), 0, "`%d` is no class there");
    let ran = folder.run(NOBODY, "rules test -f @none.yaml --body @body").await;
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, "note: there are no rules\n"));
}

#[tokio::test]
async fn what_is_wrong_is_found_by_line_and_is_no_verdict() {
    let files = [
        (
            "alone.yaml",
            "- {field: x, op: exists}\n- all:\n    - {field: x, op: exists}\n    - field: x\n      op: like\n",
        ),
        ("named.yaml", "reject_rules:\n  - field: x\n    op: match\n    value: '('\nother: 1\n"),
        ("word.yaml", "rules\n"),
        ("body", "{}"),
    ];
    let folder = Folder::new(&files);
    for (file, complaints) in [
        ("alone.yaml", vec![":5:7: [1].all[1].op: unknown operator 'like'; allowed: gt, "]),
        (
            "named.yaml",
            vec![
                ":5:1: other: unknown field; allowed: reject_rules, match_syntax, ",
                ":4:5: reject_rules[0].value: not a regular expression: unclosed group",
            ],
        ),
        ("word.yaml", vec![": reject_rules: list of rules expected, got string"]),
    ] {
        let ran = folder.run(NOBODY, &format!("rules test -f @{file} --body @body")).await;
        assert_eq!((ran.code(), ran.stdout.as_str()), (2, ""), "{file}");
        let lines: Vec<&str> = ran.error().lines().collect();
        assert_eq!(lines.len(), complaints.len(), "{lines:?}");
        for (line, complaint) in lines.iter().zip(complaints) {
            assert!(line.starts_with(&format!("{}{complaint}", folder.path(file))), "{line}");
        }
    }
    for line in ["rules test -f @nowhere --body @body", "rules test -f @alone.yaml --body @nowhere"] {
        assert_eq!(folder.run(NOBODY, line).await.code(), 2, "{line}");
    }
    assert_eq!(folder.run(NOBODY, "rules test -f - --body -").await.code(), 64);
    assert_eq!(folder.run(NOBODY, "rules test --route chat --body @body").await.code(), 2, "nobody answers");
}

#[tokio::test]
async fn a_route_s_rules_are_those_that_are_stored() {
    let (fake, at) = with_chat().await;
    let folder = Folder::new(&[("body", r#"{"x":"5"}"#)]);
    let rules = r#"reject_rules=[{"field":"x","op":"match","value":"^%d$"}]"#;
    let set = run_at(&at, &format!("route set chat {rules} match_syntax=lua reject_rules_status=403")).await;
    assert_eq!(set.code(), 0, "{}", set.error());
    let ran = folder.run(&at, "rules test --route chat --body @body").await;
    assert_eq!(ran.code(), 1);
    assert!(ran.stdout.contains("status   403\n"), "{}", ran.stdout);
    assert!(ran.stderr.starts_with("note: reject_rules of route chat are set but off: "), "{}", ran.stderr);
    let ran = folder.run(&at, "rules test --route chat --body @body --match-syntax regex").await;
    assert_eq!(ran.code(), 0);
    assert_eq!(folder.run(&at, "rules test --route nope --body @body").await.code(), 2);
    drop(fake);
}

#[tokio::test]
async fn rules_that_are_set_and_off_are_pointed_out() {
    let (_fake, at) = with_chat().await;
    let note = "note: reject_rules of route chat are set but off: turn them on with `routerctl toggle chat reject_rules on` \
                or the option reject_rules_default_enabled\n";
    let rules = r#"reject_rules=[{"field":"x","op":"exists"}]"#;
    let set = run_at(&at, &format!("route set chat {rules}")).await;
    assert_eq!((set.code(), set.stderr.as_str()), (0, note));
    let set = run_at(&at, "route set chat max_concurrency=9").await;
    assert_eq!((set.code(), set.stderr.as_str()), (0, ""), "another option's change says nothing of rules");
    assert!(run_at(&at, "route show chat").await.stdout.contains(note));
    assert_eq!(run_at(&at, "status").await.stderr, note);
    // On by the switch, off by the switch, on by the option.
    run_at(&at, "toggle chat reject_rules on").await;
    assert_eq!(run_at(&at, "status").await.stderr, "");
    run_at(&at, "toggle chat reject_rules off").await;
    let off = "note: reject_rules of route chat are switched off until `routerctl toggle chat reject_rules reset`\n";
    assert_eq!(run_at(&at, "status").await.stderr, off);
    run_at(&at, "toggle chat reject_rules reset").await;
    let set = run_at(&at, "route set chat reject_rules_default_enabled=true").await;
    assert_eq!((set.code(), set.stderr.as_str()), (0, ""));
    let document = "{name: chat, options: {reject_rules: [{field: z, op: exists}]}}";
    let folder = Folder::new(&[("chat.yaml", document)]);
    assert_eq!(folder.run(&at, "apply -f @chat.yaml --dry-run").await.stderr, "");
    let applied = folder.run(&at, "apply -f @chat.yaml").await;
    assert_eq!((applied.code(), applied.stderr.as_str()), (0, note));
    let added = run_at(&at, &format!("route add other --backend-port 1 --set {rules}")).await;
    assert_eq!((added.code(), added.stderr), (0, note.replace("chat", "other")));
}

const ROUTES: &str = "\
routes:
  - name: chat
    backends: ['127.0.0.1:1']
    options:
      match_syntax: lua
      reject_rules_status: 403
      reject_rules:
        - {name: five, field: x, op: match, value: '^%d$'}
  - name: quiet
    backends: ['127.0.0.1:2']
";

#[tokio::test]
async fn a_route_document_is_tested_as_it_is_applied() {
    let one = "name: chat\nbackends: ['127.0.0.1:1']\noptions: {reject_rules: [{field: x, op: exists, status: 410}]}\n";
    let folder =
        Folder::new(&[("routes.yaml", ROUTES), ("one.yaml", one), ("rules.yaml", RULES), ("body", r#"{"x":"5"}"#)]);
    let ran = folder.run(NOBODY, "rules test -f @routes.yaml --route chat --body @body -o json").await;
    let told: Json = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code(), &told["status"], &told["rule"]), (1, &json!(403), &json!("five")));
    let ran = folder.run(NOBODY, "rules test -f @routes.yaml --route chat --body @body --match-syntax regex").await;
    assert_eq!(ran.code(), 0, "`%d` is no class there");
    let ran = folder.run(NOBODY, "rules test -f @routes.yaml --route quiet --body @body").await;
    assert_eq!((ran.code(), ran.stderr.as_str()), (0, "note: there are no rules\n"));
    for line in ["rules test -f @one.yaml --body @body", "rules test -f @one.yaml --route chat --body @body"] {
        let ran = folder.run(NOBODY, line).await;
        assert!(ran.code() == 1 && ran.stdout.contains("status   410\n"), "{}", ran.stdout);
    }
    for (line, problem) in [
        ("-f @routes.yaml", "the file has several routes: say with --route which of chat, quiet"),
        ("-f @routes.yaml --route other", "--route other: not in the file; there: chat, quiet"),
        ("-f @rules.yaml --route chat", "--route chat: the file has rules alone and no routes; leave it out"),
    ] {
        let ran = folder.run(NOBODY, &format!("rules test {line} --body @body")).await;
        assert_eq!((ran.code(), ran.error(), ran.stdout.as_str()), (64, problem, ""), "{line}");
    }
    // The same file is applied.
    let (_fake, at) = with_chat().await;
    assert_eq!(folder.run(&at, "apply -f @routes.yaml").await.code(), 0);
}

#[tokio::test]
async fn a_wrong_rule_of_a_route_document_is_found_by_line_and_node() {
    let syntax = ROUTES.replace("op: match", "op: like");
    let pattern = ROUTES.replace("^%d$", "%b()");
    let one = "name: chat\noptions:\n  reject_rules:\n    - field: x\n      op: match\n      value: '('\n";
    let folder =
        Folder::new(&[("op.yaml", &syntax), ("pattern.yaml", &pattern), ("one.yaml", one), ("body", r#"{"x":"5"}"#)]);
    for (file, complaint) in [
        ("op.yaml", ":8:34: routes.chat.options.reject_rules[0].op: unknown operator 'like'"),
        ("pattern.yaml", ":8:45: routes.chat.options.reject_rules[0].value: not a Lua pattern"),
        ("one.yaml", ":6:7: routes.chat.options.reject_rules[0].value: not a regular expression"),
    ] {
        for (line, code) in [("rules test --body @body --route chat", 2), ("apply", 64)] {
            let ran = folder.run(NOBODY, &format!("{line} -f @{file}")).await;
            assert_eq!(ran.code(), code, "{line} {file}");
            assert!(ran.error().starts_with(&format!("{}{complaint}", folder.path(file))), "{}", ran.error());
        }
    }
}

#[tokio::test]
async fn what_is_exported_of_rules_is_edited_and_applied_again() {
    let (_fake, at) = with_chat().await;
    let set = r#"reject_rules=[{"name":"a","field":"x","op":"exists"},{"field":"y","op":"gt","value":1},{"field":"z","op":"absent"}]"#;
    assert_eq!(run_at(&at, &format!("route set chat {set}")).await.code(), 0);
    let exported = run_at(&at, "export chat").await.stdout;
    assert!(!exported.contains("\"field\\"), "no text in a text: {exported}");
    let folder = Folder::new(&[
        ("chat.yaml", &exported.replace("op: gt", "op: ge")),
        ("bad.yaml", &exported.replace("op: gt", "op: gte")),
    ]);
    let applied = folder.run(&at, "apply -f @chat.yaml").await;
    assert_eq!(applied.code(), 0, "{}", applied.error());
    let document = run_at(&at, "export chat -o json").await.json();
    let route = document.get("routes").map_or(&document, |routes| &routes[0]);
    assert_eq!(route["options"]["reject_rules"][1], json!({"field": "y", "op": "ge", "value": 1}));
    let bad = folder.run(&at, "apply -f @bad.yaml").await;
    let at_line = exported.lines().position(|line| line.contains("op: gt")).unwrap() + 1;
    assert!(bad.error().starts_with(&format!("{}:{at_line}:", folder.path("bad.yaml"))), "{}", bad.error());
    assert!(bad.error().contains("options.reject_rules[1].op: unknown operator 'gte'"), "{}", bad.error());

    let shown = run_at(&at, "route show chat -o json").await.json();
    let option = |name: &str| {
        let options = shown["options"].as_array().unwrap();
        options.iter().find(|option| option["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(option("reject_rules")[2], json!({"field": "z", "op": "absent"}));
    assert!(option("max_concurrency").is_string(), "the control: what is no structure is a text");
    let yaml = run_at(&at, "route show chat -o yaml").await.stdout;
    assert!(yaml.contains("op: absent\n"), "{yaml}");
    let table = run_at(&at, "route show chat").await.stdout;
    let line = table.lines().find(|line| line.starts_with("reject_rules ")).unwrap();
    assert!(line.ends_with("3 rules: a, rule2, rule3"), "{line}");
    let many: Vec<Json> = (0..7).map(|_| json!({"field": "x", "op": "exists"})).collect();
    run_at(&at, &format!("route set chat reject_rules={}", json!(many).to_string().replace(' ', ""))).await;
    let table = run_at(&at, "route show chat").await.stdout;
    assert!(table.contains("7 rules: rule1, rule2, rule3, rule4, rule5 and 2 more\n"), "{table}");
}

#[tokio::test]
async fn fields_that_are_most_likely_slips_are_noted() {
    let (_fake, at) = with_chat().await;
    let document = ROUTES.replace("field: x", "field: inputchars");
    let folder = Folder::new(&[
        ("routes.yaml", &document),
        ("fine.yaml", ROUTES),
        ("alone.yaml", "- {field: messages.0.role, op: exists}\n"),
        ("body", "{}"),
    ]);
    let place = format!("{}:8:24", folder.path("routes.yaml"));
    let note = format!(
        "note: {place}: routes.chat.options.reject_rules[0].field: a name of the body, and not the measure input_chars: is \
         that meant?\n"
    );
    for line in ["apply --dry-run -f @routes.yaml", "rules test --route chat --body @body -f @routes.yaml"] {
        let ran = folder.run(&at, line).await;
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, note.as_str()), "{line}");
    }
    let applied = folder.run(&at, "apply -f @routes.yaml").await;
    assert!(applied.code() == 0 && applied.stderr.starts_with(&note), "{}", applied.stderr);
    assert!(!folder.run(&at, "apply -f @fine.yaml").await.stderr.contains("measure"), "the control");
    let alone = folder.run(&at, "rules test -f @alone.yaml --body @body").await;
    let note = format!("note: {}:1:4: [0].field: a path goes through objects, ", folder.path("alone.yaml"));
    assert!(alone.code() == 0 && alone.stderr.starts_with(&note), "{}", alone.stderr);
    let rules = r#"reject_rules=[{"any":[{"field":"tool_count","op":"exists"}]}]"#;
    let note =
        "note: reject_rules[0].any[0].field: a name of the body, and not the measure tools_count: is that meant?\n";
    for line in [format!("route set chat {rules}"), format!("route add new --backend-port 1 --set {rules}")] {
        let ran = run_at(&at, &line).await;
        assert!(ran.code() == 0 && ran.stderr.starts_with(note), "{}", ran.stderr);
    }
    let ran = folder.run(&at, "rules test --route chat --body @body").await;
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
}
