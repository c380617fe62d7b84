//! A whole installation of real processes on free ports: a control plane with its database, replicas, mock engines.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail};
use http::{Method, StatusCode};
use router_proto::v1::{BackendState, GetStatusReply, RouteState};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::admin::Admin;
use crate::await_event::{PATIENCE, until};
use crate::builder::ClusterBuilder;
use crate::client::Client;
use crate::ctl::Ctl;
use crate::database::{Database, DatabaseKind};
use crate::engine::Engine;
use crate::log;
use crate::partition::Cable;
use crate::process::Process;

/// The route that every cluster starts with.
pub const ROUTE: &str = "chat";

/// A running installation. Dropping it kills every process; unless [`Cluster::finish`] was reached, it first prints the end
/// of every log.
#[derive(Debug)]
pub struct Cluster {
    /// The control plane.
    pub control_plane: Process,
    /// The dataplanes.
    pub replicas: Vec<Process>,
    /// The mock engines, in the order of the route's backends.
    pub engines: Vec<Engine>,
    /// One cable per replica, between it and the control plane, if the builder was asked for cables.
    pub cables: Vec<Cable>,
    /// The database.
    pub database: Database,
    /// A client that all may share.
    pub client: Client,
    /// Pieces of log lines at WARN or ERROR that belong to this test.
    pub(crate) declared: Vec<String>,
    pub(crate) folder: TempDir,
    pub(crate) is_finished: bool,
}

impl Cluster {
    /// A cluster to be: two replicas, two engines, unless said otherwise.
    pub fn builder(kind: DatabaseKind) -> ClusterBuilder {
        ClusterBuilder::new(kind)
    }

    /// Where replica `index` takes traffic.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn replica(&self, index: usize) -> anyhow::Result<SocketAddr> {
        self.replicas.get(index).with_context(|| format!("no replica {index}"))?.address("http")
    }

    /// Every replica's traffic address.
    ///
    /// # Errors
    /// When one never listened.
    pub fn replica_addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        self.replicas.iter().map(|replica| replica.address("http")).collect()
    }

    /// Where replica `index` answers `/readyz`.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn replica_admin(&self, index: usize) -> anyhow::Result<SocketAddr> {
        self.replicas.get(index).with_context(|| format!("no replica {index}"))?.address("admin")
    }

    /// The operator's tool for this cluster.
    ///
    /// # Errors
    /// When the control plane never listened.
    pub fn ctl(&self) -> anyhow::Result<Ctl> {
        Ok(Ctl::at(format!("http://{}", self.control_plane.address("grpc")?)))
    }

    /// The Admin API of this cluster, to look at its state.
    ///
    /// # Errors
    /// When the control plane does not answer.
    pub async fn admin(&self) -> anyhow::Result<Admin> {
        Admin::connect(self.control_plane.address("grpc")?).await
    }

    /// The folder of this cluster's files and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Declares that log lines at WARN or ERROR containing `piece` belong to this test.
    pub fn expect_log(&mut self, piece: &str) {
        self.declared.push(piece.to_owned());
    }

    /// The engine behind `X-Routed-Peer`.
    ///
    /// # Errors
    /// When no engine has that address.
    pub fn engine_at(&self, peer: &str) -> anyhow::Result<&Engine> {
        let found = self.engines.iter().find(|engine| engine.address().to_string() == peer);
        found.with_context(|| format!("no engine is called {peer:?}"))
    }

    /// The status of the whole.
    ///
    /// # Errors
    /// When the control plane does not answer.
    pub async fn status(&self) -> anyhow::Result<GetStatusReply> {
        self.admin().await?.status().await
    }

    /// The route [`ROUTE`] as the control plane sees it.
    ///
    /// # Errors
    /// When the control plane does not answer or has no such route.
    pub async fn route(&self) -> anyhow::Result<RouteState> {
        self.admin().await?.route(ROUTE).await
    }

    /// One engine as the control plane sees it.
    ///
    /// # Errors
    /// When the control plane does not answer or has no such backend.
    pub async fn backend(&self, index: usize) -> anyhow::Result<BackendState> {
        let address = self.engines.get(index).with_context(|| format!("no engine {index}"))?.address().to_string();
        let route = self.route().await?;
        let found = route.backends.into_iter().find(|backend| backend.address == address);
        found.with_context(|| format!("no backend {address}"))
    }

    /// Leases that the control plane counts now.
    ///
    /// # Errors
    /// As [`Cluster::route`].
    pub async fn in_flight(&self) -> anyhow::Result<u32> {
        Ok(self.route().await?.backends.iter().map(|backend| backend.in_flight).sum())
    }

    /// Waits until the control plane counts exactly `count` leases.
    ///
    /// # Errors
    /// After [`PATIENCE`].
    pub async fn until_in_flight(&self, count: u32) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        let look = || async {
            let route = admin.route(ROUTE).await?;
            let now: u32 = route.backends.iter().map(|backend| backend.in_flight).sum();
            Ok((now == count).then_some(()))
        };
        until(&format!("{count} leases in flight"), PATIENCE, look).await
    }

    /// Waits until `count` slots are taken by requests whose body is still coming in.
    ///
    /// # Errors
    /// After [`PATIENCE`].
    pub async fn until_reserved(&self, count: u32) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        let look = || async { Ok((admin.route(ROUTE).await?.reserved == count).then_some(())) };
        until(&format!("{count} slots reserved"), PATIENCE, look).await
    }

    /// Waits until `count` requests wait for a slot.
    ///
    /// # Errors
    /// After [`PATIENCE`].
    pub async fn until_waiting(&self, count: u32) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        let look = || async { Ok((admin.route(ROUTE).await?.waiting == count).then_some(())) };
        until(&format!("{count} requests waiting"), PATIENCE, look).await
    }

    /// Makes a key, and waits until every replica takes it: replicas hear of it a moment after the operator. Its secret.
    ///
    /// # Errors
    /// When it can't be made, and after [`PATIENCE`].
    pub async fn add_key(&self, name: &str) -> anyhow::Result<String> {
        let added = self.ctl()?.json(&["key", "add", name]).await?;
        let secret = added.get("secret").and_then(Json::as_str).context("the answer has a secret")?.to_owned();
        let bearer = format!("Bearer {secret}");
        for replica in self.replica_addresses()? {
            let is_known = || async {
                let headers = [("authorization", bearer.as_str())];
                let answer = self.client.send(replica, Method::GET, "/v1/models", &headers, "").await?;
                Ok((answer.status != StatusCode::UNAUTHORIZED).then_some(()))
            };
            until("the new key is taken", PATIENCE, is_known).await?;
        }
        Ok(secret)
    }

    /// Waits until every backend may take requests.
    ///
    /// # Errors
    /// After [`PATIENCE`].
    pub async fn until_healthy(&self) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        let look = || async {
            let route = admin.route(ROUTE).await?;
            let is_out =
                |backend: &BackendState| backend.condition.is_some_and(|c| c.unhealthy || c.banned || c.draining);
            Ok((!route.backends.iter().any(is_out)).then_some(()))
        };
        until("every backend healthy", PATIENCE, look).await
    }

    /// Waits until that many replicas are connected to the control plane.
    ///
    /// # Errors
    /// After [`PATIENCE`].
    pub async fn until_connected(&self, count: usize) -> anyhow::Result<()> {
        let look = || async {
            // While a control plane restarts there may be nobody to ask.
            let Ok(status) = self.status().await else { return Ok(None) };
            Ok((status.replicas.iter().filter(|replica| replica.connected).count() == count).then_some(()))
        };
        until(&format!("{count} replicas connected"), PATIENCE, look).await
    }

    /// Waits until each replica says that it is ready.
    ///
    /// # Errors
    /// After [`PATIENCE`].
    pub async fn until_ready(&self) -> anyhow::Result<()> {
        for replica in &self.replicas {
            let admin = replica.address("admin")?;
            let look = || async {
                let answer = self.client.get(admin, "/readyz").await;
                Ok(answer.is_ok_and(|answer| answer.status.is_success()).then_some(()))
            };
            until(&format!("{} ready", replica.name()), PATIENCE, look).await?;
        }
        Ok(())
    }

    /// Ends the test: no process may have logged a warning that the test did not declare.
    ///
    /// # Errors
    /// With the lines.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let mut loud = Vec::new();
        for process in self.processes() {
            let log = process.log()?;
            loud.extend(log::undeclared(&log, &self.declared).iter().map(|line| format!("{}: {line}", process.name())));
        }
        if !loud.is_empty() {
            bail!("log lines that the test did not declare:\n{}", loud.join("\n"));
        }
        self.is_finished = true;
        Ok(())
    }

    /// Every process of it.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let engines = self.engines.iter().map(|engine| &engine.process);
        std::iter::once(&self.control_plane).chain(&self.replicas).chain(engines)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let tails: Vec<String> = self.processes().map(Process::log_tail).collect();
        log::show(&tails.join("\n"));
    }
}
