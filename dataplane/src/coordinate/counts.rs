//! Tells the control plane what was done to bodies (`Counted`). What is put on an open link counts as told: when the link
//! breaks before it is read, it is lost. So nothing is ever counted twice, and a broken link costs what was counted in the last
//! moments before it was seen to be broken. What is counted while there is no link waits for the next one.

use std::time::Duration;

use router_proto::v1::client_op::Kind;

use super::link::Link;
use crate::metrics::Metrics;

/// How often there is something told, while there is something to tell.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Tells what has come since the last call. Called by the link's task alone.
pub(super) fn tell(link: &Link, metrics: &Metrics) {
    for route in metrics.all_routes() {
        let Some(counted) = route.payload.take() else { continue };
        if !link.try_send(Kind::Counted(counted.clone())) {
            route.payload.give_back(&counted);
        }
    }
}
