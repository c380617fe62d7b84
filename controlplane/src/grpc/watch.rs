//! The Watch stream: the whole snapshot, then deltas.

use std::sync::Arc;

use futures_core::Stream;
use router_proto::v1;
use tokio::sync::watch;
use tonic::Status;

use crate::fleet::Fleet;

/// One watcher's place.
pub(super) struct Deltas {
    fleet: Arc<Fleet>,
    version: watch::Receiver<u64>,
    /// 0 before the first snapshot.
    known: u64,
}

impl Deltas {
    /// Starts with what has changed since `known`, or with everything.
    ///
    /// Versions of another start mean nothing here, and a replica can't tell which start it saw; so every stream starts full.
    pub(super) fn stream(fleet: Arc<Fleet>, _known: u64) -> impl Stream<Item = Result<v1::Snapshot, Status>> + Send {
        let version = fleet.hub.subscribe();
        futures_util::stream::unfold(Self { fleet, version, known: 0 }, |mut at| async move {
            loop {
                // Marked as seen before it is read: a change in between is seen again, never missed.
                at.version.borrow_and_update();
                let snapshot = at.fleet.hub.since(at.known);
                if at.known == 0 || snapshot.version != at.known {
                    at.known = snapshot.version;
                    return Some((Ok(snapshot), at));
                }
                tokio::select! {
                    changed = at.version.changed() => changed.ok()?,
                    () = at.fleet.shutdown().cancelled() => return None,
                }
            }
        })
    }
}
