//! `routerctl dataplane`: one replica as a process.

use router_dataplane::Listeners;
use router_dataplane::config::{Config, DataplaneArgs};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::process::{announce, bind, bound};
use crate::token::Role;

/// Checks the whole configuration before anything is started.
pub(crate) fn check(role: &Role<DataplaneArgs>) -> Result<Config, Failure> {
    role.check(DataplaneArgs::validate)
}

/// Binds, says where, and runs until `shutdown`.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) -> Outcome {
    let traffic = bind("--listen", config.listen)?;
    let admin = bind("--admin-listen", config.admin_listen)?;
    announce(&format!("listening role=dataplane http={} admin={}", bound(&traffic)?, bound(&admin)?));
    let on_ready = || announce("ready role=dataplane");
    router_dataplane::run(config, Listeners { traffic, admin }, shutdown.cancelled_owned(), on_ready)
        .await
        .map_err(|error| Failure::failed(format!("dataplane: {:#}", anyhow::Error::new(error))))
}
