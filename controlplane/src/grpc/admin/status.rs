//! The state of the whole installation.

use std::time::Duration;

use router_proto::v1;

use super::route;
use crate::fleet::Fleet;

pub(super) fn status(fleet: &Fleet, uptime: Duration) -> v1::GetStatusReply {
    let health = fleet.store_health.state();
    let last_error = health.last_error.filter(|_| !health.is_ok);
    let database_error = last_error.as_deref().unwrap_or_default().to_owned();
    v1::GetStatusReply {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: fleet.context.epoch,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        database: fleet.store.kind().to_owned(),
        database_ok: health.is_ok,
        database_error,
        replicas: fleet.replicas.states(fleet.context.clock.now(), |replica| fleet.leases_of(replica)),
        routes: route::states(fleet),
        keys: u32::try_from(fleet.keys().len()).unwrap_or(u32::MAX),
        snapshot_version: fleet.hub.version(),
        files: fleet.files(),
    }
}
