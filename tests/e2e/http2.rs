//! HTTP/2 without TLS by prior knowledge, on the same port as HTTP/1.1.

use http::Version;
use router_tests::chat::Chat;
use router_tests::client::{Answer, Client};
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use tokio::task::JoinSet;

router_tests::on_both_databases!(many_requests_share_one_connection, a_reset_stream_returns_its_lease);

async fn many_requests_share_one_connection(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).start().await?;
    let client = Client::h2c();
    let response = Chat::of("s").streamed().open(&client, cluster.replica(0)?).await?;
    assert_eq!(response.version(), Version::HTTP_2);
    let whole = Answer::read(response).await?.ok()?;
    assert!(whole.body.ends_with(b"data: [DONE]\n\n"));
    for forbidden in ["connection", "transfer-encoding", "keep-alive"] {
        assert_eq!(whole.header(forbidden), "", "{forbidden} has no place in HTTP/2");
    }

    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let (client, address) = (client.clone(), cluster.replica(0)?);
        tasks.spawn(async move { Chat::of(&format!("s{number}")).send(&client, address).await?.ok() });
    }
    while let Some(answer) = tasks.join_next().await {
        answer??;
    }
    let http1 = Chat::of("s").open(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(http1.version(), Version::HTTP_11, "the same port speaks HTTP/1.1");
    cluster.finish()
}

async fn a_reset_stream_returns_its_lease(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).engines(1).engine_args(&["--token-gap-ms", "100", "--tokens", "10000"]);
    let cluster = builder.start().await?;
    let client = Client::h2c();
    let leaving = Chat::new().streamed().open(&client, cluster.replica(0)?).await?;
    let staying = Chat::new().streamed().open(&client, cluster.replica(0)?).await?;
    cluster.until_in_flight(2).await?;
    drop(leaving);
    cluster.until_in_flight(1).await?;
    assert_eq!(cluster.engines[0].stats().await?.in_flight, 1, "only the stream that was reset ended");
    drop(staying);
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
