//! Postgres dies under the control plane: bound sessions go on from memory, new ones wait and are then served
//! provisionally, readiness says so, and what was provisional is written when it returns.

use http::StatusCode;
use router_tests::await_event::{PATIENCE, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;

/// An outage is only possible where there is a server.
mod postgres {
    #[test]
    fn bound_sessions_go_on_and_new_ones_are_written_later() -> Result<(), router_tests::suite::Failed> {
        router_tests::suite::run(super::bound_sessions_go_on_and_new_ones_are_written_later())
    }
}

async fn bound_sessions_go_on_and_new_ones_are_written_later() -> anyhow::Result<()> {
    let builder = Cluster::builder(DatabaseKind::PrivatePostgres).engines(2).option("queue_timeout", "1s");
    let mut cluster = builder.start().await?;
    for piece in ["database", "provisional", "store", "pool", "connection", "binding", "control plane", "link"] {
        cluster.expect_log(piece);
    }
    let mut homes = Vec::new();
    for number in 0..8 {
        let answer =
            Chat::of(&format!("old {number}")).send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        homes.push(answer.peer().to_owned());
    }
    let http = cluster.control_plane.address("http")?;
    cluster.client.get(http, "/readyz").await?.ok()?;

    cluster.database.server()?.kill9().await?;
    for (number, home) in homes.iter().enumerate() {
        let chat = Chat::of(&format!("old {number}"));
        let answer = chat.send(&cluster.client, cluster.replica(number % 2)?).await?.ok()?;
        assert_eq!((answer.mode(), answer.peer()), ("bound", home.as_str()), "bound sessions don't notice");
    }
    let new = Chat::of("new").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    let again = Chat::of("new").send(&cluster.client, cluster.replica(1)?).await?.ok()?;
    assert_eq!(again.peer(), new.peer(), "a provisional binding holds on every replica");
    let unready = || async {
        let answer = cluster.client.get(http, "/readyz").await?;
        Ok((answer.status == StatusCode::SERVICE_UNAVAILABLE).then_some(answer))
    };
    let answer = until("readiness says that the database is gone", PATIENCE, unready).await?;
    assert!(answer.text().contains("database"), "{}", answer.text());
    cluster.client.get(http, "/healthz").await?.ok()?;
    let status = cluster.status().await?;
    assert!(!status.database_ok, "{status:?}");

    cluster.database.server()?.restart().await?;
    let ready = || async { Ok(cluster.client.get(http, "/readyz").await?.status.is_success().then_some(())) };
    until("ready again", PATIENCE, ready).await?;
    assert!(cluster.status().await?.database_ok);

    // Ready means that the database answers; what was provisional is written a moment later.
    let is_written = || async {
        let count = cluster.database.server()?.sql("SELECT count(*) FROM bindings").await?;
        Ok((count == "9").then_some(()))
    };
    until("nine bindings in the database", PATIENCE, is_written).await?;

    // The control plane dies in turn: what it knows now comes from the database alone.
    let written = cluster.admin().await?.bindings().await?;
    assert_eq!(written.len(), 9);
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(2).await?;
    cluster.until_healthy().await?;
    assert_eq!(cluster.admin().await?.bindings().await?, written);
    let still = Chat::of("new").send(&cluster.client, cluster.replica(0)?).await?.ok()?;
    assert_eq!((still.mode(), still.peer()), ("bound", new.peer()), "the provisional binding was written");
    cluster.finish()
}
