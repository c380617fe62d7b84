//! An engine dies or misbehaves: requests that have not been answered yet go elsewhere, the engine is out until probes
//! succeed, and its sessions stay where they went.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::traffic::{Outcome, Traffic};
use serde_json::json;

router_tests::on_both_databases!(
    a_killed_engine_costs_no_request,
    statuses_are_retried_as_the_route_says,
    a_hanging_engine_is_504,
    a_failing_probe_takes_it_out_and_two_good_ones_bring_it_back,
    the_last_engine_is_not_banned_by_errors_alone,
);

fn expect_failure(cluster: &mut Cluster) {
    for piece in ["backend", "unhealthy", "health", "probe", "upstream"] {
        cluster.expect_log(piece);
    }
}

async fn a_killed_engine_costs_no_request(kind: DatabaseKind) -> anyhow::Result<()> {
    // Probes come rarely: it is the requests that find the dead engine.
    let builder = Cluster::builder(kind).engines(3).engine_args(&["--ttft-ms", "30"]);
    let mut cluster = builder.option("health_check_interval", "1500ms").start().await?;
    expect_failure(&mut cluster);
    let traffic = Traffic::start(12, &cluster.replica_addresses()?, &Chat::new());
    traffic.until_more(48).await?;
    let dead = cluster.engines[0].address().to_string();
    assert!(cluster.backend(0).await?.sessions > 0, "it has sessions");
    cluster.engines[0].process.kill9().await?;
    traffic.until_more(48).await?;
    let is_out = || async {
        let condition = cluster.backend(0).await?.condition;
        Ok(condition.filter(|condition| condition.unhealthy || condition.banned))
    };
    until("the dead engine is out", PATIENCE, is_out).await?;
    traffic.until_more(48).await?;
    let outcomes = traffic.stop().await?;
    let bad: Vec<String> = outcomes.iter().filter(|outcome| !outcome.is_good()).map(Outcome::text).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let answers = || outcomes.iter().flat_map(|outcome| &outcome.answer);
    assert!(answers().any(|answer| answer.peer() == dead), "the control: it did serve");
    assert!(answers().any(|answer| answer.header("x-routed-retries") != "0"), "some request was tried elsewhere");
    let moved: Vec<_> = cluster.admin().await?.bindings().await?;
    assert!(moved.iter().all(|(_, home)| *home != dead), "its sessions moved");

    // It comes back after good probes; those that moved stay, new ones come.
    cluster.engines[0].process.restart().await?;
    cluster.until_healthy().await?;
    let traffic = Traffic::start(12, &cluster.replica_addresses()?, &Chat::new());
    traffic.until_more(24).await?;
    let outcomes = traffic.stop().await?;
    assert!(outcomes.iter().all(Outcome::is_good));
    assert_eq!(cluster.admin().await?.bindings().await?, moved);
    // An engine that has just failed is chosen last for a while, so the first newcomer may still go elsewhere.
    let number = AtomicUsize::new(0);
    let newcomer = || async {
        let chat = Chat::of(&format!("newcomer {}", number.fetch_add(1, Ordering::Relaxed)));
        let answer = chat.send(&cluster.client, cluster.replica(0)?).await?.ok()?;
        Ok((answer.peer() == dead).then_some(()))
    };
    until("a new session goes to the engine that came back", PATIENCE, newcomer).await?;
    cluster.finish()
}

async fn statuses_are_retried_as_the_route_says(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).engines(2).start().await?;
    expect_failure(&mut cluster);
    let home = Chat::of("s").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    let sick = cluster.engine_at(home.peer())?;
    sick.set(&json!({"fail": "503"})).await?;
    let retried = Chat::of("s").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!(retried.header("x-routed-retries"), "1", "503 is retried by default");
    assert_ne!(retried.peer(), home.peer());

    // 500 is not, unless the route says so: the engine's own answer comes through.
    for engine in &cluster.engines {
        engine.set(&json!({"fail": "500"})).await?;
    }
    let passed = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(passed.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", passed.text());
    assert_eq!(passed.header("x-routed-retries"), "0");
    // And when every engine fails, the client sees the engine's failure, not an invention.
    cluster.ctl()?.ok(&["route", "set", "chat", "retry_on=connect,5xx", "max_more_tries=all"]).await?;
    let tried_all = || async {
        let answer = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
        Ok((answer.header("x-routed-retries") == "1").then_some(answer))
    };
    let answer = until("every engine is tried", PATIENCE, tried_all).await?;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", answer.text());
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn a_hanging_engine_is_504(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).engines(1).option("upstream_timeout", "800ms");
    let mut cluster = builder.start().await?;
    expect_failure(&mut cluster);
    cluster.engines[0].set(&json!({"fail": "hang"})).await?;
    let silent = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(silent.status, StatusCode::GATEWAY_TIMEOUT, "{}", silent.text());
    cluster.until_in_flight(0).await?;
    let look = || async { Ok((cluster.engines[0].stats().await?.in_flight == 0).then_some(())) };
    until("the engine is rid of it", PATIENCE, look).await?;
    cluster.finish()
}

async fn a_failing_probe_takes_it_out_and_two_good_ones_bring_it_back(kind: DatabaseKind) -> anyhow::Result<()> {
    let mut cluster = Cluster::builder(kind).engines(2).option("health_probe_path", "/health").start().await?;
    expect_failure(&mut cluster);
    let (sick, well) = (cluster.engines[0].address().to_string(), cluster.engines[1].address().to_string());
    cluster.engines[0].set(&json!({"health": "fail"})).await?;
    let is_out = || async {
        let unhealthy = cluster.backend(0).await?.condition.is_some_and(|condition| condition.unhealthy);
        Ok(unhealthy.then_some(()))
    };
    until("one failed probe takes it out", PATIENCE, is_out).await?;
    for number in 0..6 {
        let answer = Chat::of(&format!("s{number}")).send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        assert_eq!(answer.peer(), well);
    }
    cluster.engines[0].set(&json!({"health": "ok"})).await?;
    cluster.until_healthy().await?;
    let newcomer = Chat::of("newcomer").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    assert_eq!(newcomer.peer(), sick);
    cluster.finish()
}

async fn the_last_engine_is_not_banned_by_errors_alone(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).engines(1).option("health_probe_path", "/health");
    let mut cluster = builder.option("health_check_interval", "60s").start().await?;
    expect_failure(&mut cluster);
    cluster.engines[0].process.kill9().await?;
    let refused = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(refused.status, StatusCode::BAD_GATEWAY, "{}", refused.text());
    cluster.engines[0].process.restart().await?;
    // No probe comes for a minute: it is the request itself that finds it back.
    Chat::new().send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    cluster.finish()
}
