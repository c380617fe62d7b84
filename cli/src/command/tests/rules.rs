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
