//! Gates, refusals, failures.

use router_policy::admit::{Binding, Grant, Pick};
use router_policy::refusal::{Gate, Refusal};
use router_policy::retry::Failure;

use crate::v1;

impl From<Gate> for v1::Gate {
    fn from(gate: Gate) -> Self {
        match gate {
            Gate::UnknownRoute => Self::UnknownRoute,
            Gate::NoBackend => Self::NoBackend,
            Gate::ContextWindow => Self::ContextWindow,
            Gate::QueueFull => Self::QueueFull,
            Gate::QueueTimeout => Self::QueueTimeout,
            Gate::SessionTableFull => Self::SessionTableFull,
            Gate::NoMoreBackends => Self::NoMoreBackends,
            Gate::ControlPlaneUnavailable => Self::ControlPlaneUnavailable,
            Gate::Ttft => Self::Ttft,
            Gate::Tps => Self::Tps,
            Gate::UnknownModel => Self::UnknownModel,
        }
    }
}

impl From<v1::Gate> for Gate {
    /// A gate that a newer control plane has invented is a refusal all the same; its status and detail come with it.
    fn from(gate: v1::Gate) -> Self {
        match gate {
            v1::Gate::UnknownRoute => Self::UnknownRoute,
            v1::Gate::NoBackend => Self::NoBackend,
            v1::Gate::ContextWindow => Self::ContextWindow,
            v1::Gate::QueueFull => Self::QueueFull,
            v1::Gate::QueueTimeout => Self::QueueTimeout,
            v1::Gate::SessionTableFull => Self::SessionTableFull,
            v1::Gate::NoMoreBackends => Self::NoMoreBackends,
            v1::Gate::Ttft => Self::Ttft,
            v1::Gate::Tps => Self::Tps,
            v1::Gate::UnknownModel => Self::UnknownModel,
            v1::Gate::Unspecified | v1::Gate::ControlPlaneUnavailable => Self::ControlPlaneUnavailable,
        }
    }
}

impl From<Refusal> for v1::Refused {
    fn from(refusal: Refusal) -> Self {
        let gate = refusal.gate;
        Self {
            gate: v1::Gate::from(gate).into(),
            http_status: u32::from(gate.http_status()),
            retry_after_s: gate.retry_after_s().unwrap_or(0),
            detail: gate.detail().to_owned(),
            in_flight: refusal.in_flight,
            limit: refusal.limit,
            details_json: String::new(),
        }
    }
}

/// Of a granted request that has no binding, or whose binding is what the decision says.
impl From<&Grant> for v1::Mode {
    fn from(grant: &Grant) -> Self {
        match (grant.binding, grant.pick) {
            (Binding::Kept, _) => Self::Bound,
            (Binding::Made, _) => Self::New,
            (Binding::Moved, _) => Self::Moved,
            (Binding::Absent, Pick::LeastLoaded) => Self::LeastConn,
            (Binding::Absent, Pick::Hash) => Self::Hash,
            (Binding::Absent, Pick::Rendezvous) => Self::Rendezvous,
            (Binding::Absent, Pick::Fallback) => Self::HashFallback,
        }
    }
}

impl From<Failure> for v1::FailureReason {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Connect => Self::Connect,
            Failure::NoHead => Self::NoHead,
            Failure::HeaderTimeout => Self::HeaderTimeout,
            Failure::Status(_) => Self::Status,
        }
    }
}

impl v1::Mode {
    /// Every mode, for metrics: one that is missing here would be counted nowhere.
    pub const ALL: [Self; 9] = [
        Self::Unspecified,
        Self::Bound,
        Self::New,
        Self::Moved,
        Self::LeastConn,
        Self::Static,
        Self::Hash,
        Self::HashFallback,
        Self::Rendezvous,
    ];

    /// The word of `X-Routed-Mode` (rulings §4).
    pub fn word(self) -> &'static str {
        match self {
            Self::Unspecified => "unknown",
            Self::Bound => "bound",
            Self::New => "new",
            Self::Moved => "moved",
            Self::LeastConn => "least_conn",
            Self::Static => "static",
            Self::Hash => "hash",
            Self::HashFallback => "hash_fallback",
            Self::Rendezvous => "rendezvous",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_listed() {
        let known = (0..32).filter_map(|number| v1::Mode::try_from(number).ok());
        assert!(known.eq(v1::Mode::ALL), "in the order of their numbers");
    }

    #[test]
    fn gates_survive_the_wire() {
        for gate in Gate::ALL {
            assert_eq!(Gate::from(v1::Gate::from(gate)), gate);
        }
    }
}
