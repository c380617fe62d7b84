//! A stream arrives through the router byte for byte as the engine sent it, and piece by piece when the engine sent it.

use std::time::{Duration, Instant};

use http::Method;
use router_tests::chat::Chat;
use router_tests::client::{joined, next_chunk, timed_chunks};
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::{Value as Json, json};

router_tests::on_both_databases!(bytes_are_identical, pieces_arrive_one_by_one, a_broken_stream_ends_as_broken);

/// Ids and times differ between two answers; everything else may not.
fn without_ids(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = |line: &str| match line.strip_prefix("data: ").and_then(|data| serde_json::from_str::<Json>(data).ok()) {
        Some(mut event) => {
            if let Some(fields) = event.as_object_mut() {
                fields.retain(|name, _| name != "id" && name != "created");
                if let Some(message) = fields.get_mut("message").and_then(Json::as_object_mut) {
                    message.remove("id");
                }
            }
            format!("data: {event}")
        }
        None => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

async fn bytes_are_identical(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).engines(1).engine_args(&["--tokens", "200"]).start().await?;
    let (engine, replica) = (cluster.engines[0].address(), cluster.replica(0)?);
    let chat = json!({"model": "mock-model", "stream": true, "stream_options": {"include_usage": true},
                      "messages": [{"role": "user", "content": "hello — ünïcode"}]});
    let message = json!({"model": "mock-model", "stream": true, "max_tokens": 50,
                         "messages": [{"role": "user", "content": "hello"}]});
    let plain = json!({"model": "mock-model", "messages": [{"role": "user", "content": "hello"}]});
    let asks = [
        ("/v1/chat/completions", &chat),
        ("/v1/messages", &message),
        ("/v1/completions", &json!({"model": "m", "prompt": "x", "stream": true})),
    ];
    for (path, body) in asks {
        // The first ask fills the prefix cache, so that both compared answers report the same usage.
        cluster.client.post(engine, path, body).await?.ok()?;
        let direct = cluster.client.post(engine, path, body).await?.ok()?;
        let routed = cluster.client.post(replica, path, body).await?.ok()?;
        assert!(direct.body.len() > 500, "{path}: a stream of some length");
        assert_eq!(without_ids(&direct.body), without_ids(&routed.body), "{path}");
        assert_eq!(direct.header("content-type"), routed.header("content-type"), "{path}");
    }
    let direct = cluster.client.post(engine, "/v1/chat/completions", &plain).await?.ok()?;
    let routed = cluster.client.post(replica, "/v1/chat/completions", &plain).await?.ok()?;
    assert_eq!(direct.headers.get("content-length"), routed.headers.get("content-length"));

    // Byte for byte, nothing excepted: the engine's fixed answer, 1 MiB of it.
    cluster.engines[0].set(&json!({"answer_bytes": 1_048_576})).await?;
    let direct = cluster.client.post(engine, "/v1/chat/completions", &plain).await?.ok()?;
    let routed = cluster.client.post(replica, "/v1/chat/completions", &plain).await?.ok()?;
    assert_eq!(direct.body.len(), 1_048_576);
    assert!(direct.body == routed.body, "the router changed bytes");
    cluster.finish()
}

async fn pieces_arrive_one_by_one(kind: DatabaseKind) -> anyhow::Result<()> {
    let gap = Duration::from_millis(150);
    let cluster = Cluster::builder(kind).engine_args(&["--token-gap-ms", "150", "--tokens", "10"]).start().await?;
    let started = Instant::now();
    let mut response = Chat::of("s").streamed().open(&cluster.client, cluster.replica(0)?).await?;
    let chunks = timed_chunks(response.body_mut(), started).await?;
    assert!(chunks.len() >= 8, "{} pieces for 10 tokens", chunks.len());
    assert!(joined(chunks.iter().map(|(_, bytes)| bytes)).ends_with(b"data: [DONE]\n\n"));
    let (first, middle, last) = (chunks[0].0, chunks[chunks.len() / 2].0, chunks[chunks.len() - 1].0);
    let times = format!("{first:?} … {middle:?} … {last:?}");
    assert!(last >= first + gap * 6, "ten tokens come over the engine's time, not at its end: {times}");
    assert!(middle >= first + gap * 2 && last >= middle + gap * 2, "{times}");
    cluster.finish()
}

/// A stream that breaks must not look like one that ended well.
async fn a_broken_stream_ends_as_broken(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).engines(1).engine_args(&["--tokens", "50"]).start().await?;
    cluster.expect_log("upstream");
    let good = Chat::new().streamed().send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    assert!(good.text().contains("[DONE]"), "the control: a whole stream is read without an error");

    cluster.engines[0].set(&json!({"fail": "die-mid-stream"})).await?;
    let mut response = Chat::new().streamed().open(&cluster.client, cluster.replica(0)?).await?;
    let broken = loop {
        match next_chunk(response.body_mut()).await {
            Ok(Some(_)) => {}
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken, "the client must see that the stream broke");
    cluster.until_in_flight(0).await?;

    let path = "/v1/chat/completions";
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]}).to_string();
    let answer = cluster.client.send(cluster.replica(0)?, Method::POST, path, &[], plain).await;
    assert!(!answer.is_ok_and(|answer| answer.status.is_success()), "nor may a cut answer look whole");
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
