//! A replica loses its way to the control plane while both live: its leases expire on the other side, its running streams
//! go on, and it finds back by itself.

use std::time::Duration;

use router_tests::await_event::{PATIENCE, throughout, until};
use router_tests::chat::Chat;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;
use router_tests::raw::RawClient;

router_tests::on_both_databases!(a_cut_is_survived, a_silent_loss_is_noticed);

async fn start(kind: DatabaseKind) -> anyhow::Result<Cluster> {
    let builder = Cluster::builder(kind).cables().engine_args(&["--token-gap-ms", "100", "--tokens", "120"]);
    let mut cluster = builder.control_plane_args(&["--lease-ttl", "2s"]).start().await?;
    for piece in ["control plane", "link", "lease", "replica", "static", "watch", "coordinat", "heartbeat"] {
        cluster.expect_log(piece);
    }
    Ok(cluster)
}

async fn serves(cluster: &Cluster, replica: usize) -> anyhow::Result<()> {
    let served = || async {
        let answer = Chat::of("probe").max_tokens(1).send(&cluster.client, cluster.replica(replica)?).await?;
        Ok((answer.status.is_success() && answer.mode() != "static").then_some(()))
    };
    until(&format!("replica {replica} serves"), PATIENCE, served).await
}

/// `lose` and then heal the first replica's cable, with a stream running over each replica.
async fn survive(kind: DatabaseKind, lose: impl Fn(&Cluster)) -> anyhow::Result<()> {
    let cluster = start(kind).await?;
    let mut streams = Vec::new();
    for replica in 0..2 {
        let chat = Chat::of(&format!("s{replica}")).streamed();
        let mut stream = RawClient::send(cluster.replica(replica)?, &chat).await?;
        stream.read_until("data: ").await?;
        streams.push(stream);
    }
    cluster.until_in_flight(2).await?;
    lose(&cluster);
    cluster.until_in_flight(1).await?;
    serves(&cluster, 1).await?;
    let one = || async { Ok(cluster.in_flight().await? >= 1) };
    throughout("the other replica keeps its lease", Duration::from_secs(1), one).await?;

    cluster.cables[0].heal();
    cluster.until_connected(2).await?;
    serves(&cluster, 0).await?;
    for stream in &mut streams {
        let whole = stream.read_until("data: [DONE]").await?;
        assert!(whole.starts_with("HTTP/1.1 200"), "{whole}");
    }
    cluster.until_in_flight(0).await?;
    cluster.finish()
}

async fn a_cut_is_survived(kind: DatabaseKind) -> anyhow::Result<()> {
    survive(kind, |cluster| cluster.cables[0].cut()).await
}

async fn a_silent_loss_is_noticed(kind: DatabaseKind) -> anyhow::Result<()> {
    survive(kind, |cluster| cluster.cables[0].freeze()).await
}
