//! Every way in which the control plane refuses a request, with its status: one table of data (gateway.md §3, routing.md §7,
//! rulings §1 and §4, conventions §1).

use std::fmt;

use crate::route::Priority;

/// The rule that refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gate {
    /// No route of that name.
    UnknownRoute,
    /// No backend is healthy and admitted.
    NoBackend,
    /// No healthy and admitted backend has the context window that the client asks for.
    ContextWindow,
    /// Every candidate is full, and so is the queue (or there is none).
    QueueFull,
    /// Every candidate stayed full for the whole queue timeout.
    QueueTimeout,
    /// The binding table is full and the route's `on_full` is `refuse`.
    SessionTableFull,
    /// A transfer found no backend that was not tried.
    NoMoreBackends,
    /// The control plane can't be reached, or can't decide now.
    ControlPlaneUnavailable,
    /// The pool's time to first token is past its limit.
    Ttft,
    /// The pool's tokens per second are past their limit.
    Tps,
    /// The route has a pool per model, and none for this one.
    UnknownModel,
}

impl Gate {
    /// Every gate, for metrics and tests.
    pub const ALL: [Gate; 11] = [
        Gate::UnknownRoute,
        Gate::NoBackend,
        Gate::ContextWindow,
        Gate::QueueFull,
        Gate::QueueTimeout,
        Gate::SessionTableFull,
        Gate::NoMoreBackends,
        Gate::ControlPlaneUnavailable,
        Gate::Ttft,
        Gate::Tps,
        Gate::UnknownModel,
    ];

    /// `429`: capacity exists but is busy. `503`: none exists.
    pub fn http_status(self) -> u16 {
        match self {
            Gate::UnknownRoute => 404,
            Gate::UnknownModel => 400,
            Gate::QueueFull | Gate::QueueTimeout | Gate::SessionTableFull | Gate::Ttft | Gate::Tps => 429,
            Gate::NoBackend | Gate::ContextWindow | Gate::ControlPlaneUnavailable => 503,
            Gate::NoMoreBackends => 502,
        }
    }

    /// Seconds, for each 429 and 503: clients obey it.
    pub fn retry_after_s(self) -> Option<u32> {
        match self {
            Gate::QueueFull
            | Gate::QueueTimeout
            | Gate::SessionTableFull
            | Gate::ControlPlaneUnavailable
            | Gate::Ttft
            | Gate::Tps => Some(1),
            Gate::NoBackend | Gate::ContextWindow => Some(5),
            Gate::UnknownRoute | Gate::NoMoreBackends | Gate::UnknownModel => None,
        }
    }

    /// The error's `code` and the metric label.
    pub fn code(self) -> &'static str {
        match self {
            Gate::UnknownRoute => "unknown_route",
            Gate::NoBackend => "no_backend",
            Gate::ContextWindow => "context_window",
            Gate::QueueFull => "queue_full",
            Gate::QueueTimeout => "queue_timeout",
            Gate::SessionTableFull => "session_table_full",
            Gate::NoMoreBackends => "no_more_backends",
            Gate::ControlPlaneUnavailable => "control_plane_unavailable",
            Gate::Ttft => "ttft",
            Gate::Tps => "tps",
            Gate::UnknownModel => "model_not_supported",
        }
    }

    /// One sentence for the client.
    pub fn detail(self) -> &'static str {
        match self {
            Gate::UnknownRoute => "no route answers this path",
            Gate::NoBackend => "no backend is healthy and admitted; try again later",
            Gate::ContextWindow => "no healthy backend has the context window that x-model-context-window asks for",
            Gate::QueueFull => "all backends are busy and the queue is full; try again",
            Gate::QueueTimeout => "all backends stayed busy for the whole queue timeout; try again",
            Gate::SessionTableFull => "the session table is full; running sessions go on, new ones are refused",
            Gate::NoMoreBackends => "every backend was tried",
            Gate::ControlPlaneUnavailable => "the router can't reach its control plane; try again",
            Gate::Ttft => "ttft limit exceeded: the backends are slow to answer; try again",
            Gate::Tps => "tps limit exceeded: the backends are slow; try again",
            Gate::UnknownModel => "this route has no backend for the model",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// A refusal with the load that it was decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub gate: Gate,
    /// Leases over the candidates.
    pub in_flight: u32,
    /// Their limits together.
    pub limit: u32,
    /// Healthy and admitted backends of the tier that takes requests now.
    pub healthy: u32,
    /// That tier; `None` when there is none.
    pub active: Option<Priority>,
}

impl Refusal {
    /// One that no pool's load has part in.
    pub fn by(gate: Gate) -> Self {
        Self { gate, in_flight: 0, limit: 0, healthy: 0, active: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_429_and_503_carries_retry_after() {
        for gate in Gate::ALL {
            let needs = matches!(gate.http_status(), 429 | 503);
            assert_eq!(gate.retry_after_s().is_some(), needs, "{gate}");
        }
    }

    #[test]
    fn gateway_3_statuses() {
        assert_eq!(Gate::QueueFull.http_status(), 429);
        assert_eq!(Gate::QueueFull.retry_after_s(), Some(1));
        assert_eq!(Gate::QueueTimeout.http_status(), 429);
        assert_eq!(Gate::QueueTimeout.retry_after_s(), Some(1));
        assert_eq!(Gate::NoBackend.http_status(), 503);
    }
}
