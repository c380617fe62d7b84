//! Drain: the control file and `routerctl drain` are two doors to one state, with three replicas; the backend state file tells it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use router_tests::traffic::{Outcome, Traffic};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::gateway;

router_tests::on_both_databases!(
    two_doors_one_state_and_the_state_file_tells_it,
    what_is_not_a_list_of_ports_closes_admission_and_running_streams_go_on,
    a_drain_under_load_fails_nothing_and_returns_at_zero,
    a_drain_that_the_file_undoes_is_no_success,
    at_a_start_the_file_wins,
);

struct Files {
    control: PathBuf,
    state: PathBuf,
    _folder: TempDir,
}

/// Three replicas and three engines behind both files; the control file is missing at first.
async fn start(kind: DatabaseKind, engine_args: &[&str]) -> anyhow::Result<(Cluster, Files)> {
    let folder = TempDir::new()?;
    let files = Files {
        control: folder.path().join("admission.json"),
        state: folder.path().join("state.json"),
        _folder: folder,
    };
    let (control, state) = (files.control.display().to_string(), files.state.display().to_string());
    let args = ["--control-file", &control, "--backend-state", &state, "--gateway-route", "chat"];
    let builder = gateway(kind).replicas(3).engines(3).engine_args(engine_args);
    // A control file that is missing admits nobody: each test writes it, and waits for what it says.
    let mut cluster = builder.control_plane_args(&args).unadmitted().start().await?;
    for piece in ["control file", "control-file", "control plane"] {
        cluster.expect_log(piece);
    }
    Ok((cluster, files))
}

fn ports(cluster: &Cluster) -> Vec<u16> {
    cluster.engines.iter().map(|engine| engine.address().port()).collect()
}

/// As the reference's tools do: beside it, then in its place.
fn admit(path: &Path, content: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content)?;
    Ok(std::fs::rename(beside, path)?)
}

fn admit_ports(path: &Path, ports: &[u16]) -> anyhow::Result<()> {
    admit(path, &json!({ "enabled_ports": ports }).to_string())
}

async fn until_drained(cluster: &Cluster, expected: [bool; 3]) -> anyhow::Result<()> {
    let look = || async {
        let mut drained = [false; 3];
        for (index, is_drained) in drained.iter_mut().enumerate() {
            *is_drained = cluster.backend(index).await?.condition.is_some_and(|condition| condition.draining);
        }
        Ok((drained == expected).then_some(()))
    };
    until(&format!("drained: {expected:?}"), PATIENCE, look).await
}

async fn until_state(files: &Files, what: &str, is_so: impl Fn(&Json) -> bool) -> anyhow::Result<Json> {
    let look = || async {
        // It is replaced whole: a reader never finds half of one.
        let Ok(text) = std::fs::read_to_string(&files.state) else { return Ok(None) };
        let state: Json = serde_json::from_str(&text)?;
        Ok(Some(state).filter(&is_so))
    };
    until(&format!("the state file says: {what}"), PATIENCE, look).await
}

async fn two_doors_one_state_and_the_state_file_tells_it(kind: DatabaseKind) -> anyhow::Result<()> {
    let (cluster, files) = start(kind, &[]).await?;
    let ports = ports(&cluster);
    admit_ports(&files.control, &ports)?;
    until_drained(&cluster, [false; 3]).await?;
    let state = until_state(&files, "all are active", |state| state["active_ports"] == json!(sorted(&ports))).await?;
    let active = state["active_port"].as_u64().expect("one of them");
    assert!(ports.iter().any(|port| u64::from(*port) == active));

    // By the file.
    admit_ports(&files.control, &ports[1..])?;
    until_drained(&cluster, [true, false, false]).await?;
    let name = ports[0].to_string();
    until_state(&files, "the first one drains", |state| {
        state["backends"][&name] == json!({"healthy": true, "draining": true, "inflight": 0})
            && state["active_ports"] == json!(sorted(&ports[1..]))
    })
    .await?;
    for number in 0..9 {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(number % 3)?).await?.ok()?;
        assert_ne!(answer.peer(), cluster.engines[0].address().to_string());
    }

    // By the command: the file says the same.
    cluster.ctl()?.ok(&["drain", "--port", &ports[1].to_string()]).await?;
    let listed = || -> anyhow::Result<Vec<u16>> {
        let json: Json = serde_json::from_str(&std::fs::read_to_string(&files.control)?)?;
        let mut ports: Vec<u16> = serde_json::from_value(json["enabled_ports"].clone())?;
        ports.sort_unstable();
        Ok(ports)
    };
    assert_eq!(listed()?, [ports[2]]);
    cluster.ctl()?.ok(&["undrain", "--port", &ports[0].to_string()]).await?;
    assert_eq!(listed()?, sorted(&[ports[0], ports[2]]));
    until_drained(&cluster, [false, true, false]).await?;

    // What is in flight is told while it lasts.
    cluster.until_in_flight(0).await?;
    cluster.engines[0].hold().await?;
    cluster.engines[2].hold().await?;
    let mut streams = Vec::new();
    for replica in 0..3 {
        streams.push(RawClient::send(cluster.replica(replica)?, &Chat::new()).await?);
    }
    cluster.until_in_flight(3).await?;
    let sum = |state: &Json| -> u64 {
        state["backends"].as_object().expect("backends").values().filter_map(|one| one["inflight"].as_u64()).sum()
    };
    until_state(&files, "three in flight", |state| sum(state) == 3).await?;
    for engine in &cluster.engines {
        engine.release().await?;
    }
    for stream in &mut streams {
        stream.read_until("usage").await?;
    }
    until_state(&files, "none in flight", |state| sum(state) == 0).await?;
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&files.state)?);
    assert_eq!(mode & 0o777, 0o600);
    cluster.finish()
}

fn sorted(ports: &[u16]) -> Vec<u16> {
    let mut ports = ports.to_vec();
    ports.sort_unstable();
    ports
}

async fn what_is_not_a_list_of_ports_closes_admission_and_running_streams_go_on(
    kind: DatabaseKind,
) -> anyhow::Result<()> {
    let (cluster, files) = start(kind, &[]).await?;
    let ports = ports(&cluster);
    for content in [None, Some("{\"enabled_ports\": []}"), Some("{\"enabled_ports\": [\"x\"]}"), Some("not JSON")] {
        admit_ports(&files.control, &ports)?;
        until_drained(&cluster, [false; 3]).await?;
        for engine in &cluster.engines {
            engine.hold().await?;
        }
        let mut running = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
        cluster.until_in_flight(1).await?;
        match content {
            None => std::fs::remove_file(&files.control)?,
            Some(content) => admit(&files.control, content)?,
        }
        until_drained(&cluster, [true; 3]).await?;
        let refused = Chat::of("s").send(&cluster.client, cluster.replica(1)?).await?;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{content:?}: {}", refused.text());
        until_state(&files, "nobody is active", |state| {
            state["active_ports"] == json!([]) && state["active_port"].is_null()
        })
        .await?;
        for engine in &cluster.engines {
            engine.release().await?;
        }
        running.read_until("[DONE]").await?;
        cluster.until_in_flight(0).await?;
    }
    cluster.finish()
}

async fn a_drain_under_load_fails_nothing_and_returns_at_zero(kind: DatabaseKind) -> anyhow::Result<()> {
    let (cluster, files) = start(kind, &["--ttft-ms", "20", "--token-gap-ms", "10"]).await?;
    let ports = ports(&cluster);
    admit_ports(&files.control, &ports)?;
    until_drained(&cluster, [false; 3]).await?;
    let traffic = Traffic::start(12, &cluster.replica_addresses()?, &Chat::new().streamed());
    traffic.until_more(48).await?;
    cluster.ctl()?.ok(&["drain", "--port", &ports[1].to_string(), "--wait"]).await?;
    let drained = cluster.engines[1].stats().await?;
    assert_eq!(drained.in_flight, 0, "it returns when nothing is left");
    assert!(drained.requests_total > 0, "the control: it had work");
    traffic.until_more(48).await?;
    assert_eq!(cluster.engines[1].stats().await?.requests_total, drained.requests_total);
    let outcomes = traffic.stop().await?;
    let bad: Vec<String> = outcomes.iter().filter(|outcome| !outcome.is_good()).map(Outcome::text).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    cluster.finish()
}

async fn a_drain_that_the_file_undoes_is_no_success(kind: DatabaseKind) -> anyhow::Result<()> {
    let (cluster, files) = start(kind, &[]).await?;
    let ports = ports(&cluster);
    admit_ports(&files.control, &ports[..1])?;
    until_drained(&cluster, [false, true, true]).await?;
    cluster.engines[0].hold().await?;
    let mut running = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    cluster.until_in_flight(1).await?;
    let (ctl, port) = (cluster.ctl()?, ports[0].to_string());
    let drain = ["drain", "--port", &port, "--wait"];
    let wait = ctl.run(&drain);
    let undo = async {
        until_drained(&cluster, [true; 3]).await?;
        // The drain has written the file; somebody's tool writes what it holds true.
        admit_ports(&files.control, &ports[..1])
    };
    let (said, undone) = tokio::join!(wait, undo);
    undone?;
    let said = said?;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("was undrained meanwhile"), "{said:?}");
    cluster.engines[0].release().await?;
    running.read_until("[DONE]").await?;
    cluster.finish()
}

async fn at_a_start_the_file_wins(kind: DatabaseKind) -> anyhow::Result<()> {
    let (mut cluster, files) = start(kind, &[]).await?;
    let ports = ports(&cluster);
    admit_ports(&files.control, &ports)?;
    until_drained(&cluster, [false; 3]).await?;
    cluster.control_plane.kill9().await?;
    admit_ports(&files.control, &ports[..1])?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(3).await?;
    let is_so = || async { Ok(cluster.backend(1).await?.condition.is_some_and(|condition| condition.draining)) };
    throughout("what the file leaves out is out from the first moment on", Duration::from_millis(300), is_so).await?;
    for number in 0..6 {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(number % 3)?).await?.ok()?;
        assert_eq!(answer.peer(), cluster.engines[0].address().to_string());
    }
    cluster.finish()
}
