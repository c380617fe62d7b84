//! The run: clients, router and engines, event by event.

use std::time::Duration;

use router_policy::admit::Slot;
use router_policy::flow::AnswerTimes;
use router_policy::refusal::Gate;

use super::engine::{ENGINE, Engine, Job, Progress};
use super::events::Events;
use super::router::{Answer, Router};
use super::setting::Setting;
use super::tally::{Answered, Tally};
use super::workload::{TurnPlan, Workload};
use super::{SECOND, Session, Us};

/// Backends of the fleet.
pub const BACKENDS: usize = 20;

/// How often a client asks for one turn before it gives the session up: once, and three times more.
pub const MAX_ATTEMPTS: u64 = 4;

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A client sends its turn, for the first time or again.
    Ask(Session),
    /// Something happens in an engine, if nothing has happened in it since this was planned.
    Engine(Slot, u64),
    /// The router has something to do.
    Tick,
}

/// A client, in the middle of its session.
#[derive(Debug, Clone, Copy, Default)]
struct Client {
    /// From 0.
    turn: usize,
    /// Of this turn.
    attempts: u64,
    /// The conversation before this turn.
    context_tokens: u64,
    /// Tokens that were answered in the whole session.
    answered_tokens: u64,
    asked: Us,
    granted: Us,
    first_token: Us,
    cached_tokens: u64,
    slot: Slot,
}

/// One setting's run.
struct World<'a> {
    workload: &'a Workload,
    router: Router,
    engines: Vec<(Engine, u64)>,
    clients: Vec<Client>,
    events: Events<Event>,
    next_tick: Option<Us>,
    /// Sessions that have not ended.
    open: usize,
    tally: Tally,
}

/// Runs a workload under a setting until its last session has ended.
pub fn run(workload: &Workload, setting: &Setting) -> Tally {
    let sessions = workload.sessions.len();
    let mut world = World {
        workload,
        router: Router::new(setting.options.clone(), BACKENDS, sessions),
        engines: (0..BACKENDS).map(|_| (Engine::new(ENGINE), 0)).collect(),
        clients: vec![Client::default(); sessions],
        events: Events::default(),
        next_tick: None,
        open: sessions,
        tally: Tally::new(setting.name, workload.length, workload.overload()),
    };
    for (session, plan) in workload.sessions.iter().enumerate() {
        world.events.plan(plan.arrives, Event::Ask(session));
    }
    while world.open > 0
        && let Some((now, event)) = world.events.take()
    {
        world.happen(now, event);
    }
    world.tally
}

impl World<'_> {
    fn happen(&mut self, now: Us, event: Event) {
        self.tally.passes(now, &self.router.load(now));
        match event {
            Event::Ask(session) => self.ask(now, session),
            Event::Engine(slot, version) => {
                if self.engines.get(slot).is_some_and(|(_, current)| *current == version) {
                    self.settle(now, slot);
                }
            }
            Event::Tick => {
                if self.next_tick.is_some_and(|at| at <= now) {
                    self.next_tick = None;
                    let told = self.router.tick(now);
                    self.tell(now, told);
                }
            }
        }
        self.arm(now);
        self.check(now);
    }

    fn turn(&self, session: Session) -> Option<(Client, TurnPlan)> {
        let client = self.clients.get(session)?;
        let plan = self.workload.sessions.get(session)?.turns.get(client.turn)?;
        Some((*client, *plan))
    }

    fn ask(&mut self, now: Us, session: Session) {
        let Some(client) = self.clients.get_mut(session) else { return };
        client.asked = now;
        client.attempts += 1;
        let turn = number_of(client.turn);
        self.tally.asked();
        let answer = self.router.acquire(now, session, turn);
        self.tell(now, vec![(session, answer)]);
    }

    fn tell(&mut self, now: Us, told: Vec<(Session, Answer)>) {
        for (session, answer) in told {
            match answer {
                Answer::Granted(slot) => self.start(now, session, slot),
                Answer::Refused(gate) => self.refused(now, session, gate),
                Answer::Waits => {}
            }
        }
    }

    fn start(&mut self, now: Us, session: Session, slot: Slot) {
        let Some((client, plan)) = self.turn(session) else { return };
        if let Some(client) = self.clients.get_mut(session) {
            client.granted = now;
            client.slot = slot;
        }
        let prompt_tokens = client.context_tokens + plan.new_tokens;
        if let Some((engine, _)) = self.engines.get_mut(slot) {
            // What was due until now has happened before.
            engine.submit(now, Job { session, prompt_tokens, answer_tokens: plan.answer_tokens });
        }
        self.plan_engine(slot);
    }

    fn refused(&mut self, now: Us, session: Session, gate: Gate) {
        let Some(client) = self.clients.get(session).copied() else { return };
        self.tally.refused(gate, number_of(client.turn));
        if client.attempts >= MAX_ATTEMPTS {
            self.open -= 1;
            self.tally.gave_up(number_of(client.turn), client.answered_tokens);
            return;
        }
        let jitter = self.workload.jitter(wide(session), wide(client.turn), client.attempts);
        let after = Us::from(gate.retry_after_s().unwrap_or(1)) * SECOND;
        self.events.plan(now + after + jitter, Event::Ask(session));
    }

    fn settle(&mut self, now: Us, slot: Slot) {
        let Some((engine, _)) = self.engines.get_mut(slot) else { return };
        for progress in engine.settle(now) {
            match progress {
                Progress::FirstToken { session, cached_tokens } => {
                    let Some(client) = self.clients.get_mut(session) else { continue };
                    client.first_token = now;
                    client.cached_tokens = cached_tokens;
                    self.router.first_chunk(now, now - client.granted);
                }
                Progress::Done { session } => self.answered(now, session),
            }
        }
        self.plan_engine(slot);
    }

    fn answered(&mut self, now: Us, session: Session) {
        let Some((client, plan)) = self.turn(session) else { return };
        let prompt_tokens = client.context_tokens + plan.new_tokens;
        self.tally.answered(&Answered {
            now,
            turn: number_of(client.turn),
            ttft: client.first_token - client.asked,
            total: now - client.asked,
            answer_tokens: plan.answer_tokens,
            prompt_tokens,
            cached_tokens: client.cached_tokens,
        });
        let times = AnswerTimes {
            tokens: u32::try_from(plan.answer_tokens).ok(),
            total: Duration::from_micros(now - client.granted),
            ttft: Duration::from_micros(client.first_token - client.granted),
        };
        let told = self.router.release(now, client.slot, &times);
        if let Some(client) = self.clients.get_mut(session) {
            client.turn += 1;
            client.attempts = 0;
            client.context_tokens = prompt_tokens + plan.answer_tokens;
            client.answered_tokens += plan.answer_tokens;
            if self.workload.sessions.get(session).is_some_and(|plan| client.turn < plan.turns.len()) {
                self.events.plan(now + plan.think, Event::Ask(session));
            } else {
                self.open -= 1;
                self.tally.completed(now, number_of(client.turn) - 1, client.answered_tokens);
            }
        }
        self.tell(now, told);
    }

    /// The engine's earlier plans are void.
    fn plan_engine(&mut self, slot: Slot) {
        let Some((engine, version)) = self.engines.get_mut(slot) else { return };
        *version += 1;
        if let Some(at) = engine.next() {
            self.events.plan(at, Event::Engine(slot, *version));
        }
    }

    /// Plans the router's next tick, unless one is planned that is as early.
    fn arm(&mut self, now: Us) {
        let Some(at) = self.router.next_tick().map(|at| at.max(now + 1)) else { return };
        if self.next_tick.is_none_or(|planned| at < planned) {
            self.next_tick = Some(at);
            self.events.plan(at, Event::Tick);
        }
    }

    /// The router's count of each backend is what the engine really has.
    fn check(&mut self, now: Us) {
        let is_same =
            |(slot, (engine, _)): (Slot, &(Engine, u64))| wide(engine.len()) == u64::from(self.router.held_by(slot));
        let is_sound = self.router.load(now).is_within_limits && self.engines.iter().enumerate().all(is_same);
        self.tally.checked(is_sound);
    }
}

/// A turn's number as the router counts, from 1.
fn number_of(turn: usize) -> u32 {
    u32::try_from(turn).unwrap_or(u32::MAX).saturating_add(1)
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
