//! `routerctl route explain` says what would become of a request now, and changes nothing.

use http::StatusCode;
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;

use super::{Tasks, send};

router_tests::on_any_database!(explain_says_what_then_happens);

async fn explain_says_what_then_happens() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(2).option("max_concurrency", "1");
    let cluster = builder.option("max_waiting", "1").start().await?;
    let ctl = cluster.ctl()?;
    let explain = async |more: &[&str]| ctl.json(&[&["route", "explain", "chat"], more].concat()).await;

    let home = Chat::of("known").send(&cluster.client, cluster.replica(0)?).await?.ok()?.peer().to_owned();
    cluster.until_in_flight(0).await?;
    let before = cluster.admin().await?.sessions().await?;
    let told = explain(&["--session", "known"]).await?;
    assert_eq!((told["backend"].as_str(), told["mode"].as_str()), (Some(home.as_str()), Some("bound")), "{told}");
    let told = explain(&["--session", "unknown"]).await?;
    assert_eq!(told["mode"], "new", "{told}");
    assert_eq!(cluster.admin().await?.sessions().await?, before, "asking binds nothing");
    assert_eq!(cluster.in_flight().await?, 0);

    // Its home is drained: it would move, and then does.
    ctl.ok(&["drain", "--backend", &home]).await?;
    let told = explain(&["--session", "known"]).await?;
    assert_eq!(told["mode"], "moved", "{told}");
    let text = ctl.ok(&["route", "explain", "chat", "--session", "known"]).await?;
    assert!(text.contains("drain") && text.contains(told["backend"].as_str().unwrap_or("?")), "{text}");
    let answer = Chat::of("known").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!((Some(answer.peer()), answer.mode()), (told["backend"].as_str(), "moved"));

    // Full: it waits; the queue full as well: it is refused.
    for engine in &cluster.engines {
        engine.hold().await?;
    }
    let mut tasks = Tasks::new();
    send(&cluster, 0, Chat::new(), &mut tasks)?;
    cluster.until_in_flight(1).await?;
    let told = explain(&[]).await?;
    assert_eq!((told["waits"].as_bool(), told["backend"].as_str().unwrap_or("")), (Some(true), ""), "{told}");
    send(&cluster, 1, Chat::new(), &mut tasks)?;
    cluster.until_waiting(1).await?;
    let told = explain(&[]).await?;
    assert_eq!(told["refused_by"], "queue_full", "{told}");
    let refused = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!((refused.status, refused.error_code()?.as_str()), (StatusCode::TOO_MANY_REQUESTS, "queue_full"));
    cluster.until_waiting(1).await?;
    for engine in &cluster.engines {
        engine.release().await?;
    }
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }
    cluster.finish()
}
