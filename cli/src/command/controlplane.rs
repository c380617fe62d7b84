//! `routerctl controlplane`: the control plane as a process.

use router_controlplane::Listeners;
use router_controlplane::config::{Config, ControlPlaneArgs};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::process::{announce, bind, bound};
use crate::token::Role;

/// Checks the whole configuration before anything is started.
pub(crate) fn check(role: &Role<ControlPlaneArgs>) -> Result<Config, Failure> {
    role.check(|args, token| args.validate(token, role.token.path().as_deref()))
}

/// Binds, says where, and runs until `shutdown`.
pub(crate) async fn run(args: &ControlPlaneArgs, config: Config, shutdown: CancellationToken) -> Outcome {
    let grpc = bind("--grpc-listen", args.grpc_listen)?;
    let http = bind("--http-listen", args.http_listen)?;
    announce(&format!("listening role=controlplane grpc={} http={}", bound(&grpc)?, bound(&http)?));
    let on_ready = || announce("ready role=controlplane");
    router_controlplane::run(config, Listeners { grpc, http }, shutdown.cancelled_owned(), on_ready)
        .await
        .map_err(|error| Failure::failed(format!("controlplane: {:#}", anyhow::Error::new(error))))
}
