//! What operators and probes change: configuration, drains, bans, health, sessions.

use std::sync::Arc;
use std::time::Duration;

use router_policy::health::round::Probe;
use router_policy::ids::{BackendId, Fingerprint};
use router_policy::refusal::{Gate, Refusal};
use router_policy::route::RouteSpec;
use router_policy::tick::Tick;
use router_policy::toggle::Toggles;

use super::Pool;
use super::backend::Ban;
use super::state::State;
use crate::store::{MarkKind, MarkRow};

/// Why a backend is drained; `None` when it is admitted.
pub type DrainReasons<'a> = dyn Fn(&BackendId) -> Option<String> + Sync + 'a;

impl Pool {
    /// Takes a new document for this route.
    pub fn install(&self, spec: Arc<RouteSpec>) {
        self.install_with(spec, None);
    }

    /// Takes a new document for this route. `drains`, where something else keeps the drains, says for each backend why it is
    /// drained: nobody is served by a new backend before that is known.
    pub fn install_with(&self, spec: Arc<RouteSpec>, drains: Option<&DrainReasons<'_>>) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        state.is_closed = false;
        state.install(spec, now, self.context.unix(now));
        state.forget_moves_to_nowhere();
        if let Some(drains) = drains {
            set_drains(&mut state, drains);
            state.refresh_all(now);
        }
        self.mark_dirty();
        self.serve_waiters(&mut state, now);
        self.rearm.notify_one();
        self.after_load_change(&state);
    }

    /// Refuses everyone in the queue, and whoever comes later by an older list of routes: the route is going away. Its
    /// sessions, its flow control, its counts and what is set at run time are forgotten; its leases go on and are counted until they end.
    pub fn close(&self) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        state.is_closed = true;
        state.forget_all_bindings();
        state.pools.forget_flow();
        state.payload.forget();
        state.toggles = Toggles::default();
        state.refresh_toggles(self.context.unix(now));
        for waiter in state.waiters.drain() {
            waiter.caller.refuse(waiter.op, Refusal::by(Gate::UnknownRoute));
        }
        self.metrics.retire();
    }

    /// Takes a backend out of admission, or back in. The caller has made it durable.
    pub fn set_drain(&self, id: &BackendId, is_draining: bool) {
        self.change(id, |backend| {
            backend.set_drain(is_draining.then(String::new));
        });
    }

    /// Makes the drains of all backends those that `drains` gives; which of them have changed.
    pub fn set_drains(&self, drains: &DrainReasons<'_>) -> Vec<BackendId> {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        let changed = set_drains(&mut state, drains);
        if !changed.is_empty() {
            state.refresh_all(now);
            self.mark_dirty();
            self.serve_waiters(&mut state, now);
            self.rearm.notify_one();
            self.after_load_change(&state);
        }
        changed
    }

    /// Whether a backend is drained.
    pub fn is_draining(&self, id: &BackendId) -> bool {
        let state = self.state.lock();
        state.slots.get(id).and_then(|slot| state.backends.get(*slot)).is_some_and(|backend| backend.is_draining)
    }

    /// Bans a backend until a tick (`None`: until unbanned). The caller has made it durable.
    pub fn ban(&self, id: &BackendId, until: Option<Tick>, reason: &str) {
        self.change(id, |backend| backend.ban = Some(Ban { until, reason: reason.to_owned() }));
    }

    /// Ends an operator's ban, and lets a backend that was taken for unhealthy try again.
    pub fn unban(&self, id: &BackendId) {
        self.change(id, |backend| {
            backend.ban = None;
            backend.health = router_policy::health::round::Health::default();
            backend.health_reason.clear();
        });
        self.context.marks.remove(self.name(), id, MarkKind::Unhealthy);
    }

    /// What a restart remembers of a backend's health.
    pub fn restore_unhealthy(&self, id: &BackendId, reason: &str) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        let rules = super::backend::rules(&state.options);
        if let Some(slot) = state.slots.get(id).copied()
            && let Some(backend) = state.backends.get_mut(slot)
        {
            backend.health = router_policy::health::round::Health::down(now, &rules);
            reason.clone_into(&mut backend.health_reason);
        }
        state.refresh_all(now);
        self.mark_dirty();
    }

    /// Takes a probe's result.
    pub fn record_probe(&self, id: &BackendId, probe: Probe, reason: &str) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        if state.record_probe(id, probe, reason, now) {
            self.after_condition_change(&mut state, id, now);
            self.serve_waiters(&mut state, now);
        }
    }

    /// The backends to probe: address, path.
    pub fn probe_targets(&self) -> Vec<(BackendId, String)> {
        let state = self.state.lock();
        let in_use = state.backends.iter().filter(|backend| !backend.is_removed);
        in_use
            .map(|backend| {
                let path = backend.spec.health_path.as_ref().unwrap_or(&state.options.health_probe_path);
                (backend.spec.id.clone(), path.clone())
            })
            .collect()
    }

    /// Time between two probes, and how long one may take.
    pub fn probe_times(&self) -> (Duration, Duration) {
        let state = self.state.lock();
        (state.options.health_check_interval, state.options.health_timeout)
    }

    /// How long an operator's ban lasts that states no time; `None`: until unbanned.
    pub fn default_ban(&self) -> Option<Duration> {
        self.state.lock().options.health_ban_ttl
    }

    /// Ends the bindings that `pick` chooses; how many.
    pub fn forget(&self, pick: impl Fn(Fingerprint, &BackendId) -> bool) -> u64 {
        let mut state = self.state.lock();
        let picked: Vec<Fingerprint> = state
            .bindings
            .iter()
            .filter(|(session, binding)| pick(*session, &binding.backend))
            .map(|(session, _)| session)
            .collect();
        let mut forgotten = 0;
        for session in picked {
            if let Some(binding) = state.bindings.remove(session) {
                self.forgotten(&mut state, session, &binding);
                forgotten += 1;
            }
        }
        forgotten
    }

    /// Ends bindings idle for longer than the route allows: one step of a walk over the table. True when the walk has come
    /// round and may rest.
    pub fn sweep_idle(&self) -> bool {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        let Some(ttl) = state.options.session_idle_ttl else {
            return true;
        };
        let (ended, is_round) = state.bindings.sweep(now, ttl);
        for (session, binding) in ended {
            self.forgotten(&mut state, session, &binding);
        }
        is_round
    }

    fn change(&self, id: &BackendId, change: impl FnOnce(&mut super::backend::Backend)) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        if let Some(slot) = state.slots.get(id).copied()
            && let Some(backend) = state.backends.get_mut(slot)
        {
            change(backend);
        }
        state.refresh_all(now);
        self.mark_dirty();
        self.serve_waiters(&mut state, now);
        self.rearm.notify_one();
        self.after_load_change(&state);
    }

    /// A backend's health has changed: replicas and the database hear of it.
    pub(super) fn after_condition_change(&self, state: &mut State, id: &BackendId, now: Tick) {
        self.mark_dirty();
        self.rearm.notify_one();
        let Some(backend) = state.slots.get(id).and_then(|slot| state.backends.get_mut(*slot)) else {
            return;
        };
        if backend.health.is_healthy(now) {
            tracing::info!(route = %self.name, backend = %id, "backend is healthy again");
            self.context.marks.remove(&self.name, id, MarkKind::Unhealthy);
        } else {
            self.metrics.bans.inc();
            backend.bans_total += 1;
            tracing::info!(route = %self.name, backend = %id, reason = backend.health_reason, "backend is out");
            self.context.marks.put(MarkRow {
                route: self.name.clone(),
                backend: id.clone(),
                kind: MarkKind::Unhealthy,
                until_unix_ms: backend.health.returns_at().map(|at| self.context.clock.unix_ms(at)),
                reason: backend.health_reason.clone(),
            });
        }
    }
}

fn set_drains(state: &mut State, drains: &DrainReasons<'_>) -> Vec<BackendId> {
    let in_use = state.backends.iter_mut().filter(|backend| !backend.is_removed);
    in_use
        .filter_map(|backend| {
            let reason = drains(&backend.spec.id);
            backend.set_drain(reason).then(|| backend.spec.id.clone())
        })
        .collect()
}
