//! The tier of the highest priority serves; when it dies the next takes over, and gives back when it returns.

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::{Cluster, ROUTE};
use router_tests::database::DatabaseKind;
use serde_json::json;

use super::{Tasks, send, set};

router_tests::on_both_databases!(a_higher_tier_dies_the_lower_takes_over_and_it_returns);
router_tests::on_any_database!(
    a_full_tier_overflows_only_where_tiers_may_be_crossed,
    a_failing_tier_is_retried_below_only_where_tiers_may_be_crossed,
);

/// Two engines; the first is of a higher tier.
async fn two_tiers(kind: DatabaseKind, options: &[(&str, &str)]) -> anyhow::Result<Cluster> {
    let mut builder = Cluster::builder(kind).engines(2).option("health_check_interval", "200ms");
    for (name, value) in options {
        builder = builder.option(name, value);
    }
    let cluster = builder.start().await?;
    let high = cluster.engines[0].address().to_string();
    cluster.ctl()?.ok(&["backend", "set", ROUTE, &high, "--priority", "10"]).await?;
    Ok(cluster)
}

/// Where eight sessions go, four by each replica.
async fn peers(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let mut peers = Vec::new();
    for number in 0..8 {
        let chat = Chat::of(&format!("session {number}"));
        let answer = chat.send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        peers.push(answer.peer().to_owned());
    }
    peers.sort();
    peers.dedup();
    Ok(peers)
}

async fn a_higher_tier_dies_the_lower_takes_over_and_it_returns(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = two_tiers(kind, &[]).await?;
    for piece in ["backend", "unhealthy", "health", "probe", "upstream"] {
        cluster.expect_log(piece);
    }
    let high = cluster.engines[0].address().to_string();
    let low = cluster.engines[1].address().to_string();
    assert_eq!(peers(&cluster).await?, std::slice::from_ref(&high), "only the higher tier serves");

    cluster.engines[0].process.kill9().await?;
    assert_eq!(peers(&cluster).await?, std::slice::from_ref(&low), "it dies: nobody notices but by the header");
    assert_eq!(cluster.route().await?.pools[0].active_level, "0");

    cluster.engines[0].process.restart().await?;
    cluster.until_healthy().await?;
    let is_back = || async { Ok((peers(&cluster).await? == [high.clone()]).then_some(())) };
    until("the higher tier serves again", PATIENCE, is_back).await?;
    assert_eq!(cluster.route().await?.pools[0].active_level, "10");

    // The control: of one tier, both serve. An engine that has just failed is chosen last for a while.
    cluster.ctl()?.ok(&["backend", "set", ROUTE, &high, "--priority", "0"]).await?;
    let both_serve = || async {
        for engine in [&high, &low] {
            cluster.ctl()?.ok(&["session", "forget", ROUTE, "--backend", engine, "--yes"]).await?;
        }
        Ok((peers(&cluster).await?.len() == 2).then_some(()))
    };
    until("both serve", PATIENCE, both_serve).await?;
    cluster.finish()
}

async fn a_full_tier_overflows_only_where_tiers_may_be_crossed() -> anyhow::Result<()> {
    let cluster = two_tiers(DatabaseKind::Sqlite, &[("max_concurrency", "1"), ("max_waiting", "0")]).await?;
    for engine in &cluster.engines {
        engine.hold().await?;
    }
    let mut tasks = Tasks::new();
    send(&cluster, 0, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(1).await?;
    let refused = Chat::new().send(&cluster.client, cluster.replica(1)?).await?;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
    let details = refused.json()?["error"]["details"].clone();
    assert_eq!((details["limit"].as_u64(), details["active_level"].as_u64()), (Some(1), Some(10)), "{details}");

    set(&cluster, &["cross_tier_fallback=true"]).await?;
    send(&cluster, 1, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(2).await?;
    for engine in &cluster.engines {
        engine.release().await?;
    }
    let mut peers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        peers.push(answer??.ok()?.peer().to_owned());
    }
    peers.sort();
    peers.dedup();
    assert_eq!(peers.len(), 2, "the second went to the lower tier");
    cluster.finish()
}

async fn a_failing_tier_is_retried_below_only_where_tiers_may_be_crossed() -> anyhow::Result<()> {
    let mut cluster = two_tiers(DatabaseKind::Sqlite, &[]).await?;
    cluster.expect_log("upstream");
    // Its requests fail, its probes do not: it stays the active tier.
    cluster.engines[0].set(&json!({"fail": "503"})).await?;
    let failed = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE, "{}", failed.text());
    assert_eq!(failed.peer(), cluster.engines[0].address().to_string());
    set(&cluster, &["cross_tier_fallback=true"]).await?;
    let answer = Chat::new().send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!((answer.peer(), answer.header("x-routed-retries")), (&*cluster.engines[1].address().to_string(), "1"));
    cluster.finish()
}
