//! One backend's state beside its view: why it is in or out.

use std::time::Duration;

use router_policy::admit::{BackendView, rank};
use router_policy::health::round::{Health, Rules};
use router_policy::option::RouteOptions;
use router_policy::route::BackendSpec;
use router_policy::tick::Tick;

/// How long a backend that failed a request is chosen last.
pub(super) const FAILING_FOR: Duration = Duration::from_secs(5);

/// An operator's ban.
#[derive(Debug, Clone)]
pub(super) struct Ban {
    pub until: Option<Tick>,
    pub reason: String,
}

/// One backend of a pool.
#[derive(Debug, Clone)]
pub(super) struct Backend {
    pub spec: BackendSpec,
    pub health: Health,
    /// Why probes or requests say that it is down; empty when it is up.
    pub health_reason: String,
    pub is_draining: bool,
    /// Why, where there is more to say than that an operator drains it.
    pub drain_reason: String,
    pub ban: Option<Ban>,
    /// Not in the route any more; kept until its last lease ends.
    pub is_removed: bool,
    pub failing_until: Tick,
    pub granted_total: u64,
    pub failures_total: u64,
    /// How often it was taken out for failures.
    pub bans_total: u64,
    /// Requests that went on to another backend, for this one had failed them.
    pub retries_total: u64,
    /// Sessions by data-parallel rank; as long as the highest rank in use asks for.
    pub bound_by_rank: Vec<u64>,
}

impl Backend {
    pub(super) fn new(spec: BackendSpec) -> Self {
        Self {
            spec,
            health: Health::default(),
            health_reason: String::new(),
            is_draining: false,
            drain_reason: String::new(),
            ban: None,
            is_removed: false,
            failing_until: Tick(0),
            granted_total: 0,
            failures_total: 0,
            bans_total: 0,
            retries_total: 0,
            bound_by_rank: Vec::new(),
        }
    }

    pub(super) fn is_banned(&self, now: Tick) -> bool {
        self.ban.as_ref().is_some_and(|ban| ban.until.is_none_or(|until| now < until))
    }

    pub(super) fn is_admitted(&self, now: Tick) -> bool {
        !self.is_removed && !self.is_draining && !self.is_banned(now) && self.health.is_healthy(now)
    }

    /// Takes it out of admission for a reason, or in; whether that changes anything.
    pub(super) fn set_drain(&mut self, reason: Option<String>) -> bool {
        let is_draining = reason.is_some();
        let reason = reason.unwrap_or_default();
        let has_changed = self.is_draining != is_draining || self.drain_reason != reason;
        self.is_draining = is_draining;
        self.drain_reason = reason;
        has_changed
    }

    /// Brings the view's conditions up to date; true when admission has changed.
    pub(super) fn refresh(&self, view: &mut BackendView, now: Tick) -> bool {
        let is_admitted = self.is_admitted(now);
        let has_changed = view.is_admitted != is_admitted;
        view.is_admitted = is_admitted;
        view.is_failing = now < self.failing_until;
        has_changed
    }

    /// When [`Self::refresh`] may give another result by time alone.
    pub(super) fn next_change(&self, now: Tick) -> Option<Tick> {
        let ban = self.ban.as_ref().and_then(|ban| ban.until);
        let failing = Some(self.failing_until);
        [ban, failing, self.health.returns_at()].into_iter().flatten().filter(|at| *at > now).min()
    }

    /// The rank for a session that has `current`, or none yet: kept as long as it exists (gateway.md §8). `None` when the
    /// router chooses no ranks here.
    pub(super) fn rank_for(&self, current: Option<u32>, options: &RouteOptions) -> Option<u32> {
        let size = self.spec.ranks(options)?;
        let kept = current.filter(|own| rank::is_valid(*own, size));
        Some(kept.unwrap_or_else(|| {
            let used = |one: u32| self.bound_by_rank.get(one as usize).copied().unwrap_or(0);
            rank::least_used(size, used)
        }))
    }

    /// Counts a session on or off a rank.
    pub(super) fn count_rank(&mut self, rank: u32, is_on: bool) {
        let index = rank as usize;
        if is_on && index >= self.bound_by_rank.len() {
            self.bound_by_rank.resize(index + 1, 0);
        }
        if let Some(count) = self.bound_by_rank.get_mut(index) {
            *count = if is_on { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
    }

    pub(super) fn limit(&self, options: &RouteOptions) -> u32 {
        self.spec.max_concurrency.unwrap_or(options.max_concurrency)
    }
}

/// A route's health rules.
pub(super) fn rules(options: &RouteOptions) -> Rules {
    Rules { failures: options.health_failures, successes: options.health_successes, ban_ttl: options.health_ban_ttl }
}
