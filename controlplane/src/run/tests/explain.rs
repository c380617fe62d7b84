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
    let fingerprint = Fingerprinter::new(&settings.fingerprint_key).unwrap().fingerprint(&alice.id, b"my session");

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
