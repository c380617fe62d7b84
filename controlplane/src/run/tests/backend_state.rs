//! The backend state file follows the pool (gateway.md §9).

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use router_policy::ids::RouteName;
use serde_json::Value as Json;

use super::*;
use crate::files::RouteFile;

/// Reads until the file says so. Each reading must be whole: a torn one would not parse.
async fn until(path: &Path, is_so: impl Fn(&Json) -> bool) -> Json {
    let end = Instant::now() + SOON;
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            let json: Json = serde_json::from_str(&text).expect("a whole file");
            if is_so(&json) {
                return json;
            }
            assert!(Instant::now() < end, "{json}");
        }
        assert!(Instant::now() < end, "no file");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn started(folder: &Path, path: PathBuf) -> Running {
    let backend_state = Some(RouteFile { path, route: RouteName::new("chat").unwrap() });
    let files = FileConfig { backend_state, ..FileConfig::default() };
    Running::start_with(folder, Duration::from_secs(600), files).await
}

async fn drain(running: &Running, drain: bool) {
    let selector = v1::BackendSelector { port: 9, ..v1::BackendSelector::default() };
    running.admin().set_drain(v1::SetDrainRequest { selector: Some(selector), drain }).await.unwrap();
}

#[tokio::test]
async fn the_file_says_what_the_pool_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let running = started(folder.path(), path.clone()).await;
    let empty = until(&path, |_| true).await;
    assert_eq!((&empty["active_ports"], &empty["active_port"]), (&serde_json::json!([]), &Json::Null));
    running.one_route().await;
    until(&path, |now| now["active_port"] == 9 && now["backends"]["9"]["healthy"] == true).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut link = running.replica("one", vec![]).await;
    link.welcomed().await;
    let granted = link.acquire().await;
    let now = until(&path, |now| now["backends"]["9"]["inflight"] == 1).await;
    drain(&running, true).await;
    let drained = until(&path, |now| now["backends"]["9"]["draining"] == true).await;
    assert_eq!((&drained["active_ports"], &drained["active_port"]), (&serde_json::json!([]), &Json::Null));
    assert_eq!(drained["backends"]["9"]["inflight"], 1, "what runs goes on and is shown");
    assert!(drained["updated_unix_ms"].as_u64() >= now["updated_unix_ms"].as_u64());

    drain(&running, false).await;
    until(&path, |now| now["active_port"] == 9).await;
    running.admin().remove_route(v1::RemoveRouteRequest { route: "chat".to_owned() }).await.unwrap();
    let removed = until(&path, |now| now["backends"]["9"]["draining"] == true).await;
    assert_eq!((&removed["active_ports"], &removed["active_port"]), (&serde_json::json!([]), &Json::Null));
    assert_eq!(removed["backends"]["9"]["inflight"], 1);
    let release = v1::Release { lease: granted.lease, route: "chat".to_owned(), ..v1::Release::default() };
    link.say(0, Client::Release(release));
    let last = until(&path, |now| now["backends"].as_object().unwrap().is_empty()).await;
    // Nothing happens any more; it is written all the same.
    until(&path, |now| now["updated_unix_ms"].as_u64() > last["updated_unix_ms"].as_u64()).await;
    running.one_route().await;
    until(&path, |now| now["active_port"] == 9).await;
    running.stop().await;
    let last = until(&path, |_| true).await;
    assert_eq!((&last["active_ports"], &last["active_port"]), (&serde_json::json!([]), &Json::Null), "it is gone");
    assert_eq!(last["last_active_port"], 9);
}

#[tokio::test]
async fn a_file_that_can_not_be_written_is_told_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    std::fs::create_dir(folder.path().join("state.json.router-tmp")).unwrap();
    let running = started(folder.path(), path.clone()).await;
    running.one_route().await;
    let problem = async || {
        let reply = running.admin().get_status(v1::GetStatusRequest {}).await.unwrap().into_inner();
        reply.files[0].problem.clone()
    };
    let end = Instant::now() + SOON;
    while problem().await.is_empty() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(problem().await.contains("can't be written"));
    assert!(!path.exists());
    std::fs::remove_dir(folder.path().join("state.json.router-tmp")).unwrap();
    until(&path, |now| now["active_port"] == 9).await;
    while !problem().await.is_empty() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.stop().await;
}
