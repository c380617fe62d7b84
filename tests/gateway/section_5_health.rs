//! One failed probe takes a backend out, two good ones in a row bring it back; sessions that moved away stay away.

use std::time::Duration;

use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::gateway;

router_tests::on_both_databases!(one_failure_takes_it_out_and_two_successes_bring_it_back);

async fn is_unhealthy(cluster: &Cluster, index: usize) -> anyhow::Result<bool> {
    Ok(cluster.backend(index).await?.condition.is_some_and(|condition| condition.unhealthy))
}

async fn one_failure_takes_it_out_and_two_successes_bring_it_back(kind: DatabaseKind) -> anyhow::Result<()> {
    // The reference's interval: two good probes are two seconds apart, and that can be seen.
    let builder = gateway(kind).engines(2).option("health_check_interval", "2s").option("health_probe_path", "/health");
    let mut cluster = builder.start().await?;
    cluster.expect_log("backend");
    let turn = async |session: &str| Chat::of(session).send(&cluster.client, cluster.replica(0)?).await?.ok();
    let home = turn("s").await?.peer().to_owned();
    let index = cluster.engines.iter().position(|engine| engine.address().to_string() == home).expect("one of them");
    cluster.engines[index].set(&json!({"health": "fail"})).await?;
    let out = || async { Ok(is_unhealthy(&cluster, index).await?.then_some(())) };
    until("one failed probe takes it out", PATIENCE, out).await?;
    let moved = turn("s").await?;
    assert_eq!(moved.mode(), "moved");

    cluster.engines[index].set(&json!({"health": "ok"})).await?;
    // The first good probe comes within two seconds; the second is what brings it back.
    throughout("one good probe is not enough", Duration::from_millis(1500), || async {
        is_unhealthy(&cluster, index).await
    })
    .await?;
    cluster.until_healthy().await?;
    let stays = turn("s").await?;
    assert_eq!((stays.mode(), stays.peer()), ("bound", moved.peer()), "no moving back");
    assert_eq!(turn("newcomer").await?.peer(), home, "new sessions come to it again");
    cluster.finish()
}
