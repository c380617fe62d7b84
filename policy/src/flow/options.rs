//! Everything that is in force for one pool at one moment: the route's options with the run-time overrides applied. The
//! option catalogue holds the defaults; this is only where they arrive.

use std::time::Duration;

use super::aimd::AimdOptions;
use super::metric::Metric;
use super::signal::SignalOptions;
use super::tokens::TpsBasis;
use super::turn::{Bucket, PrioOptions};

/// One pool's options.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own (limits.md §6.2, §10, §12.8)")]
pub struct FlowOptions {
    /// The master switch `load_rate_limit`. Off: nothing is refused, and what would have been is counted.
    pub is_enforced: bool,
    /// The limit is multiplied by this, by whoever admits; above zero.
    pub rt_limit_factor: f64,
    /// Whether the time to first token is measured at all.
    pub ttft_on: bool,
    /// Whether throughput is measured at all. Without it no pool is adaptive.
    pub tps_on: bool,
    /// Whether the TTFT gate refuses. It steers the adaptive limit even when it doesn't.
    pub ttft_429: bool,
    /// How the time to first token becomes an EWMA.
    pub ttft: SignalOptions,
    /// How throughput becomes an EWMA.
    pub tps: SignalOptions,
    /// What is watched of the time to first token, the shown one first.
    pub ttft_metrics: Vec<Metric>,
    /// What is watched of throughput. The adaptive limit stands still while the first has no value.
    pub tps_metrics: Vec<Metric>,
    /// An answer of fewer tokens is no throughput sample.
    pub tps_min_tokens: u32,
    /// Nor is one that took less than this.
    pub tps_min_decode: Duration,
    /// Which time the tokens are divided by.
    pub tps_basis: TpsBasis,
    /// The adaptive limit; `None`: the pool's own limit, and a TPS gate that refuses.
    pub adaptive: Option<AimdOptions>,
    /// Session turn priority, when it is on.
    pub prio: Option<PrioOptions>,
    /// How often the in-flight count is kept for the shown average.
    pub cluster_avg_interval: Duration,
}

impl FlowOptions {
    /// The adaptive limit's options while it is in force: it needs throughput (limits.md §6.1).
    pub fn active_adaptive(&self) -> Option<&AimdOptions> {
        self.adaptive.as_ref().filter(|_| self.tps_on)
    }

    /// How much of the limit a request of this bucket may use; all of it without session priority.
    pub fn share(&self, bucket: Option<Bucket>) -> f64 {
        self.prio.as_ref().zip(bucket).map_or(1.0, |(prio, bucket)| prio.table.share(bucket))
    }
}
