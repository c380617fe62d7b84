//! How the body log fares on this replica.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Gauges of the sender. Clones show the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct BodyLogGauges {
    pub(crate) connected: Gauge,
    /// In bytes.
    pub(crate) buffered: Gauge,
}

impl BodyLogGauges {
    pub(super) fn register(&self, r: &mut Registry) {
        let help = "1 while there is a connection to the body log's collector; 0 also before the first record";
        r.register("bodylog_connected", help, self.connected.clone());
        let help = "Memory of what is being captured and of what waits for the collector";
        r.register_with_unit("bodylog_buffered", help, Unit::Bytes, self.buffered.clone());
    }
}
