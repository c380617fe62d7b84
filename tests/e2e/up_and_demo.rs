//! The first two commands that a stranger runs: `routerctl demo` shows what the router is for and ends well; `routerctl up`
//! runs a whole installation until it is told to stop.

use std::net::SocketAddr;
use std::time::Duration;

use router_tests::chat::Chat;
use router_tests::client::Client;
use router_tests::ctl::{self, Ctl};
use router_tests::engine::Engine;
use router_tests::process::{Process, Signal};
use tempfile::TempDir;

router_tests::on_any_database!(demo_shows_every_promise_kept, up_serves_until_ctrl_c, up_starts_again_what_was_killed);

/// A debug build on busy cores.
const DEMO_PATIENCE: Duration = Duration::from_secs(140);

async fn demo_shows_every_promise_kept() -> anyhow::Result<()> {
    let said = ctl::run_within(DEMO_PATIENCE, ["demo"], None).await?;
    assert_eq!(said.code, Some(0), "{said:?}");
    let passed = said.stdout.lines().filter(|line| line.contains("PASS")).count();
    assert!(passed >= 4, "affinity, hit rate, exact limit, drain: {}", said.stdout);
    assert!(!said.stdout.contains("FAIL"), "{}", said.stdout);
    assert!(said.stdout.contains("mock"), "it says that the engines are mocks: {}", said.stdout);
    Ok(())
}

async fn up_serves_until_ctrl_c() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let state = folder.path().join("state");
    let state = state.to_str().expect("a temporary folder's name is text");
    let engine = Engine::start("engine", &[], folder.path()).await?;
    let port = engine.address().port().to_string();
    let (base, admin, grpc, http) = free_ports()?;
    let args = [
        "up",
        "--replicas",
        "2",
        "--listen",
        &format!("127.0.0.1:{base}"),
        "--admin-listen",
        &format!("127.0.0.1:{admin}"),
        "--grpc-listen",
        &format!("127.0.0.1:{grpc}"),
        "--http-listen",
        &format!("127.0.0.1:{http}"),
        "--backend-port",
        &port,
        "--state-dir",
        state,
    ];
    let client = Client::http1();
    let mut sessions = Vec::new();
    // Twice in the same folder: what the first run bound, the second knows.
    for run in ["first", "second"] {
        let mut up = Process::spawn(&format!("up-{run}"), &args, &[], folder.path())?;
        up.nth_line_within(2, "ready role=dataplane", Duration::from_secs(60)).await?;
        for replica in [base, base + 1] {
            let answer = Chat::of("s").send(&client, ([127, 0, 0, 1], replica).into()).await?.ok()?;
            sessions.push((answer.header("x-routed-session").to_owned(), answer.mode().to_owned()));
        }
        let status = Ctl::at(format!("http://127.0.0.1:{grpc}")).json(&["status"]).await?;
        assert_eq!(status["replicas"].as_array().map(Vec::len), Some(2), "{status}");
        up.signal(Signal::Interrupt).await?;
        let status = up.ended(Duration::from_secs(30)).await?;
        assert_eq!(status.code(), Some(0), "{status}\n{}", up.log_tail());
        for port in [base, base + 1, grpc, http] {
            let left = std::net::TcpListener::bind(("127.0.0.1", port));
            assert!(left.is_ok(), "port {port} is free again, no child is left: {left:?}");
        }
    }
    let modes: Vec<&str> = sessions.iter().map(|(_, mode)| mode.as_str()).collect();
    assert_eq!(modes, ["new", "bound", "bound", "bound"]);
    assert!(sessions.iter().all(|(session, _)| *session == sessions[0].0), "{sessions:?}");
    Ok(())
}

async fn up_starts_again_what_was_killed() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let engine = Engine::start("engine", &[], folder.path()).await?;
    let (port, state) = (engine.address().port().to_string(), folder.path().join("state").display().to_string());
    let mut args = vec!["up", "--replicas", "2", "--backend-port", &port, "--state-dir", &state];
    for flag in ["--listen", "--admin-listen", "--grpc-listen", "--http-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    let mut up = Process::spawn("up", &args, &[], folder.path())?;
    let patience = Duration::from_secs(60);
    up.nth_line_within(2, "ready role=dataplane", patience).await?;
    let addresses: Vec<SocketAddr> = up
        .stdout()
        .iter()
        .filter(|line| line.starts_with("listening role=dataplane"))
        .filter_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix("http=")?.parse().ok()))
        .collect();
    let client = Client::http1();
    let turn = async |replica: SocketAddr| Chat::of("s").send(&client, replica).await?.ok();
    assert_eq!(turn(addresses[0]).await?.mode(), "new");
    let pid = up.pid().expect("it runs");
    let kill = async |role: &str| {
        let script = format!("kill -9 $(pgrep -P {pid} -f ' {role} ' | head -n 1)");
        tokio::process::Command::new("sh").arg("-c").arg(script).status().await
    };
    for (role, replicas, control_planes) in [("dataplane", 3, 1), ("controlplane", 3, 2)] {
        assert!(kill(role).await?.success());
        up.nth_line_within(control_planes, "ready role=controlplane", patience).await?;
        up.nth_line_within(replicas, "ready role=dataplane", patience).await?;
        for replica in &addresses {
            assert_eq!(turn(*replica).await?.mode(), "bound", "on the port that it had, and nothing is forgotten");
        }
    }
    up.signal(Signal::Interrupt).await?;
    assert_eq!(up.ended(Duration::from_secs(30)).await?.code(), Some(0), "{}", up.log_tail());
    Ok(())
}

/// A pair of neighbours for two replicas, a pair for their admin ports, one for gRPC and one for HTTP.
fn free_ports() -> anyhow::Result<(u16, u16, u16, u16)> {
    let mut listeners = Vec::new();
    let mut next = u16::try_from(std::process::id() % 8000)? + 20_000;
    while listeners.len() < 6 {
        match std::net::TcpListener::bind(("127.0.0.1", next)) {
            Ok(listener) => listeners.push(listener),
            Err(_) => listeners.clear(),
        }
        next += 1;
    }
    let first = next - 6;
    Ok((first, first + 2, first + 4, first + 5))
}
