//! Follows the Watch stream for ever: a full snapshot, then deltas, reconnecting with backoff. A lost stream changes
//! nothing: the last snapshot stays in force. Run once by [`crate::run`].

use std::sync::Arc;

use router_proto::v1;
use tokio_util::sync::CancellationToken;

use super::SnapshotStore;
use crate::coordinate::Client;
use crate::coordinate::backoff::Backoff;
use crate::metrics::Metrics;

/// Runs until `stop`.
pub(crate) async fn follow(
    mut client: Client,
    replica_id: String,
    store: Arc<SnapshotStore>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new();
    loop {
        let watched = stop.run_until_cancelled(watch(&mut client, &replica_id, &store, &metrics, &mut backoff)).await;
        match watched {
            None => return,
            Some(status) => tracing::debug!(code = ?status.code(), "snapshot stream ended; connecting again"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(backoff.next())).await.is_none() {
            return;
        }
    }
}

/// One stream, until it ends; says why.
async fn watch(
    client: &mut Client,
    replica_id: &str,
    store: &SnapshotStore,
    metrics: &Metrics,
    backoff: &mut Backoff,
) -> tonic::Status {
    // Always from the start: a version means nothing to a control plane of another epoch.
    let request = v1::WatchRequest { replica_id: replica_id.to_owned(), known_version: 0 };
    let mut stream = match client.watch(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    let mut has_full = false;
    loop {
        let message = match stream.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return tonic::Status::unavailable("stream ended"),
            Err(status) => return status,
        };
        has_full |= message.full;
        if !has_full {
            // A delta to something that this stream never sent.
            continue;
        }
        backoff.reset();
        let next = store.load().unwrap_or_default().apply(&message, metrics);
        metrics.snapshot_version.set(i64::try_from(next.version).unwrap_or(i64::MAX));
        tracing::debug!(version = next.version, full = message.full, "snapshot in force");
        store.publish(next);
    }
}
