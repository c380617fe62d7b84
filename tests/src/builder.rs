//! Builds a [`Cluster`]: says what differs from the usual one, then starts everything in order.

use anyhow::Context as _;
use tempfile::TempDir;

use crate::client::Client;
use crate::cluster::{Cluster, ROUTE};
use crate::database::{Database, DatabaseKind};
use crate::engine::Engine;
use crate::partition::Cable;
use crate::process::Process;

/// What a cluster shall be like.
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    kind: DatabaseKind,
    replicas: usize,
    engines: usize,
    engine_args: Vec<String>,
    options: Vec<(String, String)>,
    control_plane_args: Vec<String>,
    replica_args: Vec<String>,
    has_cables: bool,
    preset: Option<String>,
}

impl ClusterBuilder {
    pub(crate) fn new(kind: DatabaseKind) -> Self {
        Self {
            kind,
            replicas: 2,
            engines: 2,
            engine_args: Vec::new(),
            options: vec![
                ("auth".to_owned(), "off".to_owned()),
                // Quick probes, so that tests of other things don't wait for them.
                ("health_check_interval".to_owned(), "200ms".to_owned()),
            ],
            control_plane_args: Vec::new(),
            replica_args: Vec::new(),
            has_cables: false,
            preset: None,
        }
    }

    /// How many dataplanes.
    #[must_use]
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// How many mock engines, each a backend of the route.
    #[must_use]
    pub fn engines(mut self, count: usize) -> Self {
        self.engines = count;
        self
    }

    /// Arguments for every engine.
    #[must_use]
    pub fn engine_args(mut self, args: &[&str]) -> Self {
        self.engine_args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// A route option.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.retain(|(known, _)| known != name);
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Where the route's unset options take their defaults from.
    #[must_use]
    pub fn preset(mut self, name: &str) -> Self {
        self.preset = Some(name.to_owned());
        self
    }

    /// More arguments for the control plane.
    #[must_use]
    pub fn control_plane_args(mut self, args: &[&str]) -> Self {
        self.control_plane_args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// More arguments for each replica.
    #[must_use]
    pub fn replica_args(mut self, args: &[&str]) -> Self {
        self.replica_args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// Each replica reaches the control plane over a cable that the test may cut.
    #[must_use]
    pub fn cables(mut self) -> Self {
        self.has_cables = true;
        self
    }

    /// Starts database, engines, control plane, route and replicas, in this order, and waits until all are ready.
    ///
    /// # Errors
    /// When a part does not start, with the end of its log.
    pub async fn start(self) -> anyhow::Result<Cluster> {
        let folder = TempDir::with_prefix("router-test-").context("make a folder for the cluster")?;
        let database = Database::start(self.kind, folder.path()).await?;
        let engine_args: Vec<&str> = self.engine_args.iter().map(String::as_str).collect();
        let mut engines = Vec::new();
        for index in 0..self.engines {
            engines.push(Engine::start(&format!("engine{index}"), &engine_args, folder.path()).await?);
        }
        let control_plane = start_control_plane(&self, &database, &folder).await?;
        let mut cluster = Cluster {
            control_plane,
            replicas: Vec::new(),
            engines,
            cables: Vec::new(),
            database,
            client: Client::http1(),
            declared: Vec::new(),
            folder,
            is_finished: false,
        };
        add_route(&self, &cluster).await?;
        cluster.until_healthy().await?;
        for index in 0..self.replicas {
            add_replica(&self, &mut cluster, index).await?;
        }
        for replica in &cluster.replicas {
            replica.ready().await?;
        }
        cluster.until_ready().await?;
        cluster.until_connected(self.replicas).await?;
        Ok(cluster)
    }
}

async fn start_control_plane(
    builder: &ClusterBuilder,
    database: &Database,
    folder: &TempDir,
) -> anyhow::Result<Process> {
    let url = database.url();
    let mut args = vec!["controlplane", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    args.extend(["--database-url", &url]);
    args.extend(builder.control_plane_args.iter().map(String::as_str));
    let process = Process::start("controlplane", &args, folder.path()).await?;
    process.ready().await?;
    Ok(process)
}

async fn add_route(builder: &ClusterBuilder, cluster: &Cluster) -> anyhow::Result<()> {
    let mut args = vec!["route".to_owned(), "add".to_owned(), ROUTE.to_owned(), "--default".to_owned()];
    for engine in &cluster.engines {
        args.extend(["--backend".to_owned(), engine.address().to_string()]);
    }
    if let Some(preset) = &builder.preset {
        args.extend(["--preset".to_owned(), preset.clone()]);
    }
    for (name, value) in &builder.options {
        args.extend(["--set".to_owned(), format!("{name}={value}")]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    cluster.ctl()?.ok(&args).await.map(drop)
}

async fn add_replica(builder: &ClusterBuilder, cluster: &mut Cluster, index: usize) -> anyhow::Result<()> {
    let mut control_plane = cluster.control_plane.address("grpc")?;
    if builder.has_cables {
        let cable = Cable::to(control_plane).await?;
        control_plane = cable.address();
        cluster.cables.push(cable);
    }
    let url = format!("http://{control_plane}");
    let mut args = vec!["dataplane", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    args.extend(["--control-plane", &url]);
    args.extend(builder.replica_args.iter().map(String::as_str));
    let replica = Process::start(&format!("replica{index}"), &args, cluster.folder.path()).await?;
    cluster.replicas.push(replica);
    Ok(())
}
