//! What is counted of a backend.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use router_policy::body::usage::Usage;
use router_policy::ids::RouteName;

use super::{BackendLabels, Families, TPS_BUCKETS, TTFT_BUCKETS};

/// One backend's counters. The default's are in no exposition.
#[derive(Debug)]
pub(crate) struct BackendMetrics {
    ttft: Histogram,
    tps: Histogram,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    completion_tokens: Counter,
}

impl Default for BackendMetrics {
    fn default() -> Self {
        Self {
            ttft: Histogram::new(TTFT_BUCKETS),
            tps: Histogram::new(TPS_BUCKETS),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            completion_tokens: Counter::default(),
        }
    }
}

impl BackendMetrics {
    pub(super) fn new(families: &Families, route: &RouteName, address: &str) -> Self {
        let labels = BackendLabels { route: route.to_string(), backend: address.to_owned() };
        Self {
            ttft: families.backend_ttft.get_or_create_owned(&labels),
            tps: families.backend_tps.get_or_create_owned(&labels),
            prompt_tokens: families.prompt_tokens.get_or_create_owned(&labels),
            cached_tokens: families.cached_tokens.get_or_create_owned(&labels),
            completion_tokens: families.completion_tokens.get_or_create_owned(&labels),
        }
    }

    /// A stream has begun.
    pub(crate) fn ttft(&self, ttft: Duration) {
        self.ttft.observe(ttft.as_secs_f64());
    }

    /// An answer is whole.
    pub(crate) fn used(&self, usage: Usage) {
        for (counter, tokens) in [
            (&self.prompt_tokens, usage.prompt),
            (&self.cached_tokens, usage.cached),
            (&self.completion_tokens, usage.completion),
        ] {
            counter.inc_by(tokens.unwrap_or(0).into());
        }
    }

    pub(crate) fn tokens_per_second(&self, tps: f64) {
        self.tps.observe(tps);
    }
}
