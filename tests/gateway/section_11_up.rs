//! `routerctl up --preset gateway` takes the place of the reference: every flag of it, and each is an option of the route.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use router_tests::await_event::until;
use router_tests::chat::Chat;
use router_tests::client::Client;
use router_tests::ctl::Ctl;
use router_tests::engine::Engine;
use router_tests::key_store::{document, write_private};
use router_tests::process::{Process, Signal};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

router_tests::on_any_database!(up_takes_the_reference_s_flags, windows_go_with_the_backends_that_go);

/// A running `up`, its operator's tool, and its first replica.
struct Up {
    process: Process,
    ctl: Ctl,
    replica: SocketAddr,
}

impl Up {
    /// Two replicas, free ports, a state directory in `folder`.
    async fn start(folder: &Path, flags: &[(&str, String)]) -> anyhow::Result<Self> {
        let mut args: Vec<String> = ["up", "--preset", "gateway", "--replicas", "2"].map(str::to_owned).into();
        for flag in ["--listen", "--admin-listen", "--grpc-listen", "--http-listen"] {
            args.extend([flag.to_owned(), "127.0.0.1:0".to_owned()]);
        }
        args.extend(["--state-dir".to_owned(), folder.join("state").display().to_string()]);
        for (flag, value) in flags {
            args.push((*flag).to_owned());
            args.extend(Some(value.clone()).filter(|value| !value.is_empty()));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let process = Process::spawn("up", &args, &[], folder)?;
        process.nth_line_within(2, "ready role=dataplane", Duration::from_secs(60)).await?;
        let word = |line: &str, key: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("{key} in {line}")).to_owned()
        };
        let grpc = word(&process.line("listening role=controlplane").await?, "grpc");
        let replica = word(&process.line("listening role=dataplane").await?, "http").parse()?;
        Ok(Self { process, ctl: Ctl::at(format!("http://{grpc}")), replica })
    }

    /// An option's value in force, and whether the route sets it.
    async fn option(&self, name: &str) -> anyhow::Result<(String, bool)> {
        let shown = self.ctl.json(&["route", "show", "default"]).await?;
        let options = shown["options"].as_array().expect("options");
        let found: Vec<&Json> = options.iter().filter(|option| option["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}: {shown}");
        let value = found[0]["value"].as_str().expect("a value").to_owned();
        Ok((value, found[0]["is_set"] == true))
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::Interrupt).await?;
        let ended = self.process.ended(Duration::from_secs(30)).await?;
        assert_eq!(ended.code(), Some(0), "{}", self.process.log_tail());
        Ok(())
    }
}

async fn engines(count: usize, folder: &Path) -> anyhow::Result<Vec<Engine>> {
    let mut engines = Vec::new();
    for index in 0..count {
        engines.push(Engine::start(&format!("engine{index}"), &[], folder).await?);
    }
    Ok(engines)
}

async fn up_takes_the_reference_s_flags() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let engines = engines(3, folder.path()).await?;
    let ports: Vec<u16> = engines.iter().map(|engine| engine.address().port()).collect();
    write_private(&folder.path().join("keys.json"), &document(&[("key-one", true)])?.to_string())?;
    std::fs::write(at("admission.json"), json!({"enabled_ports": ports[..2]}).to_string())?;
    let window = |tokens: u32| format!("{}={tokens}", ports[1]);
    let mut flags = vec![
        ("--key-store", at("keys.json")),
        ("--control-file", at("admission.json")),
        ("--backend-state", at("backend-state.json")),
        ("--max-active-per-backend", "7".to_owned()),
        ("--max-waiting", "9".to_owned()),
        ("--queue-timeout", "3".to_owned()),
        ("--upstream-timeout", "600".to_owned()),
        ("--max-sessions", "500".to_owned()),
        ("--model-context-limit", "4096".to_owned()),
        ("--backend-context-limit", window(32_768)),
        ("--backend-managed-affinity", String::new()),
    ];
    flags.extend(ports.iter().map(|port| ("--backend-port", port.to_string())));
    let up = Up::start(folder.path(), &flags).await?;
    let shown = up.ctl.json(&["route", "show", "default"]).await?;
    assert_eq!(shown["preset"], "gateway");
    let (before, after) = (window(32_768), window(65_536));
    let rows = [
        ("max_concurrency", "7", "8"),
        ("max_waiting", "9", "10"),
        ("queue_timeout", "3s", "4s"),
        ("upstream_timeout", "10m", "11m"),
        ("max_sessions", "500", "501"),
        ("model_context_limit", "4096", "8192"),
        ("backend_context_limits", &before, &after),
        ("backend_managed_affinity", "true", "false"),
    ];
    for (name, value, _) in rows {
        assert_eq!(up.option(name).await?, (value.to_owned(), true), "{name}");
    }

    let client = Client::http1();
    let keyless = Chat::of("s").send(&client, up.replica).await?;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED);
    for number in 0..6 {
        let answer = Chat::of(&format!("s{number}")).key("key-one").send(&client, up.replica).await?.ok()?;
        assert_ne!(answer.peer(), engines[2].address().to_string(), "the control file leaves it out");
    }
    let wide = Chat::of("wide").key("key-one").header("x-model-context-window", "32768");
    let wide = wide.send(&client, up.replica).await?.ok()?;
    assert_eq!(wide.peer(), engines[1].address().to_string());
    let told = || async {
        let state: Json = serde_json::from_str(&std::fs::read_to_string(at("backend-state.json"))?)?;
        Ok((state["backends"].as_object().map(serde_json::Map::len) == Some(3)).then_some(()))
    };
    until("the state file tells of every backend", Duration::from_secs(1), told).await?;

    // The other door, and each flag as an option while it runs.
    up.ctl.ok(&["undrain", "--port", &ports[2].to_string()]).await?;
    let control: Json = serde_json::from_str(&std::fs::read_to_string(at("admission.json"))?)?;
    assert_eq!(control["enabled_ports"].as_array().map(Vec::len), Some(3), "{control}");
    for (name, _, value) in rows {
        up.ctl.ok(&["route", "set", "default", &format!("{name}={value}")]).await?;
        assert_eq!(up.option(name).await?, (value.to_owned(), true), "{name}");
    }
    let listed = up.ctl.json(&["backend", "list"]).await?;
    assert!(listed["backends"].as_array().is_some_and(|all| all.iter().all(|one| one["limit"] == 8)), "{listed}");

    // And in a document.
    let mut exported = up.ctl.json(&["export", "default"]).await?;
    exported["routes"][0]["options"]["max_concurrency"] = json!(6);
    std::fs::write(at("routes.json"), exported.to_string())?;
    up.ctl.ok(&["apply", "-f", &at("routes.json")]).await?;
    assert_eq!(up.option("max_concurrency").await?, ("6".to_owned(), true));
    assert_eq!(up.option("max_waiting").await?, ("10".to_owned(), true), "the others stay");
    up.stop().await
}

async fn windows_go_with_the_backends_that_go() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let engines = engines(2, folder.path()).await?;
    let [one, two] = [0, 1].map(|index: usize| engines[index].address().port().to_string());
    let both = [("--backend-port", one.clone()), ("--backend-port", two.clone())];
    let windows =
        [("--backend-context-limit", format!("{one}=4096")), ("--backend-context-limit", format!("{two}=65536"))];
    let with_windows = [both.clone(), windows].concat();
    let (left, none) = ((format!("{one}=4096"), true), ("none".to_owned(), false));

    // By the verb.
    let up = Up::start(folder.path(), &with_windows).await?;
    up.ctl.ok(&["backend", "remove", "default", &format!("127.0.0.1:{two}")]).await?;
    assert_eq!(up.option("backend_context_limits").await?, left);
    let typo = up.ctl.run(&["route", "set", "default", &format!("backend_context_limits={two}=4096")]).await?;
    assert!(typo.code == Some(1) && typo.stderr.contains(&format!("no backend has port {two}")), "{typo:?}");
    up.stop().await?;

    // By a start with fewer ports.
    let up = Up::start(folder.path(), &with_windows).await?;
    assert_eq!(up.option("backend_context_limits").await?.0.split(',').count(), 2);
    up.stop().await?;
    let up = Up::start(folder.path(), &both[..1]).await?;
    assert_eq!(up.option("backend_context_limits").await?, left);
    let listed = up.ctl.json(&["backend", "list"]).await?;
    assert_eq!(listed["backends"].as_array().map(Vec::len), Some(1), "{listed}");
    up.stop().await?;
    let up = Up::start(folder.path(), &both[1..]).await?;
    assert_eq!(up.option("backend_context_limits").await?, none);
    up.stop().await
}
