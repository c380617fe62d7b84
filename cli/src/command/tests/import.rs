//! `import gateway`: what it shows, what it does, and that it does it once.

use super::*;

struct Gateway {
    dir: tempfile::TempDir,
}

fn hex(digit: char) -> String {
    digit.to_string().repeat(64)
}

impl Gateway {
    fn new(records: &Json, enabled: &Json) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys.json");
        std::fs::write(&keys, json!({"version": 1, "records": records}).to_string()).unwrap();
        std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(dir.path().join("admission.json"), json!({"enabled_ports": enabled}).to_string()).unwrap();
        Self { dir }
    }

    fn line(&self, rest: &str) -> String {
        let dir = self.dir.path().display();
        format!("import gateway --key-store {dir}/keys.json --control-file {dir}/admission.json {rest}")
    }
}

fn three_keys() -> Gateway {
    let records = json!([
        {"sha256": hex('a'), "active": true, "name": "ci"},
        {"sha256": hex('b'), "active": true},
        {"sha256": hex('c'), "active": false, "name": "old"},
    ]);
    Gateway::new(&records, &json!([19001, 19008]))
}

#[tokio::test]
async fn the_plan_is_shown_whole_before_anything_is_done() {
    let (fake, at) = Fake::start().await;
    let (gateway, at) = (three_keys(), at.to_string());
    let shown = run_at(&at, &gateway.line("--dry-run --max-active-per-backend 16 --queue-timeout 5")).await;
    assert_eq!(shown.outcome, Ok(()));
    assert_eq!(
        shown.stdout,
        "\
route default: added
  + backends[127.0.0.1:19001].address: 127.0.0.1:19001
  + backends[127.0.0.1:19002].address: 127.0.0.1:19002
  + backends[127.0.0.1:19008].address: 127.0.0.1:19008
  + default: true
  + options.max_concurrency: 16
  + options.queue_timeout: 5s
  + preset: gateway
keys
  + ci (aaaaaaaa…)
  + gateway-bbbbbbbb (bbbbbbbb…)
  - records[2] (cccccccc…): inactive, skipped
drains
  + 127.0.0.1:19002
to do: 1 route, 2 keys, 1 drain
"
    );
    assert!(shown.stderr.starts_with("note: session bindings are not taken over: "), "{}", shown.stderr);
    let unsure = run_at(&at, &gateway.line("")).await;
    assert_eq!((unsure.code(), unsure.error()), (64, "Import this? Pass --yes to confirm"));
    assert!(unsure.stdout.ends_with("to do: 1 route, 2 keys, 1 drain\n"), "{}", unsure.stdout);
    let state = fake.state();
    assert!(state.routes.is_empty() && state.keys.is_empty() && state.drained.is_empty());
}

#[tokio::test]
async fn a_second_run_finds_nothing_to_do() {
    let (fake, at) = Fake::start().await;
    let (gateway, at) = (three_keys(), at.to_string());
    let first =
        run_at(&at, &gateway.line("--yes --backend-context-limit 19008=131072 --backend-dp-size 19008=8")).await;
    assert!(first.stdout.ends_with("to do: 1 route, 2 keys, 1 drain\ndone\n"), "{}{:?}", first.stdout, first.outcome);
    {
        let state = fake.state();
        let keys: Vec<_> = state.keys.iter().map(|(key, sha256)| (key.name.as_str(), sha256.clone())).collect();
        assert_eq!(keys, [("ci", vec![0xaa; 32]), ("gateway-bbbbbbbb", vec![0xbb; 32])]);
        assert_eq!(state.drained.iter().collect::<Vec<_>>(), ["127.0.0.1:19002"]);
        let route = state.routes.values().next().unwrap();
        assert_eq!(route.options().backend_context_limits.get(&19008), Some(&131_072));
        assert_eq!(route.backends.iter().filter_map(|backend| backend.dp_size).collect::<Vec<_>>(), [8]);
        assert_eq!(route.options().max_sessions, 16_384, "the preset's");
    }
    // An option that an operator has set since stays: no flag speaks of it.
    assert_eq!(run_at(&at, "route set default max_waiting=64").await.code(), 0);
    for rest in ["", "--yes", "--yes --backend-context-limit 19008=131072"] {
        let again = run_at(&at, &gateway.line(rest)).await;
        assert_eq!(again.outcome, Ok(()), "no question where there is nothing to do");
        assert_eq!(
            again.stdout,
            "\
route default: no change
keys
  = ci (aaaaaaaa…): there already
  = gateway-bbbbbbbb (bbbbbbbb…): there already
  - records[2] (cccccccc…): inactive, skipped
drains
  = 127.0.0.1:19002: draining already
nothing to do: everything is there already
"
        );
    }
    assert_eq!(fake.state().keys.len(), 2);
}

#[tokio::test]
async fn labels_are_free_ones_and_a_revoked_key_is_pointed_at() {
    let (_fake, at) = with_chat().await;
    assert_eq!(run_at(&at, "key add ci").await.code(), 0);
    let gateway = three_keys();
    let plan = run_at(&at, &gateway.line("--name gate --yes -o json")).await.json();
    let names: Vec<_> = plan["keys"].as_array().unwrap().iter().map(|key| key["name"].clone()).collect();
    assert_eq!(names, [json!("gateway-aaaaaaaa"), json!("gateway-bbbbbbbb"), Json::Null]);
    assert_eq!((&plan["is_applied"], &plan["route"]), (&json!(true), &json!("gate")));
    assert!(plan["notes"][0].as_str().unwrap().starts_with("bare /v1/... stays with route chat"), "{plan}");
    assert_eq!(plan["drains"], json!([{"backend": "127.0.0.1:19002", "step": "drain"}]));

    let later = Gateway::new(&json!([{"sha256": hex('a'), "active": false}]), &json!([19001, 19002, 19008]));
    let again = run_at(&at, &later.line("--name gate --dry-run")).await;
    assert!(
        again.stderr.contains("records[0] is inactive, but key gateway-aaaaaaaa is stored: `routerctl key revoke"),
        "{}",
        again.stderr
    );
}

#[tokio::test]
async fn keys_of_a_followed_file_are_stored_all_the_same() {
    let (fake, at) = Fake::start().await;
    let (gateway, at) = (three_keys(), at.to_string());
    let followed = router_proto::v1::KeyState {
        id: "file_1".to_owned(),
        name: "ci".to_owned(),
        sha256_prefix: "aaaaaaaa".to_owned(),
        created_unix_ms: 0,
        source: router_proto::v1::KeySource::File.into(),
    };
    fake.state().keys.push((followed, vec![0xaa; 32]));
    let plan = run_at(&at, &gateway.line("--dry-run -o json")).await.json();
    assert_eq!(plan["keys"][0]["step"], json!("add"), "they must not end when the file is no longer followed");
    assert_eq!(plan["keys"][0]["name"], json!("ci"));
    assert!(plan["notes"][0].as_str().unwrap().contains("begin new sessions"), "{plan}");
}

#[tokio::test]
async fn a_key_is_told_by_its_whole_hash() {
    let (fake, at) = Fake::start().await;
    let (gateway, at) = (three_keys(), at.to_string());
    let alike = router_proto::v1::KeyState {
        id: "key_1".to_owned(),
        name: "other".to_owned(),
        sha256_prefix: "aaaaaaaa".to_owned(),
        created_unix_ms: 1,
        source: router_proto::v1::KeySource::Database.into(),
    };
    let others_hash = [vec![0xaa; 31], vec![0]].concat();
    fake.state().keys.push((alike, others_hash));
    assert_eq!(run_at(&at, &gateway.line("--yes")).await.code(), 0);
    let keys: Vec<Vec<u8>> = fake.state().keys.iter().map(|(_, sha256)| sha256.clone()).collect();
    assert_eq!(keys[1..], [vec![0xaa; 32], vec![0xbb; 32]], "it was not taken for the other");
}

#[tokio::test]
async fn what_is_not_enabled_comes_in_drained() {
    let (fake, at) = Fake::start().await;
    let at = at.to_string();
    assert_eq!(run_at(&at, &three_keys().line("--yes")).await.code(), 0);
    assert_eq!(fake.state().start_drained, ["127.0.0.1:19002"], "in one step with the route");
    let later = Gateway::new(&json!([]), &json!([19001]));
    let ports = "--backend-port 19001 --backend-port 19008 --backend-port 19009 --backend-port 19002";
    assert_eq!(run_at(&at, &later.line(&format!("{ports} --yes"))).await.code(), 0);
    assert_eq!(fake.state().start_drained, ["127.0.0.1:19009"]);
    let drained: Vec<String> = fake.state().drained.iter().cloned().collect();
    assert_eq!(drained, ["127.0.0.1:19002", "127.0.0.1:19008", "127.0.0.1:19009"], "and those that were there");
}

#[tokio::test]
async fn no_answer_holds_a_hash() {
    let (_fake, at) = Fake::start().await;
    let (gateway, at) = (three_keys(), at.to_string());
    for rest in ["--dry-run", "--dry-run -o json", "--dry-run -o yaml", "--yes -o json", ""] {
        let ran = run_at(&at, &gateway.line(rest)).await;
        for digit in ['a', 'b', 'c'] {
            let more_than_listed = digit.to_string().repeat(9);
            assert!(!ran.stdout.contains(&more_than_listed) && !ran.stderr.contains(&more_than_listed), "{rest}");
        }
    }
}

#[tokio::test]
async fn ports_that_are_given_replace_the_others() {
    let (_fake, at) = Fake::start().await;
    let gateway = Gateway::new(&json!([]), &json!([19001]));
    let plan = run_at(&at.to_string(), &gateway.line("--backend-port 19007 --yes -o json")).await.json();
    let backends: Vec<_> = plan["changes"][0]["fields"].as_array().unwrap().iter().map(|one| &one["field"]).collect();
    assert_eq!(*backends[0], json!("backends[127.0.0.1:19007].address"));
    assert_eq!(plan["drains"], json!([{"backend": "127.0.0.1:19007", "step": "drain"}]));
    let notes = plan["notes"].to_string();
    assert!(
        notes.contains("there is no key: ") && notes.contains("port 19001 is enabled but is not a backend"),
        "{notes}"
    );
}

#[tokio::test]
async fn a_backend_that_is_not_enabled_any_more_is_drained_and_not_removed() {
    let (fake, at) = Fake::start().await;
    let at = at.to_string();
    assert_eq!(run_at(&at, &three_keys().line("--yes")).await.code(), 0);
    let later = Gateway::new(&json!([]), &json!([19001, 19009]));
    let plan = run_at(&at, &later.line("--yes -o json --backend-dp-size 19008=4")).await.json();
    let fields: Vec<_> = plan["changes"][0]["fields"].as_array().unwrap().iter().map(|one| &one["field"]).collect();
    assert_eq!(fields, [&json!("backends[127.0.0.1:19008].dp_size"), &json!("backends[127.0.0.1:19009].address")]);
    assert_eq!(fake.state().drained.iter().collect::<Vec<_>>(), ["127.0.0.1:19002", "127.0.0.1:19008"]);
    let bad = run_at(&at, &later.line("--yes --backend-dp-size 7=4")).await;
    assert!(bad.error().starts_with("--backend-dp-size: no backend has port 7; there are: 19001, "), "{}", bad.error());
}

#[tokio::test]
async fn a_single_backend_that_is_enabled_is_one_of_the_route() {
    let (fake, at) = Fake::start().await;
    let at = at.to_string();
    let first = Gateway::new(&json!([]), &json!([8000, "10.0.0.1:8000", "10.0.0.2:8000", 19001]));
    let plan = run_at(&at, &first.line("--yes -o json")).await.json();
    assert_eq!(plan["drains"], json!([{"backend": "127.0.0.1:19002", "step": "drain"}]));
    // Each port of the file is a backend already: none is added. Of two that share one, the file means one.
    let later = Gateway::new(&json!([]), &json!([19001, 19002, "10.0.0.2:8000"]));
    let plan = run_at(&at, &later.line("--yes -o json")).await.json();
    assert_eq!(plan["changes"], json!([]));
    assert_eq!(plan["drains"], json!([{"backend": "10.0.0.1:8000", "step": "drain"}]));
    let both = run_at(&at, &Gateway::new(&json!([]), &json!([19001, 8000])).line("--dry-run -o json")).await.json();
    assert_eq!((&both["changes"], &both["drains"][0]["backend"]), (&json!([]), &json!("127.0.0.1:19002")), "{both}");
    let given = run_at(&at, &first.line("--name gate --backend-port 19001 --dry-run -o json")).await.json();
    assert!(
        given["notes"].to_string().contains("\"10.0.0.1:8000 is enabled but is not a backend of the route"),
        "{given}"
    );
    assert_eq!(fake.state().drained.iter().collect::<Vec<_>>(), ["10.0.0.1:8000", "127.0.0.1:19002"]);
}

#[tokio::test]
async fn everything_wrong_is_told_at_once_and_nothing_is_asked() {
    let gateway = Gateway::new(&json!([{"sha256": "short", "active": true}]), &json!(["x"]));
    // Nothing listens there: it must not matter.
    let ran =
        run_at("127.0.0.1:1", &gateway.line("--max-waiting many --backend-port 19001 --backend-dp-size 7=8")).await;
    assert_eq!(ran.code(), 64);
    let lines: Vec<&str> = ran.error().lines().collect();
    let dir = gateway.dir.path().display().to_string();
    assert_eq!(
        lines,
        [
            "--max-waiting: integer expected, got 'many'; allowed: 0..=100000".to_owned(),
            "--backend-dp-size: no backend has port 7; there are: 19001".to_owned(),
            format!(
                "--key-store {dir}/keys.json: records[0].sha256: 64 digits expected, got a string with 5 bytes; allowed: the SHA-256 of the key as 64 hexadecimal digits"
            ),
            format!(
                "--control-file {dir}/admission.json: enabled_ports[0]: host:port expected, got another string; allowed: ports from 1 to 65535, or \"host:port\""
            ),
        ]
    );
}
