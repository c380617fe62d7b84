//! Another backend is tried after a connect failure or any 5xx, as long as nothing was sent to the client; never after that.

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;
use serde_json::json;

use super::gateway;

router_tests::on_both_databases!(
    every_other_backend_is_tried_before_the_head,
    when_all_fail_the_last_one_s_own_answer_is_passed_on,
    a_stream_that_has_begun_ends_and_is_not_repeated,
);

async fn every_other_backend_is_tried_before_the_head(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = gateway(kind).engines(4).option("health_check_interval", "60s").start().await?;
    cluster.expect_log("backend");
    cluster.engines[0].set(&json!({"fail": "500"})).await?;
    cluster.engines[1].set(&json!({"fail": "503"})).await?;
    cluster.engines[2].process.kill9().await?;
    let well = cluster.engines[3].address().to_string();
    let mut most = 0;
    for number in 0..8 {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        assert_eq!(answer.peer(), well);
        most = most.max(answer.header("x-routed-retries").parse::<u32>()?);
    }
    assert!(most >= 1, "the control: some request met a sick backend first");
    let sessions = cluster.admin().await?.bindings().await?;
    assert!(sessions.iter().all(|(_, home)| *home == well), "each is bound where it was answered: {sessions:?}");

    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn when_all_fail_the_last_one_s_own_answer_is_passed_on(kind: DatabaseKind) -> anyhow::Result<()> {
    // No probe comes between, and nothing has failed before: each is in, until it is asked.
    let mut cluster = gateway(kind).engines(3).option("health_check_interval", "60s").start().await?;
    cluster.expect_log("backend");
    for engine in &cluster.engines {
        engine.reset().await?;
        engine.set(&json!({"fail": "500"})).await?;
    }
    let answer = Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.text().contains("the mock engine was told to fail"), "not the router's words: {}", answer.text());
    for engine in &cluster.engines {
        assert_eq!(engine.stats().await?.requests_total, 1, "each is tried, and once");
    }
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn a_stream_that_has_begun_ends_and_is_not_repeated(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = gateway(kind).engines(2).engine_args(&["--tokens", "20"]).start().await?;
    cluster.expect_log("backend");
    let home = Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?.peer().to_owned();
    for engine in &cluster.engines {
        engine.reset().await?;
    }
    cluster.engine_at(&home)?.set(&json!({"fail": "die-mid-stream"})).await?;
    let mut client = RawClient::send(cluster.replica(1)?, &Chat::of("s").streamed()).await?;
    let text = client.read_to_end().await?;
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("data: "), "{text}");
    assert!(!text.contains("[DONE]") && !text.ends_with("0\r\n\r\n"), "a broken stream never looks whole: {text}");
    let mut asked = 0;
    for engine in &cluster.engines {
        asked += engine.stats().await?.requests_total;
    }
    assert_eq!(asked, 1, "nobody was asked again");
    // The client may send the whole request again.
    cluster.engine_at(&home)?.set(&json!({"fail": "none"})).await?;
    let mut again = RawClient::send(cluster.replica(0)?, &Chat::of("s").streamed()).await?;
    again.read_until("[DONE]").await?;
    cluster.finish()
}
