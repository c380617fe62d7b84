//! What the reference can't do: any number of replicas, one truth. The same sessions, limits, queue and drains, whichever replica
//! is asked; and `routerctl up --preset gateway` with every flag of the reference starts it.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::client::Client;
use router_tests::ctl::Ctl;
use router_tests::database::DatabaseKind;
use router_tests::engine::Engine;
use router_tests::process::{Process, Signal};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::gateway;

router_tests::on_both_databases!(five_replicas_decide_as_one);

router_tests::on_any_database!(up_takes_the_reference_s_flags, import_takes_an_installation_over);

async fn five_replicas_decide_as_one(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).replicas(5).engines(3).start().await?;
    for number in 0..12 {
        let mut peers = BTreeSet::new();
        for replica in 0..5 {
            let chat = Chat::of(&format!("s{number}"));
            let answer = chat.send(&cluster.client, cluster.replica((replica + number) % 5)?).await?.ok()?;
            assert_eq!(answer.mode(), if replica == 0 { "new" } else { "bound" });
            peers.insert(answer.peer().to_owned());
        }
        assert_eq!(peers.len(), 1, "{peers:?}");
    }
    cluster.finish()
}

async fn up_takes_the_reference_s_flags() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut engines = Vec::new();
    for index in 0..3 {
        engines.push(Engine::start(&format!("engine{index}"), &[], folder.path()).await?);
    }
    let ports: Vec<u16> = engines.iter().map(|engine| engine.address().port()).collect();
    let records = json!([{"sha256": sha256_hex("key-one").await?, "active": true}]);
    std::fs::write(at("keys.json"), json!({"version": 1, "records": records}).to_string())?;
    std::fs::set_permissions(at("keys.json"), std::fs::Permissions::from_mode(0o600))?;
    std::fs::write(at("admission.json"), json!({"enabled_ports": ports[..2]}).to_string())?;
    let mut args: Vec<String> = ["up", "--preset", "gateway", "--replicas", "2"].map(str::to_owned).into();
    for (flag, value) in [
        ("--listen", "127.0.0.1:0".to_owned()),
        ("--admin-listen", "127.0.0.1:0".to_owned()),
        ("--grpc-listen", "127.0.0.1:0".to_owned()),
        ("--http-listen", "127.0.0.1:0".to_owned()),
        ("--state-dir", at("state")),
        ("--key-store", at("keys.json")),
        ("--control-file", at("admission.json")),
        ("--backend-state", at("backend-state.json")),
        ("--max-active-per-backend", "7".to_owned()),
        ("--max-waiting", "9".to_owned()),
        ("--queue-timeout", "3".to_owned()),
        ("--upstream-timeout", "600".to_owned()),
        ("--max-sessions", "500".to_owned()),
        ("--model-context-limit", "4096".to_owned()),
        ("--backend-context-limit", format!("{}=32768", ports[1])),
    ] {
        args.extend([flag.to_owned(), value]);
    }
    args.push("--backend-managed-affinity".to_owned());
    for port in &ports {
        args.extend(["--backend-port".to_owned(), port.to_string()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut up = Process::spawn("up", &args, &[], folder.path())?;
    up.nth_line_within(2, "ready role=dataplane", Duration::from_secs(60)).await?;
    let word = |line: &str, key: &str| {
        let found =
            line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{key} in {line}"))
    };
    let grpc = word(&up.line("listening role=controlplane").await?, "grpc");
    let replica = word(&up.line("listening role=dataplane").await?, "http").parse()?;

    let ctl = Ctl::at(format!("http://{grpc}"));
    let shown = ctl.json(&["route", "show", "default"]).await?.to_string();
    for piece in ["\"gateway\"", "4096", &format!("{}=32768", ports[1])] {
        assert!(shown.contains(piece), "{piece}: {shown}");
    }
    let listed = ctl.json(&["route", "list"]).await?;
    let options = listed["routes"][0]["options"].to_string();
    for (name, value) in
        [("max_concurrency", "7"), ("max_waiting", "9"), ("queue_timeout", "3s"), ("max_sessions", "500")]
    {
        assert!(options.contains(&format!("\"{name}\"")) && options.contains(value), "{name}={value}: {options}");
    }
    let client = Client::http1();
    let keyless = Chat::of("s").send(&client, replica).await?;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED);
    for number in 0..6 {
        let answer = Chat::of(&format!("s{number}")).key("key-one").send(&client, replica).await?.ok()?;
        assert_ne!(answer.peer(), engines[2].address().to_string(), "the control file leaves it out");
    }
    let wide =
        Chat::of("wide").key("key-one").header("x-model-context-window", "32768").send(&client, replica).await?.ok()?;
    assert_eq!(wide.peer(), engines[1].address().to_string());
    let told = || async {
        let state: Json = serde_json::from_str(&std::fs::read_to_string(at("backend-state.json"))?)?;
        Ok((state["backends"].as_object().map(serde_json::Map::len) == Some(3)).then_some(()))
    };
    until("the state file tells of every backend", Duration::from_secs(1), told).await?;

    // The other door, and the flag as an option.
    ctl.ok(&["undrain", "--port", &ports[2].to_string()]).await?;
    let control: Json = serde_json::from_str(&std::fs::read_to_string(at("admission.json"))?)?;
    assert_eq!(control["enabled_ports"].as_array().map(Vec::len), Some(3), "{control}");
    ctl.ok(&["route", "set", "default", "max_concurrency=8"]).await?;
    up.signal(Signal::Interrupt).await?;
    assert_eq!(up.ended(Duration::from_secs(30)).await?.code(), Some(0), "{}", up.log_tail());
    Ok(())
}

async fn sha256_hex(text: &str) -> anyhow::Result<String> {
    let script = format!("printf %s '{text}' | sha256sum");
    let output = tokio::process::Command::new("sh").arg("-c").arg(script).output().await?;
    Ok(String::from_utf8(output.stdout)?.split_whitespace().next().expect("a hash").to_owned())
}

async fn import_takes_an_installation_over() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let cluster = gateway(DatabaseKind::Sqlite).engines(2).option("auth", "required").start().await?;
    let ports: Vec<String> = cluster.engines.iter().map(|engine| engine.address().port().to_string()).collect();
    let one: u16 = ports[0].parse()?;
    let records = json!([{"sha256": sha256_hex("key-one").await?, "active": true}, {"sha256": sha256_hex("key-two").await?, "active": false}]);
    std::fs::write(at("keys.json"), json!({"version": 1, "records": records}).to_string())?;
    std::fs::set_permissions(at("keys.json"), std::fs::Permissions::from_mode(0o600))?;
    std::fs::write(at("admission.json"), json!({"enabled_ports": [one]}).to_string())?;
    let (keys, control) = (at("keys.json"), at("admission.json"));
    let verb = ["import", "gateway", "--name", "chat", "--key-store", &keys, "--control-file", &control];
    let backends = ["--backend-port", &ports[0], "--backend-port", &ports[1], "--max-active-per-backend", "5"];
    let import = [&verb[..], &backends].concat();

    let status =
        async |key: &str| anyhow::Ok(Chat::new().key(key).send(&cluster.client, cluster.replica(0)?).await?.status);
    let plan = cluster.ctl()?.ok(&[&import[..], &["--dry-run"]].concat()).await?;
    assert!(plan.contains("max_concurrency") && plan.contains(&ports[1]), "{plan}");
    assert!(!plan.contains(&sha256_hex("key-one").await?), "{plan}");
    assert_eq!(status("key-one").await?, StatusCode::UNAUTHORIZED, "only shown");
    let unasked = cluster.ctl()?.run(&import).await?;
    assert_ne!(unasked.code, Some(0), "nobody said yes: {unasked:?}");
    assert_eq!(status("key-one").await?, StatusCode::UNAUTHORIZED);

    cluster.ctl()?.ok(&[&import[..], &["--yes"]].concat()).await?;
    let is_in = || async { Ok((status("key-one").await? == StatusCode::OK).then_some(())) };
    until("the key is known to the replica", PATIENCE, is_in).await?;
    assert_eq!(status("key-two").await?, StatusCode::UNAUTHORIZED);
    assert!(cluster.backend(1).await?.condition.is_some_and(|condition| condition.draining));
    assert!(!cluster.backend(0).await?.condition.is_some_and(|condition| condition.draining));
    assert_eq!(cluster.backend(0).await?.limit, 5);
    let again = cluster.ctl()?.ok(&[&import[..], &["--yes"]].concat()).await?;
    assert!(again.to_lowercase().contains("nothing"), "a second time there is nothing to do: {again}");
    cluster.finish()
}
