//! The pool's flow control: what requests and answers tell it, what time does to it, and what is stored of it.

use std::time::Duration;

use router_policy::admit::{BackendView, Slot};
use router_policy::flow::{AnswerTimes, Bucket, Flow, LatencyRefusal, UnixMs};
use router_policy::ids::LeaseId;
use router_policy::tick::Tick;
use router_policy::toggle::{ToggleKey, Toggles};

use super::lease::Ended;
use super::model_pool::NO_POOL;
use super::state::State;
use super::{Asked, Caller, Place, Pool};
use crate::store::FlowRow;

const MINUTE: Duration = Duration::from_secs(60);

/// What a replica tells of an answer that has ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered {
    /// The backend has failed.
    pub has_failed: bool,
    /// HTTP status; 0 for none.
    pub status: u16,
    /// From the request's head to the first body byte, queue time left out.
    pub ttft: Option<Duration>,
    /// From there to the last.
    pub decode: Duration,
    /// Output tokens.
    pub tokens: Option<u32>,
    /// Prompt tokens, and those of them that were cached.
    pub prompt: Option<(u32, u32)>,
}

impl Pool {
    /// A streamed answer has begun.
    pub fn first_chunk(&self, lease: LeaseId, caller: &Caller, ttft: Duration) {
        let unix = self.context.unix(self.context.clock.now());
        let mut state = self.state.lock();
        let held = state.leases.get_mut(&lease).filter(|held| held.replica == caller.replica && !held.is_stream);
        let Some(held) = held else { return };
        held.is_stream = true;
        let place = held.pool;
        if let Some(pool) = state.pools.list.get_mut(place) {
            pool.flow.record_ttft(unix, &pool.options, ttft.as_secs_f64() * 1000.0);
            pool.is_dirty = true;
        }
    }

    /// Makes everything that is set at run time what `toggles` says. The caller has made it durable.
    pub fn set_toggles(&self, toggles: Toggles) {
        let now = self.context.clock.now();
        let mut state = self.state.lock();
        state.toggles = toggles;
        self.use_toggles(&mut state, now);
        self.serve_waiters(&mut state, now);
    }

    /// What is set at run time.
    pub fn toggles(&self) -> Toggles {
        self.state.lock().toggles.clone()
    }

    fn use_toggles(&self, state: &mut State, now: Tick) {
        state.refresh_toggles(self.context.unix(now));
        self.mark_dirty();
        self.rearm.notify_one();
        self.after_load_change(state);
    }

    /// Takes up what the database holds of a pool, at start. What can't be read is left out: it is made anew by traffic.
    pub fn restore_flow(&self, row: &FlowRow) {
        let mut state = self.state.lock();
        let wanted = (!row.model.is_empty()).then_some(row.model.as_str());
        let Some(pool) = state.pools.list.iter_mut().find(|pool| pool.model.as_deref() == wanted) else { return };
        match serde_json::from_str(&row.state) {
            Ok(flow) => {
                pool.flow = flow;
                pool.is_dirty = false;
                self.rearm.notify_one();
            }
            Err(error) => {
                tracing::warn!(route = %self.name, %error, "a pool's stored flow control can't be read; it starts anew");
            }
        }
    }

    /// The pools whose flow control has changed since the last call, for the database.
    pub fn take_flow_rows(&self) -> Vec<FlowRow> {
        let unix = self.context.unix(self.context.clock.now());
        // Printed outside of the lock: with very many models that takes a while.
        let changed: Vec<(String, Flow)> = {
            let mut state = self.state.lock();
            if state.is_closed {
                return Vec::new();
            }
            let changed = state.pools.list.iter_mut().filter_map(|pool| {
                std::mem::take(&mut pool.is_dirty).then(|| (pool.name().to_owned(), pool.flow.clone()))
            });
            changed.collect()
        };
        let row = |(model, flow): (String, Flow)| {
            let state = serde_json::to_string(&flow).ok()?;
            Some(FlowRow { route: self.name.clone(), model, state, updated_unix_ms: unix.0 })
        };
        changed.into_iter().filter_map(row).collect()
    }

    /// The rows could not be stored: they are given again.
    pub fn flow_not_stored(&self) {
        for pool in &mut self.state.lock().pools.list {
            pool.is_dirty = true;
        }
    }

    /// A request is judged: the adaptive limit wants to know how many it competes with.
    pub(super) fn note_judged(&self, state: &mut State, place: Place, asked: &Asked, now: Tick) {
        let Some(pool) = state.pool(place) else { return };
        if pool.options.active_adaptive().is_none() || is_judged_before(state, asked) {
            return;
        }
        let unix = self.context.unix(now);
        let competing = state.competing(place, asked, unix);
        if let Some(pool) = state.pool_mut(place) {
            let was_armed = pool.flow.next_step(&pool.options).is_some();
            pool.flow.judged(unix, &pool.options, competing);
            pool.is_dirty = true;
            if !was_armed && pool.flow.next_step(&pool.options).is_some() {
                self.rearm.notify_one();
            }
        }
    }

    /// A request found its pool, or its share of it, full.
    pub(super) fn note_over(&self, state: &mut State, place: Place, asked: &Asked, now: Tick) {
        if is_judged_before(state, asked) {
            return;
        }
        let unix = self.context.unix(now);
        if let Some(pool) = state.pool_mut(place) {
            let bucket = pool.bucket(asked);
            pool.flow.over(unix, &pool.options, bucket);
            pool.is_dirty = true;
        }
    }

    /// Whether those gates would refuse a request that has to wait. It takes nothing: they are asked again when it is served.
    pub(super) fn foresee_speed(
        &self,
        state: &State,
        place: Place,
        asked: &Asked,
        now: Tick,
    ) -> Option<LatencyRefusal> {
        let pool = state.pool(place).filter(|_| asked.tried.is_empty() && !asked.is_reserve)?;
        pool.flow.peek(self.context.unix(now), &pool.options, pool.bucket(asked)).refusal
    }

    /// Asks the gates that judge the pool by its speed. A request that only changes its backend was judged before.
    pub(super) fn judge_speed(
        &self,
        state: &mut State,
        place: Place,
        asked: &Asked,
        now: Tick,
    ) -> Option<LatencyRefusal> {
        if !asked.tried.is_empty() {
            return None;
        }
        let unix = self.context.unix(now);
        let pool = state.pool_mut(place)?;
        let bucket = pool.bucket(asked);
        let verdict = pool.flow.judge(unix, &pool.options, bucket);
        pool.is_dirty |= verdict.would_trip_ttft || verdict.would_trip_tps;
        verdict.refusal
    }

    /// An answer has ended.
    pub(super) fn record_answer(&self, state: &mut State, ended: &Ended, answered: &Answered, now: Tick) {
        let unix = self.context.unix(now);
        let Some(pool) = state.pools.list.get_mut(ended.lease.pool) else { return };
        if !(200..300).contains(&answered.status) {
            return;
        }
        let Some(ttft) = answered.ttft else { return };
        // The first byte of an answer that is no stream comes with its last: nothing of its time is decoding alone.
        let times = AnswerTimes {
            tokens: answered.tokens,
            total: ttft + answered.decode,
            ttft: if ended.lease.is_stream { ttft } else { Duration::ZERO },
        };
        pool.flow.record_answer(unix, &pool.options, &times);
        if let Some((prompt, cached)) = answered.prompt.filter(|_| pool.options.tps_on) {
            pool.flow.counted_tokens(ended.lease.bucket, prompt, cached);
        }
        pool.is_dirty = true;
    }

    /// What time does: steps of adaptive limits, samples of averages, toggles that undo themselves. When it must run again.
    pub(super) fn run_flow(&self, state: &mut State, now: Tick) -> Option<Tick> {
        let unix = self.context.unix(now);
        if state.toggles.next_expiry().is_some_and(|at| at <= unix) {
            let over: Vec<&str> = state.toggles.expire(unix).iter().map(ToggleKey::name).collect();
            tracing::info!(route = %self.name, toggles = over.join(", "), "set for a time that is over");
            self.use_toggles(state, now);
        }
        let mut next = state.toggles.next_expiry();
        for pool in &mut state.pools.list {
            if pool.flow.step(unix, &pool.options, pool.static_max) {
                pool.is_dirty = true;
            }
            let interval = pool.options.cluster_avg_interval;
            if pool.sampled_in != Some(unix.window(interval)) {
                // The first sample comes after one interval (limits.md §12.5).
                if pool.sampled_in.replace(unix.window(interval)).is_some() {
                    let in_flight = in_flight(&pool.members, &state.views);
                    pool.flow.record_in_flight(unix, &pool.options, in_flight);
                    pool.is_dirty = true;
                }
            }
            if let Some(prio) = &pool.options.prio
                && let Some(share) = pool.flow.take_warning(unix, prio)
            {
                let percent = (share * 100.0).round();
                tracing::warn!(route = %self.name, model = pool.name(), percent, "requests that state no session turn");
            }
            let step = pool.flow.next_step(&pool.options);
            // Shares of requests without a turn are those of a minute.
            let minute = pool.options.prio.as_ref().map(|_| next_window(unix, MINUTE));
            let sample = next_window(unix, interval);
            next = [next, step, minute, Some(sample)].into_iter().flatten().min();
        }
        // What was due is done; a step that waits for traffic comes with the next tick of its interval.
        next.map(|at| self.context.clock.tick(at.0.max(unix.0.saturating_add(1))))
    }
}

/// A request gets a backend. Its pool's place and its turn's step, for its lease.
pub(super) fn note_admitted(state: &mut State, place: Place, asked: &Asked) -> (usize, Option<Bucket>) {
    let Some(pool) = state.pool_mut(place) else { return (NO_POOL, None) };
    let bucket = pool.bucket(asked);
    if asked.tried.is_empty() {
        pool.flow.admitted(bucket);
        pool.is_dirty |= bucket.is_some();
    }
    match place {
        Place::Pool(at) => (at, bucket),
        Place::Everybody => (NO_POOL, bucket),
    }
}

/// Whether the gates have counted this request already: it changes its backend, or took its slot before its body was in.
fn is_judged_before(state: &State, asked: &Asked) -> bool {
    // With a pool per model, nothing was known of its pool then.
    !asked.tried.is_empty() || (asked.reservation.is_some() && !state.pools.is_by_model())
}

/// Leases on a pool's backends, whatever their state.
fn in_flight(members: &[Slot], views: &[BackendView]) -> u32 {
    let members = members.iter().filter_map(|slot| views.get(*slot));
    members.fold(0, |sum, view| sum.saturating_add(view.in_flight))
}

fn next_window(now: UnixMs, length: Duration) -> UnixMs {
    let length = u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1);
    UnixMs((now.0 / length).saturating_add(1).saturating_mul(length))
}
