//! Tells the control plane what was done to bodies (`Counted`). What is put on an open link counts as told: when the link
//! breaks before it is read, it is lost. So nothing is ever counted twice, and a broken link costs what was counted in the last
//! moments before it was seen to be broken. What is counted while there is no link waits for the next one.

use std::time::Duration;

use super::link::Link;
use crate::metrics::Metrics;

/// How often there is something told, while there is something to tell.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Tells what has come since the last call. Called by the link's task alone.
pub(super) fn tell(link: &Link, metrics: &Metrics) {
    for route in metrics.all_routes() {
        let Some(counted) = route.payload.take() else { continue };
        if !link.send_counts(counted.clone()) {
            route.payload.give_back(&counted);
        }
    }
}

/// The same, unless what was told before has not left yet: behind a control plane that does not read, counts wait where they
/// are and take no room.
pub(super) fn tell_when_read(link: &Link, metrics: &Metrics) {
    if !link.has_counts_waiting() {
        tell(link, metrics);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::{FutureExt, StreamExt};
    use router_policy::ids::RouteName;
    use router_policy::payload_count::PayloadCount;
    use router_proto::v1;
    use router_proto::v1::client_op::Kind;
    use tokio::sync::{mpsc, oneshot};

    use super::super::batch::Outgoing;
    use super::*;

    #[test]
    fn counts_are_told_again_only_when_the_last_have_left() {
        let (ops, receiver) = mpsc::unbounded_channel();
        let (open, welcome) = oneshot::channel();
        let waiting = Arc::default();
        let mut outgoing = Outgoing::new(v1::Hello::default(), welcome, receiver, Arc::clone(&waiting));
        let link = Link::new(ops, waiting);
        let metrics = Metrics::new();
        let counts = &metrics.route(&RouteName::new("chat").unwrap()).payload;
        open.send(()).unwrap();
        outgoing.next().now_or_never().unwrap().unwrap();
        let mut left = || match outgoing.next().now_or_never() {
            Some(Some(batch)) => batch.ops.into_iter().map(|op| op.kind.unwrap()).collect(),
            _ => Vec::new(),
        };
        let parsed = |told: &[Kind]| match told {
            [Kind::Counted(counted)] => counted.counts["parsed"],
            other => panic!("counts once expected, got {other:?}"),
        };
        for _ in 0..3 {
            counts.add(PayloadCount::Parsed, 1);
            tell_when_read(&link, &metrics);
        }
        assert_eq!(parsed(&left()), 1, "the others wait");
        tell_when_read(&link, &metrics);
        assert_eq!(parsed(&left()), 2, "and are lost to nobody");
        tell_when_read(&link, &metrics);
        assert_eq!(left(), [], "the control");
    }
}
