//! An operator's question about a session, over the wire.

use router_policy::session::Fingerprinter;

use super::*;

#[tokio::test]
async fn a_session_is_found_under_its_key_by_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let key = v1::AddKeyRequest { name: "alice".to_owned(), sha256: vec![5; 32].into() };
    let alice = running.admin().add_key(key).await.unwrap().into_inner().key.unwrap();
    let mut client = CoordinatorClient::new(running.channel.clone());
    let mut snapshots = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let settings = snapshots.message().await.unwrap().unwrap().settings.unwrap();
    let fingerprint =
        Fingerprinter::new(&settings.fingerprint_key).unwrap().fingerprint_for(&alice.id, b"my session", None);

    let explain = async |request: v1::ExplainRequest| {
        let request = v1::ExplainRequest { route: "chat".to_owned(), ..request };
        running.admin().explain(request).await.map(tonic::Response::into_inner)
    };
    let by_id = || v1::ExplainRequest { session_id: "my session".to_owned(), ..v1::ExplainRequest::default() };
    assert_eq!(explain(by_id()).await.unwrap().session, "not bound, under no key");
    let mut one = running.replica("one", vec![]).await;
    one.welcomed().await;
    let acquire = v1::Acquire {
        route: "chat".to_owned(),
        fingerprint: fingerprint.0.to_vec().into(),
        key_id: alice.id,
        ..v1::Acquire::default()
    };
    one.say(2, Client::Acquire(acquire));
    assert!(matches!(one.hear().await, Some(Answer::Granted(_))));
    let found = explain(by_id()).await.unwrap();
    assert_eq!(found.session, "bound to 127.0.0.1:9 as a session of key alice");
    assert!(found.waits, "{}", found.outcome);

    let prefix = |text: &str| v1::ExplainRequest { fingerprint: text.to_owned(), ..v1::ExplainRequest::default() };
    assert_eq!(explain(prefix(&fingerprint.short())).await.unwrap().session, "bound to 127.0.0.1:9");
    assert!(explain(prefix("ffff")).await.unwrap().session.starts_with("no session"));
    let both = v1::ExplainRequest { session_id: "x".to_owned(), ..prefix("ff") };
    let too_long = v1::ExplainRequest { session_id: "x".repeat(257), ..v1::ExplainRequest::default() };
    for bad in [prefix("xyz"), both, too_long] {
        let error = explain(bad).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(!error.message().contains("xx"), "{}", error.message());
    }
    running.stop().await;
}

#[tokio::test]
async fn a_session_that_alternates_between_two_models_stays_bound_in_both_pools() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    let document = serde_json::json!({"name": "chat", "options": {"health_failures": 1000},
        "backends_by_model": {"a": ["127.0.0.1:9"], "b": ["127.0.0.1:10"]}});
    running.apply(document).await.unwrap();
    let mut client = CoordinatorClient::new(running.channel.clone());
    let mut snapshots = client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    let settings = snapshots.message().await.unwrap().unwrap().settings.unwrap();
    let by = Fingerprinter::new(&settings.fingerprint_key).unwrap();
    let mut one = running.replica("one", vec![]).await;
    one.welcomed().await;
    let mut op = 1;
    let mut acquire = async |named: &[Option<&str>], models: &[&str]| {
        let mut modes = Vec::new();
        for (named, model) in named.iter().zip(models) {
            op += 1;
            let wish = v1::Acquire {
                route: "chat".to_owned(),
                model: (*model).to_owned(),
                fingerprint: by.fingerprint_for("", b"my session", *named).0.to_vec().into(),
                ..v1::Acquire::default()
            };
            one.say(op, Client::Acquire(wish));
            let Some(Answer::Granted(granted)) = one.hear().await else { panic!("not granted") };
            modes.push(granted.mode());
        }
        modes
    };
    let models = ["a", "b", "a", "b"];
    let stays = acquire(&models.map(Some), &models).await;
    assert_eq!(stays, [v1::Mode::New, v1::Mode::New, v1::Mode::Bound, v1::Mode::Bound]);
    for (model, session) in [
        ("a", "bound to 127.0.0.1:9 as a session without a key"),
        ("b", "bound to 127.0.0.1:10 as a session without a key"),
    ] {
        let request = v1::ExplainRequest {
            route: "chat".to_owned(),
            session_id: "my session".to_owned(),
            model: model.to_owned(),
            ..v1::ExplainRequest::default()
        };
        let told = running.admin().explain(request).await.unwrap().into_inner();
        assert_eq!(told.session, session);
    }
    // The control: under one name for both pools it moves each time.
    let moves = acquire(&[None; 4], &models).await;
    assert_eq!(moves, [v1::Mode::New, v1::Mode::Moved, v1::Mode::Moved, v1::Mode::Moved]);
    running.stop().await;
}

#[tokio::test]
async fn routing_5_3_a_session_that_is_not_bound_goes_where_its_hash_says() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    let peers = ["10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.13:8000"];
    let apply = async |affinity: &str| {
        let options = serde_json::json!({"affinity": affinity, "health_failures": 1000});
        running.apply(serde_json::json!({"name": "chat", "options": options, "backends": peers})).await.unwrap();
    };
    let explain = async || {
        let request = v1::ExplainRequest {
            route: "chat".to_owned(),
            session_id: "s1".to_owned(),
            ..v1::ExplainRequest::default()
        };
        running.admin().explain(request).await.unwrap().into_inner()
    };
    apply("rendezvous").await;
    let told = explain().await;
    assert_eq!((told.backend.as_str(), told.mode.as_str()), (peers[2], "rendezvous"));
    assert_eq!(told.session, "belongs to 10.0.0.13:8000; sessions of this route are not bound");
    let selector = v1::BackendSelector { backend: peers[2].to_owned(), ..v1::BackendSelector::default() };
    let drain = v1::SetDrainRequest { selector: Some(selector), drain: true };
    running.admin().set_drain(drain).await.unwrap();
    let told = explain().await;
    assert_eq!((told.backend.as_str(), told.mode.as_str()), (peers[1], "rendezvous"), "{}", told.outcome);

    apply("hash").await;
    let at = usize::try_from(router_policy::session::hash::crc32(b"s1") % 3).unwrap();
    let told = explain().await;
    let out = at == 2;
    assert_eq!(told.mode, if out { "hash_fallback" } else { "hash" }, "{}", told.outcome);
    assert_eq!(told.session, format!("belongs to {}; sessions of this route are not bound", peers[at]));
    apply("off").await;
    let told = explain().await;
    assert_eq!((told.mode.as_str(), told.session.as_str()), ("least_conn", "sessions of this route are not bound"));
    running.stop().await;
}
