//! The pool of a route: the real decisions, applied in the order in which the control plane's pool applies them: decide, then
//! wait, or judge by speed and grant; a slot that comes free goes to the waiters in order.

use router_policy::admit::{self, Ask, BackendView, Binding, Decision, Grant, PoolView, Preference, Slot};
use router_policy::flow::{AnswerTimes, Bucket, Flow, FlowOptions, LatencyGate, UnixMs};
use router_policy::option::{Affinity, RouteOptions};
use router_policy::refusal::Gate;
use router_policy::route::Priority;
use router_policy::toggle::Toggles;

use super::random::Random;
use super::waiters::{Place, Waiter, Waiters};
use super::{Session, Us};

/// The simulation begins at this moment; a whole number of every window.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It has a slot of this backend.
    Granted(Slot),
    /// It was refused.
    Refused(Gate),
    /// It is in the queue.
    Waits,
}

/// The pool.
#[derive(Debug)]
pub struct Router {
    options: RouteOptions,
    flow_options: FlowOptions,
    flow: Flow,
    backends: Vec<BackendView>,
    members: Vec<Slot>,
    static_max: u32,
    bindings: Vec<Option<Slot>>,
    waiters: Waiters,
    granted: u64,
}

/// What a route's page would show.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Leases over all backends.
    pub in_flight: u32,
    /// How many the pool may hold.
    pub limit: f64,
    /// Whether no backend holds more than its own limit.
    pub is_within_limits: bool,
}

impl Router {
    /// One with idle backends, all of one kind.
    pub fn new(options: RouteOptions, backends: usize, sessions: usize) -> Self {
        let flow_options = options.flow.of_pool(None, &Toggles::default(), unix(0));
        let backend = BackendView {
            limit: options.max_concurrency,
            in_flight: 0,
            bound: 0,
            is_admitted: true,
            is_failing: false,
            context_limit: None,
            priority: Priority::default(),
        };
        let static_max = options.max_concurrency.saturating_mul(u32::try_from(backends).unwrap_or(u32::MAX));
        Self {
            options,
            flow_options,
            flow: Flow::default(),
            backends: vec![backend; backends],
            members: (0..backends).collect(),
            static_max,
            bindings: vec![None; sessions],
            waiters: Waiters::default(),
            granted: 0,
        }
    }

    /// Asks for a slot. What becomes of the request, and of the waiter whose place it takes.
    pub fn acquire(&mut self, now: Us, session: Session, turn: u32) -> Vec<(Session, Answer)> {
        self.flow.judged(unix(now), &self.flow_options, self.in_flight());
        let bucket = self.bucket(turn);
        match self.decide(now, session, turn, false) {
            Decision::Grant(grant) => vec![(session, self.grant_if_fast(now, session, turn, grant))],
            Decision::Wait => {
                self.flow.over(unix(now), &self.flow_options, bucket);
                self.wait(now, session, turn, None)
            }
            Decision::Refuse(refusal) if refusal.gate == Gate::QueueFull => {
                self.flow.over(unix(now), &self.flow_options, bucket);
                let Some(coldest) = self.waiters.last_behind(self.rank(turn)) else {
                    self.flow.refused(bucket);
                    return vec![(session, Answer::Refused(refusal.gate))];
                };
                self.wait(now, session, turn, Some(coldest))
            }
            Decision::Refuse(refusal) => {
                self.flow.refused(bucket);
                vec![(session, Answer::Refused(refusal.gate))]
            }
            Decision::Reserve => vec![(session, Answer::Refused(Gate::ControlPlaneUnavailable))],
        }
    }

    /// Lets a request wait, perhaps in the place of another; but not for a pool that is slow as well.
    fn wait(&mut self, now: Us, session: Session, turn: u32, takes: Option<Place>) -> Vec<(Session, Answer)> {
        let bucket = self.bucket(turn);
        if let Some(slow) = self.flow.peek(unix(now), &self.flow_options, bucket).refusal {
            self.flow.refused(bucket);
            return vec![(session, Answer::Refused(gate_of(slow.gate)))];
        }
        let coldest = takes.and_then(|place| self.waiters.remove(place));
        let mut told = vec![(session, self.enqueue(now, session, turn))];
        if let Some(coldest) = coldest {
            self.flow.refused(self.bucket(coldest.turn));
            told.push((coldest.session, Answer::Refused(Gate::QueueFull)));
        }
        told
    }

    fn enqueue(&mut self, now: Us, session: Session, turn: u32) -> Answer {
        let rank = self.rank(turn);
        self.waiters.push(rank, Waiter { session, turn, deadline: now + micros(self.options.queue_timeout) });
        Answer::Waits
    }

    /// The first chunk of an answer came this long after the grant.
    pub fn first_chunk(&mut self, now: Us, ttft: Us) {
        self.flow.record_ttft(unix(now), &self.flow_options, milliseconds(ttft));
    }

    /// An answer has ended; its slot is free. What becomes of waiters.
    pub fn release(&mut self, now: Us, slot: Slot, answer: &AnswerTimes) -> Vec<(Session, Answer)> {
        if let Some(backend) = self.backends.get_mut(slot) {
            backend.in_flight = backend.in_flight.saturating_sub(1);
        }
        self.flow.record_answer(unix(now), &self.flow_options, answer);
        self.serve_waiters(now)
    }

    /// What time does: a step of the adaptive limit, the end of waiting. What becomes of waiters.
    pub fn tick(&mut self, now: Us) -> Vec<(Session, Answer)> {
        self.flow.step(unix(now), &self.flow_options, self.static_max);
        let mut told = self.serve_waiters(now);
        while let Some(late) = self.waiters.pop_expired(now) {
            self.flow.refused(self.bucket(late.turn));
            told.push((late.session, Answer::Refused(Gate::QueueTimeout)));
        }
        told
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_tick(&self) -> Option<Us> {
        let step = self.flow.next_step(&self.flow_options).map(|step| step.0.saturating_sub(EPOCH_MS) * 1000);
        [step, self.waiters.next_deadline()].into_iter().flatten().min()
    }

    /// Its load now.
    pub fn load(&self, now: Us) -> Load {
        Load {
            in_flight: self.in_flight(),
            limit: self.flow.limit(unix(now), &self.flow_options, self.static_max, self.static_max),
            is_within_limits: self.backends.iter().all(|backend| backend.in_flight <= backend.limit),
        }
    }

    /// Leases of one backend.
    pub fn held_by(&self, slot: Slot) -> u32 {
        self.backends.get(slot).map_or(0, |backend| backend.in_flight)
    }

    fn serve_waiters(&mut self, now: Us) -> Vec<(Session, Answer)> {
        let mut told = Vec::new();
        let mut served = None;
        while let Some((place, waiter)) = self.waiters.after(served) {
            served = Some(place);
            let Waiter { session, turn, .. } = waiter;
            let answer = match self.decide(now, session, turn, true) {
                Decision::Wait if !self.view(now).has_free_slot() => return told,
                Decision::Wait => continue,
                Decision::Grant(grant) => self.grant_if_fast(now, session, turn, grant),
                Decision::Refuse(refusal) => {
                    self.flow.refused(self.bucket(turn));
                    Answer::Refused(refusal.gate)
                }
                Decision::Reserve => Answer::Refused(Gate::ControlPlaneUnavailable),
            };
            self.waiters.remove(place);
            told.push((session, answer));
        }
        told
    }

    fn grant_if_fast(&mut self, now: Us, session: Session, turn: u32, grant: Grant) -> Answer {
        let bucket = self.bucket(turn);
        if grant.is_over {
            self.flow.over(unix(now), &self.flow_options, bucket);
        }
        if let Some(slow) = self.flow.judge(unix(now), &self.flow_options, bucket).refusal {
            self.flow.refused(bucket);
            return Answer::Refused(gate_of(slow.gate));
        }
        self.flow.admitted(bucket);
        self.granted += 1;
        let bound = self.bindings.get(session).copied().flatten();
        let is_new_home = matches!(grant.binding, Binding::Made | Binding::Moved);
        if let Some(old) = bound.filter(|_| is_new_home).and_then(|old| self.backends.get_mut(old)) {
            old.bound = old.bound.saturating_sub(1);
        }
        if let Some(backend) = self.backends.get_mut(grant.slot) {
            backend.in_flight += 1;
            backend.bound += u64::from(is_new_home);
        }
        if let Some(binding) = self.bindings.get_mut(session).filter(|_| is_new_home) {
            *binding = Some(grant.slot);
        }
        Answer::Granted(grant.slot)
    }

    fn decide(&self, now: Us, session: Session, turn: u32, is_queued: bool) -> Decision {
        let bound = self.bindings.get(session).copied().flatten();
        let key = u64::try_from(session).unwrap_or(u64::MAX);
        let (preference, spread) = match self.options.affinity {
            Affinity::Binding => (Preference::Session { bound }, Random::new(key).bits()),
            _ => (Preference::None, self.granted),
        };
        let share = self.bucket(turn).zip(self.flow_options.prio.as_ref());
        let share = share.map_or(1.0, |(bucket, prio)| prio.table.share(bucket));
        admit::decide(&self.view(now), &Ask { preference, is_queued, share, spread, ..Ask::default() })
    }

    fn view(&self, now: Us) -> PoolView<'_> {
        let adaptive = self.flow_options.active_adaptive();
        PoolView {
            backends: &self.backends,
            members: &self.members,
            waiting: self.waiters.len(),
            max_waiting: usize::try_from(self.options.max_waiting).unwrap_or(usize::MAX),
            binds_sessions: self.options.affinity == Affinity::Binding,
            sessions_full: false,
            on_full: self.options.on_full,
            claims: &[],
            is_by_model: false,
            crosses_tiers: self.options.cross_tier_fallback,
            adaptive: adaptive.map(|_| self.flow.limit(unix(now), &self.flow_options, u32::MAX, self.static_max)),
            factor: self.flow_options.rt_limit_factor,
            is_enforced: self.flow_options.is_enforced,
        }
    }

    fn bucket(&self, turn: u32) -> Option<Bucket> {
        self.flow_options.prio.as_ref().map(|prio| prio.table.bucket_of(Some(turn)))
    }

    /// The warmest is served first; without priority all are alike.
    fn rank(&self, turn: u32) -> usize {
        let prio = self.flow_options.prio.as_ref();
        prio.map_or(0, |prio| {
            prio.table.rows().len().saturating_sub(1).saturating_sub(prio.table.bucket_of(Some(turn)).index)
        })
    }

    fn in_flight(&self) -> u32 {
        self.backends.iter().map(|backend| backend.in_flight).sum()
    }
}

fn unix(now: Us) -> UnixMs {
    UnixMs(EPOCH_MS + now / 1000)
}

fn micros(span: std::time::Duration) -> Us {
    Us::try_from(span.as_micros()).unwrap_or(Us::MAX)
}

fn milliseconds(span: Us) -> f64 {
    f64::from(u32::try_from(span).unwrap_or(u32::MAX)) / 1000.0
}

fn gate_of(gate: LatencyGate) -> Gate {
    match gate {
        LatencyGate::Ttft => Gate::Ttft,
        LatencyGate::Tps => Gate::Tps,
    }
}
