//! What is counted of a route.

use std::sync::OnceLock;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use router_policy::refusal::Gate;
use router_proto::v1::Mode;

use super::{CodeLabels, Families, GateLabels, ModeLabels, Passed, PayloadCounts, RouteLabel};

/// Statuses that are counted one by one; every other one is counted by its class.
const CODES: [(u16, &str); 22] = [
    (200, "200"),
    (201, "201"),
    (204, "204"),
    (304, "304"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (413, "413"),
    (415, "415"),
    (422, "422"),
    (429, "429"),
    (499, "499"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
    (507, "507"),
    (529, "529"),
];
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// One route's counters. Series appear when they are first counted.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    families: Families,
    route: String,
    codes: [OnceLock<Counter>; CODES.len()],
    classes: [OnceLock<Counter>; CLASSES.len()],
    gates: [OnceLock<Counter>; Gate::ALL.len()],
    modes: [OnceLock<Counter>; Mode::ALL.len()],
    pub(crate) retries: Counter,
    pub(crate) client_disconnects: Counter,
    pub(crate) keyless: Counter,
    pub(crate) session_ids_too_long: Counter,
    pub(crate) payload: PayloadCounts,
    pub(crate) passed: Passed,
    ttft: Histogram,
    duration: Histogram,
    acquire_wait: Histogram,
}

impl RouteMetrics {
    pub(super) fn new(families: &Families, route: &str) -> Self {
        Self::with(families, route, PayloadCounts::new(&families.payload, route))
    }

    /// For requests that no route answers.
    pub(super) fn unrouted(families: &Families) -> Self {
        let name = "-";
        Self::with(families, name, PayloadCounts::unrouted(&families.payload, name))
    }

    fn with(families: &Families, route: &str, payload: PayloadCounts) -> Self {
        let label = RouteLabel { route: route.to_owned() };
        Self {
            route: route.to_owned(),
            codes: Default::default(),
            classes: Default::default(),
            gates: Default::default(),
            modes: Default::default(),
            retries: families.retries.get_or_create_owned(&label),
            client_disconnects: families.client_disconnects.get_or_create_owned(&label),
            keyless: families.keyless.get_or_create_owned(&label),
            session_ids_too_long: families.session_ids_too_long.get_or_create_owned(&label),
            payload,
            passed: Passed::new(&families.passed, route),
            ttft: families.ttft.get_or_create_owned(&label),
            duration: families.duration.get_or_create_owned(&label),
            acquire_wait: families.acquire_wait.get_or_create_owned(&label),
            families: families.clone(),
        }
    }

    /// A request that ended with this status.
    pub(crate) fn count(&self, status: u16, took: Duration) {
        let known = CODES.iter().zip(&self.codes).find(|((code, _), _)| *code == status);
        let (code, slot) = if let Some(((_, name), slot)) = known {
            (*name, Some(slot))
        } else {
            let class = usize::from(status / 100);
            let class = if class < CLASSES.len() { class } else { 0 };
            (CLASSES.get(class).copied().unwrap_or("other"), self.classes.get(class))
        };
        if let Some(slot) = slot {
            let labels = || CodeLabels { route: self.route.clone(), code };
            slot.get_or_init(|| self.families.requests.get_or_create_owned(&labels())).inc();
        }
        self.duration.observe(took.as_secs_f64());
    }

    /// The control plane refused a request.
    pub(crate) fn refused(&self, gate: Gate) {
        if let Some((_, slot)) = Gate::ALL.iter().zip(&self.gates).find(|(known, _)| **known == gate) {
            let labels = || GateLabels { route: self.route.clone(), gate: gate.code() };
            slot.get_or_init(|| self.families.refused.get_or_create_owned(&labels())).inc();
        }
    }

    /// The control plane granted a lease.
    pub(crate) fn granted(&self, mode: Mode) {
        if let Some((_, slot)) = Mode::ALL.iter().zip(&self.modes).find(|(known, _)| **known == mode) {
            let labels = || ModeLabels { route: self.route.clone(), mode: mode.word() };
            slot.get_or_init(|| self.families.granted.get_or_create_owned(&labels())).inc();
        }
    }

    pub(crate) fn waited(&self, wait: Duration) {
        self.acquire_wait.observe(wait.as_secs_f64());
    }

    pub(crate) fn first_byte(&self, ttft: Duration) {
        self.ttft.observe(ttft.as_secs_f64());
    }
}
