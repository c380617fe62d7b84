//! Up and down by counts (gateway.md §5, routing.md §12): probe results in, condition out.

use std::time::Duration;

use crate::tick::Tick;

/// What one probe saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Status 200.
    Good,
    /// Status 429: alive and full. Changes nothing.
    Busy,
    /// Anything else, no answer in time included.
    Failed,
}

impl Probe {
    /// From an HTTP status.
    pub fn from_status(status: u16) -> Self {
        match status {
            200 => Self::Good,
            429 => Self::Busy,
            _ => Self::Failed,
        }
    }
}

/// A route's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Failed probes in a row that take a backend out; at least 1.
    pub failures: u32,
    /// Good probes in a row that bring it back; at least 1.
    pub successes: u32,
    /// An unhealthy backend is tried again after this long; `None`: only probes bring it back.
    pub ban_ttl: Option<Duration>,
}

/// One backend's health. A new backend is healthy until something says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    failures: u32,
    successes: u32,
    down: Option<Down>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Down {
    until: Option<Tick>,
}

impl Health {
    /// Down since before this process started, as the database remembers.
    pub fn down(now: Tick, rules: &Rules) -> Self {
        Self { down: Some(Down { until: rules.ban_ttl.map(|ttl| now + ttl) }), ..Self::default() }
    }

    /// Whether the backend may be chosen at `now`.
    pub fn is_healthy(&self, now: Tick) -> bool {
        match self.down {
            None => true,
            Some(Down { until }) => until.is_some_and(|until| now >= until),
        }
    }

    /// When [`Self::is_healthy`] turns true by time alone.
    pub fn returns_at(&self) -> Option<Tick> {
        self.down.and_then(|down| down.until)
    }

    /// The state after one probe.
    #[must_use]
    pub fn after_probe(self, probe: Probe, now: Tick, rules: &Rules) -> Self {
        match probe {
            Probe::Busy => self,
            Probe::Good => {
                let successes = self.successes.saturating_add(1);
                let is_back = self.down.is_none() || successes >= rules.successes;
                Self { failures: 0, successes, down: if is_back { None } else { self.down } }
            }
            Probe::Failed => {
                let failures = self.failures.saturating_add(1);
                let is_down = self.down.is_some() || failures >= rules.failures;
                let until = rules.ban_ttl.map(|ttl| now + ttl);
                Self { failures, successes: 0, down: is_down.then_some(Down { until }) }
            }
        }
    }

    /// The state after a request could not connect: down at once, until probes bring it back.
    #[must_use]
    pub fn after_connect_failure(self, now: Tick, rules: &Rules) -> Self {
        Self { failures: self.failures.saturating_add(1), successes: 0, ..Self::down(now, rules) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: Rules = Rules { failures: 1, successes: 2, ban_ttl: None };

    #[test]
    fn gateway_5_one_failure_out_two_successes_back() {
        let now = Tick(0);
        let mut health = Health::default();
        assert!(health.is_healthy(now));
        health = health.after_probe(Probe::Failed, now, &GATEWAY);
        assert!(!health.is_healthy(now));
        health = health.after_probe(Probe::Good, now, &GATEWAY);
        assert!(!health.is_healthy(now), "one success is not enough");
        health = health.after_probe(Probe::Failed, now, &GATEWAY);
        health = health.after_probe(Probe::Good, now, &GATEWAY);
        assert!(!health.is_healthy(now), "they must follow each other");
        health = health.after_probe(Probe::Good, now, &GATEWAY);
        assert!(health.is_healthy(now));
        assert!(!Health::default().after_probe(Probe::Failed, now, &GATEWAY).is_healthy(Tick(u64::MAX)));
    }

    #[test]
    fn busy_changes_nothing() {
        let down = Health::default().after_probe(Probe::Failed, Tick(0), &GATEWAY);
        for health in [Health::default(), down] {
            assert_eq!(health.after_probe(Probe::Busy, Tick(9), &GATEWAY), health);
        }
        assert_eq!(Probe::from_status(429), Probe::Busy);
        assert_eq!(Probe::from_status(204), Probe::Failed);
    }

    #[test]
    fn a_ban_ends_by_time_and_each_failure_starts_it_anew() {
        let rules = Rules { failures: 2, successes: 1, ban_ttl: Some(Duration::from_secs(300)) };
        let mut health = Health::default().after_probe(Probe::Failed, Tick(0), &rules);
        assert!(health.is_healthy(Tick(0)), "one of two failures");
        health = health.after_probe(Probe::Failed, Tick(1000), &rules);
        assert!(!health.is_healthy(Tick(300_999)));
        assert!(health.is_healthy(Tick(301_000)));
        health = health.after_probe(Probe::Failed, Tick(200_000), &rules);
        assert!(!health.is_healthy(Tick(499_999)));
        assert_eq!(health.returns_at(), Some(Tick(500_000)));
    }

    #[test]
    fn a_connect_failure_takes_out_at_once() {
        let rules = Rules { failures: 5, successes: 1, ban_ttl: None };
        let health = Health::default().after_connect_failure(Tick(0), &rules);
        assert!(!health.is_healthy(Tick(0)));
        assert!(health.after_probe(Probe::Good, Tick(1), &rules).is_healthy(Tick(1)));
    }
}
