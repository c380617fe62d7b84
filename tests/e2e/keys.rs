//! Keys are fleet-wide: a new one works and a revoked one stops working on every replica within a second.

use std::time::{Duration, Instant};

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;

router_tests::on_both_databases!(
    add_and_revoke_reach_every_replica_within_a_second,
    a_session_belongs_to_its_key,
    the_secret_is_stored_nowhere,
    without_auth_no_key_is_asked_for,
);

async fn add_key(cluster: &Cluster, name: &str) -> anyhow::Result<String> {
    let added = cluster.ctl()?.json(&["key", "add", name]).await?;
    let secret = added.get("secret").and_then(|secret| secret.as_str());
    Ok(secret.unwrap_or_else(|| panic!("a secret in {added}")).to_owned())
}

/// How long it takes until every replica answers `status` to this key.
async fn time_until(cluster: &Cluster, key: &str, status: StatusCode) -> anyhow::Result<Duration> {
    let since = Instant::now();
    for replica in cluster.replica_addresses()? {
        let look = || async {
            let answer = Chat::new().key(key).send(&cluster.client, replica).await?;
            Ok((answer.status == status).then_some(()))
        };
        until(&format!("{status} from {replica}"), PATIENCE, look).await?;
    }
    Ok(since.elapsed())
}

async fn add_and_revoke_reach_every_replica_within_a_second(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).replicas(3).option("auth", "required").start().await?;
    let keyless = Chat::new().send(&cluster.client, cluster.replica(0)?).await?;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED, "{}", keyless.text());
    let wrong = Chat::new().key("sk-wrong").send(&cluster.client, cluster.replica(1)?).await?;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(wrong.json()?.pointer("/error/message").is_some(), "{}", wrong.text());

    let (kept, revoked) = (add_key(&cluster, "kept").await?, add_key(&cluster, "revoked").await?);
    let taken = time_until(&cluster, &revoked, StatusCode::OK).await?;
    assert!(taken < Duration::from_secs(1), "a new key took {taken:?}");
    time_until(&cluster, &kept, StatusCode::OK).await?;

    cluster.ctl()?.ok(&["key", "revoke", "revoked"]).await?;
    let taken = time_until(&cluster, &revoked, StatusCode::UNAUTHORIZED).await?;
    assert!(taken < Duration::from_secs(1), "a revocation took {taken:?}");
    for replica in cluster.replica_addresses()? {
        Chat::new().key(&kept).send(&cluster.client, replica).await?.ok()?;
        let by_api_key = Chat::new().header("x-api-key", &kept).send(&cluster.client, replica).await?;
        assert_eq!(by_api_key.status, StatusCode::OK, "Anthropic clients send x-api-key: {}", by_api_key.text());
    }
    let listed = cluster.ctl()?.ok(&["key", "list"]).await?;
    assert!(listed.contains("kept"), "{listed}");
    assert!(!listed.contains(&kept), "the list shows no secret");
    cluster.finish()
}

async fn a_session_belongs_to_its_key(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).option("auth", "required").start().await?;
    let (one, two) = (add_key(&cluster, "one").await?, add_key(&cluster, "two").await?);
    time_until(&cluster, &two, StatusCode::OK).await?;
    let ask = async |key: &str| Chat::of("same id").key(key).send(&cluster.client, cluster.replica(0)?).await?.ok();
    let (first, second, third) = (ask(&one).await?, ask(&two).await?, ask(&one).await?);
    let short = |answer: &router_tests::client::Answer| answer.header("x-routed-session").to_owned();
    assert_ne!(short(&first), short(&second), "one id under two keys is two sessions");
    assert_eq!(short(&first), short(&third), "the control: the same key, the same session");
    assert_eq!(cluster.admin().await?.bindings().await?.len(), 2);
    cluster.finish()
}

async fn the_secret_is_stored_nowhere(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).option("auth", "required").start().await?;
    let secret = add_key(&cluster, "k").await?;
    time_until(&cluster, &secret, StatusCode::OK).await?;
    let session = "a-session-id-that-nobody-may-write-down";
    Chat::of(session).key(&secret).send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    Chat::of(session).key("sk-wrong-secret").send(&cluster.client, cluster.replica(0)?).await?;
    // Files of the database and logs, all in the cluster's folder (a Postgres has its own; its rows come by the same code).
    let mut looked_at = 0;
    for entry in std::fs::read_dir(cluster.folder())? {
        let bytes = std::fs::read(entry?.path())?;
        let text = String::from_utf8_lossy(&bytes);
        for word in [secret.as_str(), session, "sk-wrong-secret"] {
            assert!(!text.contains(word), "{word} was written down");
        }
        looked_at += 1;
    }
    assert!(looked_at >= 5, "logs of five processes");
    for address in [cluster.replica_admin(0)?, cluster.control_plane.address("http")?] {
        let metrics = cluster.client.get(address, "/metrics").await?.ok()?.text();
        assert!(!metrics.contains(&secret) && !metrics.contains(session));
    }
    cluster.finish()
}

/// The control: the refusals above come from `auth=required`, not from a cluster that refuses everything.
async fn without_auth_no_key_is_asked_for(kind: DatabaseKind) -> anyhow::Result<()> {
    let cluster = Cluster::builder(kind).option("auth", "off").start().await?;
    add_key(&cluster, "k").await?;
    for replica in cluster.replica_addresses()? {
        Chat::new().send(&cluster.client, replica).await?.ok()?;
        Chat::new().key("sk-any").send(&cluster.client, replica).await?.ok()?;
    }
    cluster.finish()
}
