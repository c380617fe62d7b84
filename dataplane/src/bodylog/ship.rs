//! The replica's one sender of records (payloads.md §6.3). It turns finished records into frames, off the request path, and
//! sends them when 4096 bytes have come together or a second has passed. Only whole frames count: when a connection breaks
//! in the middle of one, that frame goes again on the next. What waits holds its share of the budget, so a collector that
//! is down or slow fills the buffer and then costs new records, never a request.

mod batch;
mod wire;

use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use router_policy::payload_count::PayloadCount;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::batch::Batch;
use self::wire::Wire;
use super::record::Finished;
use super::settings::Settings;

/// At shutdown: for what still waits. Shorter than the drain's last wait.
const LAST_FLUSH: Duration = Duration::from_millis(1500);

/// Runs until `stop`, then sends what it can within 1.5 s. What is left is counted as dropped.
///
/// `connected` shows whether there is a connection.
pub(crate) async fn ship(
    settings: Settings,
    mut records: UnboundedReceiver<Box<Finished>>,
    connected: Gauge,
    stop: CancellationToken,
) {
    let mut batch = Batch::new(settings.zone);
    let mut wire = Wire::new(settings.host, settings.port, connected);
    let sending = async {
        loop {
            tokio::select! {
                record = records.recv() => match record {
                    Some(record) => batch.add(*record),
                    None => break,
                },
                () = wire.closed() => {}
                () = sleep_until(batch.due().unwrap_or_else(Instant::now)), if batch.due().is_some() => {}
            }
            if batch.is_due(Instant::now()) {
                wire.send(&mut batch).await;
            }
        }
    };
    let _: Option<()> = stop.run_until_cancelled(sending).await;
    records.close();
    let flushing = async {
        loop {
            while !batch.is_full()
                && let Ok(record) = records.try_recv()
            {
                batch.add(*record);
            }
            if batch.is_empty() || wire.try_send(&mut batch).await.is_err() {
                break;
            }
        }
    };
    let _: Result<(), _> = timeout(LAST_FLUSH, flushing).await;
    let mut lost = batch.frames();
    while !batch.is_empty() {
        batch.skip();
    }
    while let Ok(record) = records.try_recv() {
        record.metrics.payload.add(PayloadCount::BodyLogDropped, 1);
        lost += 1;
    }
    if lost > 0 {
        tracing::warn!(lost, "body log: records lost at shutdown; the collector did not take them");
    }
}

#[cfg(test)]
mod tests;
