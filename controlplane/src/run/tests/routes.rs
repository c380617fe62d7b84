//! Routes as operators change them.

use serde_json::json;

use super::*;

async fn exported(running: &Running) -> serde_json::Value {
    let reply = running.admin().export(v1::ExportRequest::default()).await.unwrap().into_inner();
    serde_json::from_str(&reply.document_json).unwrap()
}

#[tokio::test]
async fn a_backend_takes_its_context_window_along() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    let route = |windows: &str, backends: &[&str]| json!({"name": "chat", "options": {"backend_context_limits": windows}, "backends": backends});
    let three = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.1:8001"];
    running.apply(route("8000=4096,8001=8192", &three)).await.unwrap();
    let remove = async |address: &str| {
        let request = v1::RemoveBackendRequest { route: "chat".to_owned(), address: address.to_owned() };
        running.admin().remove_backend(request).await.unwrap();
        exported(&running).await["routes"][0]["options"].clone()
    };
    assert_eq!(
        remove(three[0]).await,
        json!({"backend_context_limits": {"8000": 4096, "8001": 8192}}),
        "one is left there"
    );
    assert_eq!(remove(three[1]).await, json!({"backend_context_limits": {"8001": 8192}}));
    // What a person writes is taken at its word.
    let typo = running.apply(route("8000=4096", &three[2..])).await.unwrap_err();
    assert!(typo.message().contains("no backend has port 8000; allowed: 8001"), "{}", typo.message());
    let set = v1::SetRouteRequest {
        route: "chat".to_owned(),
        set: [("backend_context_limits".to_owned(), "8000=4096".to_owned())].into(),
        ..v1::SetRouteRequest::default()
    };
    assert!(running.admin().set_route(set).await.is_err());
    assert_eq!(remove(three[2]).await, serde_json::Value::Null);
    running.stop().await;
}
