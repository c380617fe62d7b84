//! Random runs against what must be true from outside: no interleaving exceeds a limit, loses a waiter or splits a session,
//! whatever tiers, models, turns and switches the route has.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use router_policy::health::round::Probe;
use router_policy::toggle::{Toggle, ToggleKey, Toggles};

use outside::{Model, Wanted};

use super::*;

mod outside;

/// Fewer than sessions: the table gets full.
const MAX_SESSIONS: usize = 4;
const MAX_WAITING: u32 = 4;
/// In tokens.
const WIDE: u64 = 100;
const BACKENDS: usize = 4;
/// The adaptive limit: without samples it stays where it starts.
const ADAPTIVE: u32 = 5;

/// What kind of route a run is on.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "every combination is tried")]
struct Shape {
    has_tiers: bool,
    crosses: bool,
    is_by_model: bool,
    is_adaptive: bool,
    ranks_turns: bool,
    /// Sessions are bound; else they belong to a backend by their hash.
    is_binding: bool,
}

/// One step of a random run.
#[derive(Debug, Clone)]
enum Step {
    Acquire {
        session: Option<u8>,
        replica: bool,
        turn: u32,
        model: bool,
    },
    /// A body starts to come in; a wide one needs the window that only the first backend has.
    Reserve {
        replica: bool,
        is_wide: bool,
    },
    /// One that was reserved for is in.
    Place {
        pick: usize,
        session: Option<u8>,
        model: bool,
    },
    Cancel(usize),
    Release(usize),
    Transfer {
        pick: usize,
        is_connect: bool,
    },
    Drain {
        at: usize,
        on: bool,
    },
    Ban {
        at: usize,
        on: bool,
    },
    Probe {
        at: usize,
        good: bool,
    },
    DropReplica(bool),
    /// It comes back and says what it holds.
    Hello(bool),
    /// Turns are ranked from now on, or not.
    RankTurns(bool),
    Limit(u32),
    Tick(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let session = || proptest::option::of(0_u8..6);
    prop_oneof![
        8 => (session(), any::<bool>(), 0_u32..40, any::<bool>())
            .prop_map(|(session, replica, turn, model)| Step::Acquire { session, replica, turn, model }),
        3 => any::<(bool, bool)>().prop_map(|(replica, is_wide)| Step::Reserve { replica, is_wide }),
        3 => (any::<usize>(), session(), any::<bool>())
            .prop_map(|(pick, session, model)| Step::Place { pick, session, model }),
        2 => any::<usize>().prop_map(Step::Cancel),
        6 => any::<usize>().prop_map(Step::Release),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pick, is_connect)| Step::Transfer { pick, is_connect }),
        1 => (0..BACKENDS, any::<bool>()).prop_map(|(at, on)| Step::Drain { at, on }),
        1 => (0..BACKENDS, any::<bool>()).prop_map(|(at, on)| Step::Ban { at, on }),
        2 => (0..BACKENDS, any::<bool>()).prop_map(|(at, good)| Step::Probe { at, good }),
        1 => any::<bool>().prop_map(Step::DropReplica),
        1 => any::<bool>().prop_map(Step::Hello),
        1 => any::<bool>().prop_map(Step::RankTurns),
        1 => (1_u32..4).prop_map(Step::Limit),
        1 => (0_u64..6000).prop_map(Step::Tick),
    ]
}

prop_compose! {
    fn any_shape()(has_tiers: bool, crosses: bool, is_by_model: bool, is_adaptive: bool, ranks_turns: bool,
        is_binding in proptest::bool::weighted(0.8)) -> Shape {
        Shape { has_tiers, crosses, is_by_model, is_adaptive, ranks_turns, is_binding }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_exceeds_a_limit_loses_a_waiter_or_splits_a_session(
        shape in any_shape(),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(shape, steps));
    }
}

async fn run(shape: Shape, steps: Vec<Step>) {
    let bench = Bench::forgetful(&document(shape, 2)).await;
    let (second, second_answers) = stream("r2", 2);
    let model = Model {
        shape,
        held: Vec::new(),
        waiting: HashSet::new(),
        answered: HashSet::new(),
        bound: HashMap::new(),
        asked: HashMap::new(),
    };
    let mut run = Run { bench, second, second_answers, model, limit: 2 };
    for step in steps {
        run.take(step).await;
        run.hear().await;
        run.check();
    }
}

fn name(at: usize) -> String {
    backend(at).to_string()
}

/// The first model has all backends but the last, the second all but the first.
fn serves(at: usize, model: bool) -> bool {
    if model { at > 0 } else { at + 1 < BACKENDS }
}

fn document(shape: Shape, limit: u32) -> serde_json::Value {
    let one = |at: usize| {
        let models: Vec<&str> = [(false, "a"), (true, "b")]
            .into_iter()
            .filter(|(model, _)| shape.is_by_model && serves(at, *model))
            .map(|(_, name)| name)
            .collect();
        let tier = if shape.has_tiers { at / 2 } else { 0 };
        json!({"address": name(at), "context_limit": if at == 0 { WIDE } else { 1 }, "models": models, "priority": tier})
    };
    let backends: Vec<_> = (0..BACKENDS).map(one).collect();
    let mut options = json!({"max_concurrency": limit, "max_waiting": MAX_WAITING, "health_successes": 1,
        "queue_timeout": "5s", "max_sessions": MAX_SESSIONS, "on_full": "refuse", "cross_tier_fallback": shape.crosses,
        "session_prio": shape.ranks_turns, "session_prio_r_new": 0.5,
        "affinity": if shape.is_binding { "binding" } else { "hash" }});
    if shape.is_adaptive {
        options["adaptive_cc"] = json!(true);
        options["tps_limit_tps"] = json!(20);
        options["adaptive_cc_min"] = json!(ADAPTIVE);
    }
    json!({"name": "chat", "options": options, "backends": backends})
}

/// A pool, two replicas' streams, and what was heard on them.
struct Run {
    bench: Bench,
    second: Arc<Caller>,
    second_answers: mpsc::UnboundedReceiver<v1::ServerOp>,
    model: Model,
    limit: u32,
}

impl Run {
    fn caller(&self, replica: bool) -> &Arc<Caller> {
        if replica { &self.second } else { &self.bench.caller }
    }

    /// Notes a new operation; its number.
    fn begin(&mut self, wanted: Wanted, is_wide: bool) -> u64 {
        self.bench.next_op += 1;
        self.model.asked.insert(self.bench.next_op, (wanted, is_wide));
        self.model.waiting.insert(self.bench.next_op);
        self.bench.next_op
    }

    fn acquire(&mut self, asked: Asked, wanted: Wanted) {
        let op = self.begin(wanted, asked.context_tokens == WIDE);
        let asked = self.complete(asked, wanted);
        self.bench.pool.acquire(op, asked, self.caller(wanted.replica));
    }

    fn complete(&self, asked: Asked, wanted: Wanted) -> Asked {
        let model = match (self.model.shape.is_by_model && !asked.is_reserve, wanted.model) {
            (false, _) => "",
            (true, false) => "a",
            (true, true) => "b",
        };
        Asked {
            fingerprint: wanted.session.map(session),
            crc32: wanted.session.map(u32::from),
            model: model.to_owned(),
            ..asked
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire { session, replica, turn, model } => {
                let wanted = Wanted { session, replica, model, is_transfer: false };
                self.acquire(Asked { turn: (turn > 0).then_some(turn), ..Asked::default() }, wanted);
            }
            Step::Reserve { replica, is_wide } => {
                let context_tokens = if is_wide { WIDE } else { 0 };
                let wanted = Wanted { session: None, replica, model: false, is_transfer: false };
                self.acquire(Asked { is_reserve: true, context_tokens, ..Asked::default() }, wanted);
            }
            Step::Place { pick, session, model } => {
                if let Some(held) = self.model.take(pick, str::is_empty) {
                    let wanted = Wanted { session, replica: held.replica, model, is_transfer: false };
                    self.acquire(Asked { reservation: Some(LeaseId(held.lease)), ..Asked::default() }, wanted);
                }
            }
            Step::Cancel(pick) => {
                let mut waiting: Vec<u64> = self.model.waiting.iter().copied().collect();
                waiting.sort_unstable();
                if let Some(op) = waiting.get(pick % waiting.len().max(1)).copied() {
                    self.bench.pool.cancel(if self.model.asked[&op].0.replica { 2 } else { 1 }, op);
                    self.model.waiting.remove(&op);
                }
            }
            Step::Release(pick) => {
                if let Some(held) = self.model.take(pick, |_| true) {
                    let answered = Answered { status: 200, ..Answered::default() };
                    self.bench.pool.release(LeaseId(held.lease), self.caller(held.replica), &answered);
                }
            }
            Step::Transfer { pick, is_connect } => {
                if let Some(held) = self.model.take(pick, |on| !on.is_empty()) {
                    let backend = BackendId::new(&held.backend).unwrap();
                    let failed = Failed { lease: LeaseId(held.lease), backend, is_connect };
                    let wanted = Wanted { is_transfer: true, ..held.wanted };
                    let again =
                        self.complete(Asked { tried: vec![failed.backend.clone()], ..Asked::default() }, wanted);
                    let op = self.begin(wanted, false);
                    self.bench.pool.transfer(op, &failed, again, self.caller(held.replica));
                }
            }
            Step::Drain { at, on } => self.bench.pool.set_drain(&backend(at), on),
            Step::Ban { at, on: true } => self.bench.pool.ban(&backend(at), None, "test"),
            Step::Ban { at, on: false } => self.bench.pool.unban(&backend(at)),
            Step::Probe { at, good } => {
                let probe = if good { Probe::Good } else { Probe::Failed };
                self.bench.pool.record_probe(&backend(at), probe, "test");
            }
            Step::DropReplica(replica) => {
                self.bench.pool.drop_replica(if replica { "r2" } else { "r1" });
                self.model.held.retain(|held| held.replica != replica);
                self.forget_waiters(replica);
            }
            Step::Hello(replica) => self.say_hello(replica),
            Step::RankTurns(is_on) => set_turns(&self.bench, is_on),
            Step::Limit(new) => {
                self.limit = new;
                let spec = parse_route(&document(self.model.shape, new)).unwrap();
                self.bench.pool.install(Arc::new(spec));
            }
            Step::Tick(ms) => {
                tokio::time::advance(Duration::from_millis(ms)).await;
                self.bench.pool.tick();
            }
        }
    }

    fn forget_waiters(&mut self, replica: bool) {
        let asked = &self.model.asked;
        self.model.waiting.retain(|op| asked[op].0.replica != replica);
    }

    fn say_hello(&mut self, replica: bool) {
        let own = self.model.held.iter().filter(|held| held.replica == replica);
        let held: Vec<Held> = own
            .map(|held| Held {
                fingerprint: held.wanted.session.map(session),
                window: if held.is_wide { WIDE } else { 0 },
                granted: self.bench.pool.context.clock.now(),
                ..super::held(held.lease, BackendId::new(&held.backend).ok())
            })
            .collect();
        self.bench.pool.reconcile(&Arc::clone(&self.caller(replica).replica), &held);
        self.forget_waiters(replica);
    }

    async fn hear(&mut self) {
        // Grants that wait for their binding's commit come before the next step.
        self.bench.pool.context.committer.flush().await;
        let mut answers = Vec::new();
        answers.extend(std::iter::from_fn(|| self.bench.answers.try_recv().ok()));
        answers.extend(std::iter::from_fn(|| self.second_answers.try_recv().ok()));
        // Two streams hear of one step side by side; leases tell in which order it granted.
        answers.sort_by_key(|op| match &op.kind {
            Some(Kind::Granted(granted)) => granted.lease,
            // After the grants: nothing leaves the table, so what it refused it would refuse still.
            _ => u64::MAX,
        });
        for op in answers {
            let was_transfer = self.model.asked.get(&op.op).is_some_and(|(wanted, _)| wanted.is_transfer);
            let backend = match &op.kind {
                Some(Kind::Granted(granted)) => granted.backend.clone(),
                _ => String::new(),
            };
            self.model.hear(op, self.limit);
            if !was_transfer && !backend.is_empty() && self.model.shape.is_adaptive && !self.model.shape.is_by_model {
                self.check_adaptive();
            }
        }
    }

    /// After a grant, the backends that take requests hold no more than the adaptive limit, slots that are only reserved with
    /// them.
    fn check_adaptive(&self) {
        let states = self.bench.pool.backend_states();
        let is_up = |state: &&v1::BackendState| state.condition == Some(v1::Condition::default());
        let tier = states.iter().filter(is_up).map(|state| state.priority_thousandths).max();
        let takes = |state: &v1::BackendState| self.model.shape.crosses || Some(state.priority_thousandths) == tier;
        let candidates = states.iter().filter(is_up).filter(|state| takes(state));
        let held: usize = candidates.map(|state| self.model.on(&state.address)).sum();
        assert!(held + self.model.on("") <= ADAPTIVE as usize, "more than the adaptive limit");
    }

    fn check(&self) {
        let state = self.bench.pool.state.lock();
        let reserved = self.model.on("");
        assert_eq!(state.total_in_flight() as usize, self.model.held.len(), "every lease is known outside, once");
        assert_eq!(state.reserved() as usize, reserved);
        assert_eq!(state.waiters.len(), self.model.waiting.len(), "no waiter is lost");
        let of_models: usize = ["", "a", "b"].iter().map(|model| state.waiters.of_model(model)).sum();
        assert_eq!(of_models, state.waiters.len(), "each waits for one model");
        // A queue per model, and one for those whose model is not known yet.
        let queues = if self.model.shape.is_by_model { 3 } else { 1 };
        assert!(state.waiters.len() <= MAX_WAITING as usize * queues, "the queue is bounded");
        drop(state);
        let (sessions, _) = self.bench.pool.sessions(&SessionFilter::default(), 100);
        let bound: HashMap<String, String> = sessions.into_iter().map(|row| (row.fingerprint, row.backend)).collect();
        let told = self.model.bound.iter().map(|(number, on)| (session(*number).to_string(), on.clone())).collect();
        assert_eq!(bound, told, "a session is where its last grant was, and nowhere else");
    }
}

fn set_turns(bench: &Bench, is_on: bool) {
    let key = ToggleKey::parse("session_prio", "").unwrap();
    let value = key.parse_value(if is_on { "on" } else { "off" }).unwrap();
    let mut toggles = Toggles::default();
    toggles.set(Toggle { key, value, until: None });
    bench.pool.set_toggles(toggles);
}

/// The control: with the master switch off, the very thing that the runs above must never see does happen.
#[tokio::test]
async fn a_limit_that_is_not_enforced_is_exceeded() {
    let shape = Shape {
        has_tiers: false,
        crosses: false,
        is_by_model: false,
        is_adaptive: false,
        ranks_turns: false,
        is_binding: true,
    };
    let mut bench = Bench::forgetful(&document(shape, 1)).await;
    let key = ToggleKey::parse("load_rate_limit", "").unwrap();
    let value = key.parse_value("off").unwrap();
    let mut toggles = Toggles::default();
    toggles.set(Toggle { key, value, until: None });
    bench.pool.set_toggles(toggles);
    for _ in 0..=BACKENDS {
        bench.ask(Asked::default());
        bench.granted().await;
    }
    assert_eq!(bench.pool.in_flight() as usize, BACKENDS + 1, "one more than the limits together");
}
