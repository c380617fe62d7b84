//! Flow control on real processes, two replicas at least: tiers, models, affinity modes, latency gates, the adaptive limit,
//! turn priority, run-time toggles, status pages. Each with its control that shows the opposite.
#![cfg(test)]

mod adaptive;
mod affinity_modes;
mod explain;
mod latency_gates;
mod models;
mod pages;
mod tiers;
mod toggles;
mod turn_priority;

use router_tests::chat::Chat;
use router_tests::client::Answer;
use router_tests::cluster::{Cluster, ROUTE};
use tokio::task::JoinSet;

/// Requests that are on their way at the same time.
type Tasks = JoinSet<anyhow::Result<Answer>>;

/// Sends one through a replica, answered later.
fn send(cluster: &Cluster, replica: usize, chat: Chat, tasks: &mut Tasks) -> anyhow::Result<()> {
    let (client, address) = (cluster.client.clone(), cluster.replica(replica)?);
    tasks.spawn(async move { chat.send(&client, address).await });
    Ok(())
}

/// Sets options of the route.
async fn set(cluster: &Cluster, options: &[&str]) -> anyhow::Result<()> {
    cluster.ctl()?.ok(&[&["route", "set", ROUTE], options].concat()).await.map(drop)
}

/// Sets or undoes a run-time toggle of the route.
async fn toggle(cluster: &Cluster, words: &[&str]) -> anyhow::Result<()> {
    cluster.ctl()?.ok(&[&["toggle", ROUTE], words].concat()).await.map(drop)
}

/// Replicas say loudly that they lost the control plane.
fn expect_outage(cluster: &mut Cluster) {
    for piece in ["control plane", "link", "coordinat", "watch", "static"] {
        cluster.expect_log(piece);
    }
}

/// kill -9, and everything is up again.
async fn restart_control_plane(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.control_plane.kill9().await?;
    cluster.control_plane.restart().await?;
    cluster.control_plane.ready().await?;
    cluster.until_connected(cluster.replicas.len()).await?;
    cluster.until_ready().await?;
    cluster.until_healthy().await
}
