//! Waiting: who enters the queue, who gives way, who is served when a slot comes free.

use std::sync::Arc;

use router_policy::admit::Decision;
use router_policy::refusal::Gate;
use router_policy::tick::Tick;

use super::state::State;
use super::waiters::{Turn, Waiter};
use super::{Asked, Caller, Place, Pool};

/// Waiters that meet the same decision as long as it is that they wait.
#[derive(Debug, PartialEq, Eq)]
struct Alike {
    place: Place,
    rank: usize,
    context_tokens: u64,
    is_reserve: bool,
}

impl Pool {
    /// Lets a request wait, in a full queue in place of the coldest that ranks behind it: later turns come first. Only a full
    /// pool is waited for: one that is slow as well says so at once (rulings §1).
    #[expect(clippy::too_many_arguments, reason = "one decision's parts, as where it is made")]
    pub(super) fn wait(
        &self,
        state: &mut State,
        place: Place,
        op: u64,
        asked: Asked,
        caller: &Arc<Caller>,
        is_full: bool,
        now: Tick,
    ) {
        if let Some(slow) = self.foresee_speed(state, place, &asked, now) {
            self.refuse_slow(state, place, op, &asked, caller, &slow, now);
            return;
        }
        let coldest = if is_full { displaced(state, &asked) } else { None };
        self.enqueue(state, op, asked, caller, now);
        if let Some(coldest) = coldest {
            self.refuse_waiter(state, &coldest, Gate::QueueFull, now);
        }
    }

    /// Puts a request at the end of its rank.
    fn enqueue(&self, state: &mut State, op: u64, asked: Asked, caller: &Arc<Caller>, now: Tick) {
        let queue_timeout = state.options.queue_timeout;
        let deadline = now + queue_timeout.saturating_sub(asked.waited);
        let rank = state.rank(&asked);
        let waiter = Waiter { op, caller: Arc::clone(caller), asked, since: now, deadline };
        if state.waiters.push(rank, waiter) {
            self.rearm.notify_one();
        }
        self.after_load_change(state);
    }

    /// Gives free slots to waiters in order. A waiter that can't use the free slot does not hold up those behind it.
    pub(super) fn serve_waiters(&self, state: &mut State, now: Tick) {
        let unix = self.context.unix(now);
        let mut served: Option<Turn> = None;
        // Pools in which nobody has better luck, and waiters in others who have none.
        let mut full: Vec<Place> = Vec::new();
        let mut held_back: Vec<Alike> = Vec::new();
        while let Some((turn, waiter)) = state.waiters.after(served) {
            served = Some(turn);
            let Some(place) = state.place(&waiter.asked) else {
                if let Some(waiter) = state.waiters.remove(turn) {
                    self.refuse_unknown_model(state, waiter.op, &waiter.asked, &waiter.caller);
                    self.after_load_change(state);
                }
                continue;
            };
            let Asked { context_tokens, is_reserve, .. } = waiter.asked;
            let alike = Alike { place, rank: turn.0, context_tokens, is_reserve };
            // One that has tried a backend is like no other.
            let has_tried = !waiter.asked.tried.is_empty();
            if full.contains(&place) || (!has_tried && held_back.contains(&alike)) {
                continue;
            }
            match state.decide(place, &waiter.asked, true, now, unix) {
                Decision::Wait => {
                    // Usually everything is full, and then nobody further back has better luck.
                    if state.view(place, unix).has_free_slot() {
                        held_back.extend((!has_tried).then_some(alike));
                    } else if state.pools.is_by_model() {
                        full.push(place);
                    } else {
                        return;
                    }
                }
                Decision::Grant(granting) => {
                    if let Some(waiter) = next_served(state, turn, now) {
                        let Waiter { op, caller, asked, .. } = waiter;
                        self.grant_if_fast(state, place, granting, op, &asked, &caller, now);
                        self.after_load_change(state);
                    }
                }
                Decision::Reserve => {
                    if let Some(waiter) = next_served(state, turn, now) {
                        self.grant_reservation(state, waiter.op, &waiter.asked, &waiter.caller);
                    }
                }
                Decision::Refuse(refusal) => {
                    if let Some(waiter) = state.waiters.remove(turn) {
                        self.refuse(state, place, waiter.op, &waiter.asked, &waiter.caller, refusal, now);
                        self.after_load_change(state);
                    }
                }
            }
        }
    }
}

/// Takes the coldest waiter of a request's queue out, if it ranks behind the request.
fn displaced(state: &mut State, asked: &Asked) -> Option<Waiter> {
    let coldest = state.coldest_behind(asked)?;
    state.waiters.remove(coldest)
}

impl State {
    /// Whether a full queue has a place for this request all the same.
    pub(super) fn has_colder_waiter(&self, asked: &Asked) -> bool {
        self.coldest_behind(asked).is_some()
    }

    fn coldest_behind(&self, asked: &Asked) -> Option<Turn> {
        let model = self.pools.is_by_model().then_some(asked.model.as_str());
        self.waiters.last_behind(self.rank(asked), model)
    }
}

/// Takes a waiter out of the queue to be served: its whole wait is known now.
fn next_served(state: &mut State, turn: Turn, now: Tick) -> Option<Waiter> {
    let mut waiter = state.waiters.remove(turn)?;
    waiter.asked.waited += now.since(waiter.since);
    Some(waiter)
}
