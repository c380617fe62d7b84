//! What requests and probes say of a backend.

use router_policy::admit::Slot;
use router_policy::health::round::Probe;
use router_policy::ids::BackendId;
use router_policy::option::PassiveBan;
use router_policy::tick::Tick;

use super::State;
use crate::pool::backend::{FAILING_FOR, rules};

impl State {
    /// Notes a failed request. True when the backend was taken out for it: for a connect error, unless it is the last
    /// usable one of a pool.
    pub(in crate::pool) fn record_failure(&mut self, id: &BackendId, is_connect: bool, now: Tick) -> bool {
        let Some(slot) = self.slots.get(id).copied() else {
            return false;
        };
        let rules = rules(&self.options);
        let may_ban = is_connect && self.options.passive_ban == PassiveBan::Connect && !self.is_last_of_a_pool(slot);
        let Some(backend) = self.backends.get_mut(slot) else {
            return false;
        };
        backend.failures_total += 1;
        backend.failing_until = now + FAILING_FOR;
        let bans = may_ban && backend.health.is_healthy(now);
        if bans {
            backend.health = backend.health.after_connect_failure(now, &rules);
            "a request could not connect".clone_into(&mut backend.health_reason);
        }
        self.refresh_all(now);
        bans
    }

    /// Takes a probe's result; true when the backend's health has changed.
    pub(in crate::pool) fn record_probe(&mut self, id: &BackendId, probe: Probe, reason: &str, now: Tick) -> bool {
        let rules = rules(&self.options);
        let Some(backend) = self.slots.get(id).and_then(|slot| self.backends.get_mut(*slot)) else {
            return false;
        };
        let was_healthy = backend.health.is_healthy(now);
        backend.health = backend.health.after_probe(probe, now, &rules);
        let is_healthy = backend.health.is_healthy(now);
        if is_healthy {
            backend.health_reason.clear();
        } else {
            reason.clone_into(&mut backend.health_reason);
        }
        self.refresh_all(now);
        was_healthy != is_healthy
    }

    /// Whether some pool would have nobody left without this backend.
    fn is_last_of_a_pool(&self, slot: Slot) -> bool {
        let is_up = |other: &Slot| *other != slot && self.views.get(*other).is_some_and(|view| view.is_admitted);
        self.pools.list.iter().any(|pool| pool.members.contains(&slot) && !pool.members.iter().any(is_up))
    }
}
