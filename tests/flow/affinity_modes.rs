//! How turns find their backend: by hash, by highest weight, or not at all; the same on every replica and after restarts.

use std::collections::BTreeMap;

use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;

use super::{Tasks, expect_outage, restart_control_plane, send};

router_tests::on_any_database!(
    a_hash_is_the_same_everywhere_and_needs_no_binding,
    rendezvous_moves_only_the_sessions_of_a_backend_that_goes,
    off_knows_no_sessions,
);

const SESSIONS: usize = 24;

/// Where each session goes, asked through one replica, and by which mode.
async fn homes(cluster: &Cluster, replica: usize) -> anyhow::Result<BTreeMap<usize, (String, String)>> {
    let mut homes = BTreeMap::new();
    for number in 0..SESSIONS {
        let chat = Chat::of(&format!("session {number}"));
        let answer = chat.send(&cluster.client, cluster.replica(replica)?).await?.ok()?;
        homes.insert(number, (answer.peer().to_owned(), answer.mode().to_owned()));
    }
    Ok(homes)
}

async fn a_hash_is_the_same_everywhere_and_needs_no_binding() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(3).option("affinity", "hash");
    let mut cluster = builder.option("max_concurrency", "1").start().await?;
    expect_outage(&mut cluster);
    let first = homes(&cluster, 0).await?;
    assert!(first.values().all(|(_, mode)| mode == "hash"), "{first:?}");
    let mut peers: Vec<&String> = first.values().map(|(peer, _)| peer).collect();
    peers.sort();
    peers.dedup();
    assert_eq!(peers.len(), 3, "they spread");
    assert_eq!(homes(&cluster, 1).await?, first, "another replica agrees");
    restart_control_plane(&mut cluster).await?;
    assert_eq!(homes(&cluster, 0).await?, first, "and so does another life of the control plane");
    assert_eq!(cluster.route().await?.sessions, 0, "nothing is bound");

    // Its backend is full: the least loaded one, and back when there is room.
    let (home, _) = first[&0].clone();
    cluster.engine_at(&home)?.hold().await?;
    let mut tasks = Tasks::new();
    send(&cluster, 0, Chat::of("session 0"), &mut tasks)?;
    cluster.until_in_flight(1).await?;
    let other = Chat::of("session 0").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!(other.mode(), "hash_fallback");
    assert_ne!(other.peer(), home);
    cluster.engine_at(&home)?.release().await?;
    while let Some(answer) = tasks.join_next().await {
        answer??.ok()?;
    }
    assert_eq!(homes(&cluster, 0).await?, first);
    cluster.finish()
}

async fn rendezvous_moves_only_the_sessions_of_a_backend_that_goes() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::Sqlite).engines(3).option("affinity", "rendezvous");
    let cluster = builder.start().await?;
    let before = homes(&cluster, 0).await?;
    assert!(before.values().all(|(_, mode)| mode == "rendezvous"), "{before:?}");
    assert_eq!(homes(&cluster, 1).await?, before);
    let gone = before[&0].0.clone();
    cluster.ctl()?.ok(&["drain", "--backend", &gone]).await?;
    let after = homes(&cluster, 0).await?;
    for (number, (peer, mode)) in &after {
        assert_ne!(*peer, gone);
        assert_eq!(mode, "rendezvous", "the next weight is as good");
        if before[number].0 != gone {
            assert_eq!(*peer, before[number].0, "session {number} had no reason to move");
        }
    }
    cluster.ctl()?.ok(&["undrain", "--backend", &gone]).await?;
    assert_eq!(homes(&cluster, 1).await?, before, "they return");
    cluster.finish()
}

async fn off_knows_no_sessions() -> anyhow::Result<()> {
    let cluster = Cluster::builder(DatabaseKind::Sqlite).engines(2).option("affinity", "off").start().await?;
    let seen = homes(&cluster, 0).await?;
    assert!(seen.values().all(|(_, mode)| mode == "least_conn"), "{seen:?}");
    let mut peers = Vec::new();
    for number in 0..SESSIONS {
        let answer = Chat::of("one session").send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        assert_eq!(answer.header("x-routed-source"), "affinity_off");
        peers.push(answer.peer().to_owned());
    }
    peers.sort();
    peers.dedup();
    assert_eq!(peers.len(), 2, "one session's turns go to both");
    cluster.finish()
}
