//! The state of the whole installation.

use std::time::Duration;

use router_proto::v1;

use super::route;
use crate::fleet::Fleet;

pub(super) fn status(fleet: &Fleet, uptime: Duration) -> v1::GetStatusReply {
    let leases = |replica: &str| fleet.pools().values().map(|pool| pool.leases_of(replica)).sum();
    v1::GetStatusReply {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: fleet.context.epoch,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        database: fleet.store.kind().to_owned(),
        database_ok: fleet.store_health.is_ok(),
        database_error: match fleet.store_health.is_ok() {
            true => String::new(),
            false => fleet.store_health.state().last_error.as_deref().unwrap_or_default().to_owned(),
        },
        replicas: fleet.replicas.states(fleet.context.clock.now(), leases),
        routes: route::states(fleet),
        keys: u32::try_from(fleet.keys().len()).unwrap_or(u32::MAX),
        snapshot_version: fleet.hub.version(),
    }
}
