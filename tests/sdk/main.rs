//! The official Python SDKs against the router: what real clients send, and what they make of the answers.
//!
//! Each script prints what it checked and ends
//! with a code that is not 0 when something was wrong.
#![cfg(test)]

mod behind_front_proxy;

use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::script::Scripts;

router_tests::on_both_databases!(openai_async_with_100_sessions);

router_tests::on_any_database!(openai_sync, openai_errors, anthropic_messages);

const SCRIPTS: Scripts =
    Scripts { folder: concat!(env!("CARGO_MANIFEST_DIR"), "/sdk"), target: env!("CARGO_TARGET_TMPDIR") };

/// What each script reads from its environment.
fn addresses(cluster: &Cluster) -> anyhow::Result<Vec<(String, String)>> {
    let replicas: Vec<String> = cluster.replica_addresses()?.iter().map(ToString::to_string).collect();
    Ok(vec![("ROUTER_REPLICAS".to_owned(), replicas.join(","))])
}

async fn openai_sync() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(2).start().await?;
    SCRIPTS.run("openai_sync.py", &addresses(&cluster)?).await?;
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn openai_async_with_100_sessions(kind: DatabaseKind) -> anyhow::Result<()> {
    let builder = Cluster::builder(kind).replicas(2).engines(3).engine_args(&["--ttft-ms", "5", "--tokens", "8"]);
    // Room for all at once: a session whose engine is full would move, rightly.
    let cluster = builder.option("max_concurrency", "100").start().await?;
    SCRIPTS.run("openai_async.py", &addresses(&cluster)?).await?;
    assert_eq!(cluster.admin().await?.bindings().await?.len(), 100);
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn openai_errors() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(1).option("max_concurrency", "1");
    let cluster = builder.option("max_waiting", "0").option("auth", "required").start().await?;
    let secret = cluster.add_key("sdk").await?;
    // A second route, with a pool per model.
    let backend = format!("{},model=mock-model", cluster.engines[0].address());
    cluster.ctl()?.ok(&["route", "add", "models", "--backend", &backend]).await?;
    let mut environment = addresses(&cluster)?;
    environment.push(("ROUTER_KEY".to_owned(), secret));
    environment.push(("MOCK_ENGINE".to_owned(), cluster.engines[0].address().to_string()));
    SCRIPTS.run("openai_errors.py", &environment).await?;
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn anthropic_messages() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(2).option("auth", "required").start().await?;
    let mut environment = addresses(&cluster)?;
    environment.push(("ROUTER_KEY".to_owned(), cluster.add_key("sdk").await?));
    SCRIPTS.run("anthropic_messages.py", &environment).await?;
    cluster.until_in_flight(0).await?;
    cluster.finish()
}
