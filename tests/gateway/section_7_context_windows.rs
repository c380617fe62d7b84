//! Context windows: one list of models for the whole pool, lowered to what all share, and requests that say how much they need
//! are served where there is room for it or not at all.

use http::{Method, StatusCode};
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::{Value as Json, json};

use super::gateway;

router_tests::on_both_databases!(the_list_of_models_is_the_pool_s, a_window_is_only_served_where_there_is_room_for_it,);

const WINDOW: &str = "x-model-context-window";

async fn models(cluster: &Cluster, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
    cluster.client.send(cluster.replica(0)?, Method::GET, "/v1/models", headers, "").await
}

async fn the_list_of_models_is_the_pool_s(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = gateway(kind).engines(2).option("model_context_limit", "30000").start().await?;
    let window = |answer: &Answer| Ok::<Json, anyhow::Error>(answer.json()?["data"][0]["max_model_len"].clone());
    let answer = models(&cluster, &[]).await?.ok()?;
    assert_eq!(answer.json()?["data"].as_array().map(Vec::len), Some(1), "a union, not a sum: {}", answer.text());
    assert_eq!(window(&answer)?, 30000, "lowered to the limit that all share");
    assert_eq!((answer.header("x-routed-retries"), answer.header("x-routed-peer")), ("0", ""));
    cluster.engines[1].set(&json!({"max_model_len": 9000})).await?;
    assert_eq!(window(&models(&cluster, &[]).await?.ok()?)?, 9000, "the smallest of the pool, never raised");

    let one = cluster.client.get(cluster.replica(0)?, "/chat/v1/models/mock-model").await?.ok()?;
    assert_eq!((&one.json()?["id"], &one.json()?["max_model_len"]), (&json!("mock-model"), &json!(9000)));
    let missing = cluster.client.get(cluster.replica(0)?, "/v1/models/no/such").await?;
    assert_eq!((missing.status, missing.error_code()?.as_str()), (StatusCode::NOT_FOUND, "model_not_found"));
    let head = cluster.client.send(cluster.replica(0)?, Method::HEAD, "/v1/models", &[], "").await?;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));

    // A dead backend costs nothing but its own models, whether its death is known or not.
    cluster.expect_log("health");
    cluster.engines[1].process.kill9().await?;
    assert_eq!(window(&models(&cluster, &[]).await?.ok()?)?, 30000);
    cluster.until_in_flight(0).await?;
    assert_eq!(cluster.engines[0].stats().await?.requests_total, 0, "no slot of an engine was used");
    cluster.finish()
}

async fn a_window_is_only_served_where_there_is_room_for_it(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = gateway(kind).engines(2).option("model_context_limit", "8000").start().await?;
    let large = cluster.engines[1].address().to_string();
    cluster.ctl()?.ok(&["backend", "set", "chat", &large, "--context-limit", "32000"]).await?;
    let replica = cluster.replica(0)?;
    until("the window is known", PATIENCE, || async {
        let answer = models(&cluster, &[(WINDOW, "32000")]).await?;
        Ok((answer.status == StatusCode::OK).then_some(answer))
    })
    .await?;
    let declared = models(&cluster, &[(WINDOW, "20000")]).await?.ok()?.json()?;
    assert_eq!(declared["data"][0]["max_model_len"], 20000, "what was asked for, not what all share");
    for number in 0..6 {
        let chat = Chat::of(&format!("s{number}")).header(WINDOW, "32000");
        assert_eq!(chat.send(&cluster.client, replica).await?.ok()?.peer(), large);
    }
    for too_much in [
        models(&cluster, &[(WINDOW, "32001")]).await?,
        Chat::new().header(WINDOW, "32001").send(&cluster.client, replica).await?,
    ] {
        assert_eq!((too_much.status, too_much.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "5"));
        assert!(too_much.error_code()? == "context_window" && too_much.text().contains(WINDOW), "{}", too_much.text());
    }
    let malformed = Chat::new().header(WINDOW, "32k").send(&cluster.client, replica).await?;
    assert_eq!(
        (malformed.status, malformed.error_code()?.as_str()),
        (StatusCode::BAD_REQUEST, "invalid_context_window")
    );
    // The control: without the header the small one serves as well.
    let mut peers = std::collections::BTreeSet::new();
    for number in 0..12 {
        peers.insert(Chat::of(&format!("plain{number}")).send(&cluster.client, replica).await?.ok()?.peer().to_owned());
    }
    assert_eq!(peers.len(), 2, "{peers:?}");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
