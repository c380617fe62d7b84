//! What replicas count, over the wire.

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::*;

fn parsed(route: &str, more: u64) -> Client {
    let counts = HashMap::from([("parsed".to_owned(), more), ("of_a_newer_one".to_owned(), 1)]);
    Client::Counted(v1::Counted { route: route.to_owned(), counts, ..v1::Counted::default() })
}

async fn total(running: &Running) -> Json {
    let request = v1::PageRequest {
        route: "chat".to_owned(),
        page: "_cch_strip_status".to_owned(),
        is_loopback: true,
        ..v1::PageRequest::default()
    };
    let mut client = CoordinatorClient::new(running.channel.clone());
    let reply = client.page(request).await.unwrap().into_inner();
    serde_json::from_str::<Json>(&reply.json).unwrap()["parsed_total"].clone()
}

/// What was said before is heard when this is answered.
async fn heard(link: &mut Link) {
    link.say(9, Client::Acquire(v1::Acquire { route: "nowhere".to_owned(), ..v1::Acquire::default() }));
    assert!(matches!(link.hear().await, Some(Answer::Refused(_))));
}

#[tokio::test]
async fn counts_of_all_replicas_add_up_and_outlive_the_control_plane() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    running.one_route().await;
    let mut first = running.replica("r1", Vec::new()).await;
    first.welcomed().await;
    let mut second = running.replica("r2", Vec::new()).await;
    second.welcomed().await;
    first.say(0, parsed("chat", 3));
    first.say(0, parsed("nowhere", 50));
    second.say(0, parsed("chat", 4));
    heard(&mut first).await;
    heard(&mut second).await;
    assert_eq!(total(&running).await, json!(7));
    let reply = running.admin().list_routes(v1::ListRoutesRequest::default()).await.unwrap().into_inner();
    assert_eq!(reply.routes[0].payload_counts, HashMap::from([("parsed".to_owned(), 7)]));
    // The same replica says hello again: its old stream is not heard any more.
    let mut again = running.replica("r1", Vec::new()).await;
    again.welcomed().await;
    first.say(0, parsed("chat", 100));
    again.say(0, parsed("chat", 1));
    again.say(0, Client::Goodbye(v1::Goodbye {}));
    while again.hear().await.is_some() {}
    while first.hear().await.is_some() {}
    assert_eq!(total(&running).await, json!(8));
    running.stop().await;

    let running = Running::start(folder.path(), Duration::from_secs(600)).await;
    assert_eq!(total(&running).await, json!(8));
    running.stop().await;
}
