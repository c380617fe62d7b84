//! A replica under test.

use std::net::SocketAddr;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::backend::Message;
use super::control::Control;
use super::{client, soon};
use crate::{DataplaneArgs, Error, Listeners};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: DataplaneArgs,
}

pub(super) struct Replica {
    pub(super) addr: SocketAddr,
    pub(super) admin: SocketAddr,
    stop: CancellationToken,
    task: JoinSet<Result<(), Error>>,
}

impl Replica {
    /// Started and ready.
    pub(super) async fn start(control: &Control, flags: &[&str]) -> Self {
        let (replica, ready) = Self::launch(control, flags).await;
        soon("ready", ready).await.unwrap();
        replica
    }

    /// Started; the receiver says when it is ready.
    pub(super) async fn launch(control: &Control, flags: &[&str]) -> (Self, oneshot::Receiver<()>) {
        Self::launch_with(control, flags, None).await
    }

    /// The same, with a token for the control plane.
    pub(super) async fn launch_with(
        control: &Control,
        flags: &[&str],
        token: Option<&str>,
    ) -> (Self, oneshot::Receiver<()>) {
        let url = format!("http://{}", control.addr);
        let always = ["test", "--control-plane", url.as_str()];
        let args = Cli::parse_from(always.into_iter().chain(flags.iter().copied())).args;
        let config = args.validate(token).unwrap();
        let traffic = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, admin_addr) = (traffic.local_addr().unwrap(), admin.local_addr().unwrap());
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let (on_ready, ready) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(crate::run(config, Listeners { traffic, admin }, stopped, || {
            let _ = on_ready.send(());
        }));
        (Self { addr, admin: admin_addr, stop, task }, ready)
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) async fn stopped(mut self) {
        soon("the replica's end", self.task.join_next()).await.unwrap().unwrap().unwrap();
    }

    /// Ends when the link is seen to be down.
    pub(super) async fn unlinked(&self) {
        while self.metrics().await.contains("\nrouter_control_plane_link_up 1\n") {}
    }

    /// Waits until a series has this value; fails when it takes too long.
    pub(super) async fn sees_metric(&self, line: &str) {
        let line = format!("{line}\n");
        soon("the series", async { while !self.metrics().await.contains(&line) {} }).await;
    }

    pub(super) async fn readyz(&self) -> Message {
        client::call(self.admin, &client::get("/readyz")).await
    }

    /// Waits until this version is in force.
    pub(super) async fn sees_snapshot(&self, version: u64) {
        self.sees_metric(&format!("router_snapshot_version {version}")).await;
    }

    pub(super) async fn metrics(&self) -> String {
        client::call(self.admin, &client::get("/metrics")).await.text().to_owned()
    }
}
