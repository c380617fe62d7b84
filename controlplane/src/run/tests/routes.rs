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

async fn drained(running: &Running) -> Vec<String> {
    let reply = running.admin().list_routes(v1::ListRoutesRequest::default()).await.unwrap().into_inner();
    let backends = reply.routes.into_iter().flat_map(|route| route.backends);
    let out = backends.filter(|backend| backend.condition.unwrap().draining);
    out.map(|backend| format!("{} {}", backend.route, backend.address)).collect()
}

fn apply_drained(document: &serde_json::Value, drained: &[&str]) -> v1::ApplyRequest {
    let drained = drained.iter().map(|&address| address.to_owned()).collect();
    v1::ApplyRequest { document_json: document.to_string(), drained, ..v1::ApplyRequest::default() }
}

#[tokio::test]
async fn a_backend_that_starts_drained_is_never_admitted_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    // A key opens the gateway, and a request waits: whoever is admitted for a moment serves it.
    let key = v1::AddKeyRequest { name: "ci".to_owned(), sha256: vec![5; 32].into() };
    running.admin().add_key(key).await.unwrap();
    running.one_route().await;
    let mut link = running.replica("one", vec![]).await;
    link.welcomed().await;
    let granted = link.acquire().await;
    link.say(3, Client::Acquire(v1::Acquire { route: "chat".to_owned(), ..v1::Acquire::default() }));
    let mut watch = CoordinatorClient::new(running.channel.clone());
    let mut watch = watch.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();

    let chat = |backends: &[&str]| {
        json!({"name": "chat", "default": true, "backends": backends,
            "options": {"max_concurrency": 1, "queue_timeout": "60s", "health_failures": 1000, "passive_ban": "off"}})
    };
    let both =
        json!({"routes": [chat(&["127.0.0.1:9", "127.0.0.1:10"]), {"name": "new", "backends": ["127.0.0.1:10"]}]});
    running.admin().apply(apply_drained(&both, &["127.0.0.1:10", "127.0.0.1:9"])).await.unwrap();
    let news = tokio::time::timeout(SOON, watch.message()).await.unwrap().unwrap().unwrap();
    let told = news.routes.iter().flat_map(|route| &route.backends).filter(|backend| backend.address.ends_with(":10"));
    assert!(told.clone().count() > 0 && told.clone().all(|backend| backend.condition.unwrap().draining), "{news:?}");
    assert_eq!(drained(&running).await, ["chat 127.0.0.1:10", "new 127.0.0.1:10"], "the one that was there stays");

    // The control: one that starts as usual takes the request that waits.
    running.apply(chat(&["127.0.0.1:9", "127.0.0.1:10", "127.0.0.1:11"])).await.unwrap();
    let Some(Answer::Granted(second)) = link.hear().await else { panic!("granted expected") };
    assert_eq!((granted.backend.as_str(), second.backend.as_str()), ("127.0.0.1:9", "127.0.0.1:11"));
    running.stop().await;

    let again = Running::start(folder.path(), Duration::from_secs(600)).await;
    assert_eq!(drained(&again).await, ["chat 127.0.0.1:10", "new 127.0.0.1:10"], "as durable as the route");
    let selector = v1::BackendSelector { port: 10, ..v1::BackendSelector::default() };
    again.admin().set_drain(v1::SetDrainRequest { selector: Some(selector), drain: false }).await.unwrap();
    again.admin().apply(apply_drained(&both, &["127.0.0.1:10"])).await.unwrap();
    assert!(drained(&again).await.is_empty(), "it is not new any more");
    again.stop().await;
}

#[tokio::test]
async fn what_starts_drained_must_be_in_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    let document = json!({"name": "chat", "backends": ["127.0.0.1:9"]});
    let refused = running.admin().apply(apply_drained(&document, &["127.0.0.1:9", "127.0.0.1:8", "9"])).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let lines: Vec<&str> = refused.message().lines().collect();
    assert_eq!(lines[0], "drained[1]: 127.0.0.1:8 is not a backend of the document's routes");
    assert!(lines.len() == 2 && lines[1].starts_with("drained[2]: "), "{lines:?}");
    assert_eq!(exported(&running).await["routes"], json!([]));
    running.stop().await;
}

#[tokio::test]
async fn keys_are_found_by_the_whole_hash() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    let key = v1::AddKeyRequest { name: "ci".to_owned(), sha256: vec![5; 32].into() };
    running.admin().add_key(key).await.unwrap();
    // Alike in what `key list` shows, and not the same.
    let alike = [vec![5; 4], vec![6; 28]].concat();
    let asked = v1::FindKeysRequest { sha256: vec![alike.into(), vec![5; 32].into()] };
    let found = running.admin().find_keys(asked).await.unwrap().into_inner().found;
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].sha256[..], found[0].key.as_ref().unwrap().name.as_str()), (&[5; 32][..], "ci"));
    let short = running.admin().find_keys(v1::FindKeysRequest { sha256: vec![vec![5; 4].into()] }).await.unwrap_err();
    assert_eq!((short.code(), short.message()), (Code::InvalidArgument, "sha256: 32 bytes expected, got 4"));
    running.stop().await;
}
