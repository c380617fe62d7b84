//! Random runs against what must be true from outside: no interleaving exceeds a limit, loses a waiter or splits a session.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// Fewer than sessions: the table gets full.
const MAX_SESSIONS: usize = 4;
const MAX_WAITING: u32 = 4;
/// In tokens.
const WIDE: u64 = 100;

/// One step of a random run.
#[derive(Debug, Clone)]
enum Step {
    Acquire {
        session: Option<u8>,
        replica: bool,
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
    Probe {
        at: usize,
        good: bool,
    },
    DropReplica(bool),
    Limit(u32),
    Tick(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (proptest::option::of(0_u8..6), any::<bool>()).prop_map(|(session, replica)| Step::Acquire { session, replica }),
        3 => any::<(bool, bool)>().prop_map(|(replica, is_wide)| Step::Reserve { replica, is_wide }),
        3 => (any::<usize>(), proptest::option::of(0_u8..6)).prop_map(|(pick, session)| Step::Place { pick, session }),
        2 => any::<usize>().prop_map(Step::Cancel),
        6 => any::<usize>().prop_map(Step::Release),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pick, is_connect)| Step::Transfer { pick, is_connect }),
        1 => (0_usize..3, any::<bool>()).prop_map(|(at, on)| Step::Drain { at, on }),
        2 => (0_usize..3, any::<bool>()).prop_map(|(at, good)| Step::Probe { at, good }),
        1 => any::<bool>().prop_map(Step::DropReplica),
        1 => (1_u32..4).prop_map(Step::Limit),
        1 => (0_u64..6000).prop_map(Step::Tick),
    ]
}

/// What a run must look like from outside, kept by counting answers only.
#[derive(Default)]
struct Model {
    held: Vec<(u64, String, bool)>,
    waiting: HashSet<u64>,
    answered: HashSet<u64>,
    bound: HashMap<u8, String>,
    asked: HashMap<u64, (Option<u8>, bool)>,
}

impl Model {
    /// Takes one of the leases whose backend suits.
    fn take(&mut self, pick: usize, suits: impl Fn(&str) -> bool) -> Option<(u64, String, bool)> {
        let places: Vec<usize> = (0..self.held.len()).filter(|at| suits(&self.held[*at].1)).collect();
        let at = places.get(pick % places.len().max(1))?;
        Some(self.held.swap_remove(*at))
    }

    fn hear(&mut self, op: v1::ServerOp, limit: u32) {
        assert!(self.answered.insert(op.op), "answered twice");
        assert!(self.waiting.remove(&op.op), "answered without being asked");
        let (session, replica) = self.asked[&op.op];
        let granted = match op.kind {
            Some(Kind::Granted(granted)) => granted,
            Some(Kind::Refused(refused)) => {
                if refused.gate == i32::from(v1::Gate::SessionTableFull) {
                    let session = session.expect("only a session needs a place in the table");
                    assert!(!self.bound.contains_key(&session), "a full table refuses only new sessions");
                    assert_eq!(self.bound.len(), MAX_SESSIONS);
                }
                return;
            }
            other => panic!("an answer expected, got {other:?}"),
        };
        if let Some(session) = session {
            let before = self.bound.insert(session, granted.backend.clone());
            if granted.mode == i32::from(v1::Mode::Bound) {
                assert_eq!(before.as_ref(), Some(&granted.backend), "bound means: where it was");
            }
            if granted.mode == i32::from(v1::Mode::New) {
                assert_eq!(before, None, "a session is new once");
            }
            if granted.mode == i32::from(v1::Mode::Moved) {
                assert!(before.is_some_and(|home| home != granted.backend), "moved means: elsewhere");
            }
        }
        self.held.push((granted.lease, granted.backend.clone(), replica));
        let load = self.held.iter().filter(|(_, on, _)| *on == granted.backend).count();
        if granted.backend.is_empty() {
            let on = |name: String| self.held.iter().filter(|(_, on, _)| *on == name).count();
            let room: usize = (0..3).map(|at| (limit as usize).saturating_sub(on(backend(at).to_string()))).sum();
            assert!(on(String::new()) <= room, "more is reserved than the pool has");
            return;
        }
        assert!(load <= limit as usize, "{load} on {} with limit {limit}", granted.backend);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_exceeds_a_limit_loses_a_waiter_or_splits_a_session(steps in proptest::collection::vec(any_step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}

async fn run(steps: Vec<Step>) {
    let bench = Bench::new(3, options(2)).await;
    bench.pool.install(Arc::new(document(2)));
    let (second, second_answers) = stream("r2", 2);
    let mut run = Run { bench, second, second_answers, model: Model::default(), limit: 2 };
    for step in steps {
        run.take(step).await;
        run.hear().await;
        run.check();
    }
}

fn document(limit: u32) -> RouteSpec {
    let window = |number| if number == 0 { WIDE } else { 1 };
    let backends: Vec<_> =
        (0..3).map(|number| json!({"address": backend(number).to_string(), "context_limit": window(number)})).collect();
    parse_route(&json!({"name": "chat", "options": options(limit), "backends": backends})).unwrap()
}

fn options(limit: u32) -> serde_json::Value {
    json!({"max_concurrency": limit, "max_waiting": MAX_WAITING, "health_successes": 1, "queue_timeout": "5s",
        "max_sessions": MAX_SESSIONS, "on_full": "refuse"})
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
    fn begin(&mut self, session: Option<u8>, replica: bool) -> u64 {
        self.bench.next_op += 1;
        self.model.asked.insert(self.bench.next_op, (session, replica));
        self.model.waiting.insert(self.bench.next_op);
        self.bench.next_op
    }

    fn acquire(&mut self, asked: Asked, number: Option<u8>, replica: bool) {
        let op = self.begin(number, replica);
        let asked = Asked { fingerprint: number.map(session), ..asked };
        self.bench.pool.acquire(op, asked, self.caller(replica));
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire { session, replica } => self.acquire(Asked::default(), session, replica),
            Step::Reserve { replica, is_wide } => {
                let context_tokens = if is_wide { WIDE } else { 0 };
                self.acquire(Asked { is_reserve: true, context_tokens, ..Asked::default() }, None, replica);
            }
            Step::Place { pick, session } => {
                if let Some((lease, _, replica)) = self.model.take(pick, str::is_empty) {
                    let reservation = Some(LeaseId(lease));
                    self.acquire(Asked { reservation, ..Asked::default() }, session, replica);
                }
            }
            Step::Cancel(pick) => {
                let mut waiting: Vec<u64> = self.model.waiting.iter().copied().collect();
                waiting.sort_unstable();
                if let Some(op) = waiting.get(pick % waiting.len().max(1)).copied() {
                    self.bench.pool.cancel(if self.model.asked[&op].1 { 2 } else { 1 }, op);
                    self.model.waiting.remove(&op);
                }
            }
            Step::Release(pick) => {
                if let Some((lease, _, replica)) = self.model.take(pick, |_| true) {
                    self.bench.pool.release(LeaseId(lease), self.caller(replica), &Answered::default());
                }
            }
            Step::Transfer { pick, is_connect } => {
                if let Some((lease, on, replica)) = self.model.take(pick, |on| !on.is_empty()) {
                    let failed = Failed { lease: LeaseId(lease), backend: BackendId::new(&on).unwrap(), is_connect };
                    let again = Asked { tried: vec![failed.backend.clone()], ..Asked::default() };
                    let op = self.begin(None, replica);
                    self.bench.pool.transfer(op, &failed, again, self.caller(replica));
                }
            }
            Step::Drain { at, on } => self.bench.pool.set_drain(&backend(at), on),
            Step::Probe { at, good } => {
                let probe = if good {
                    router_policy::health::round::Probe::Good
                } else {
                    router_policy::health::round::Probe::Failed
                };
                self.bench.pool.record_probe(&backend(at), probe, "test");
            }
            Step::DropReplica(replica) => {
                self.bench.pool.drop_replica(if replica { "r2" } else { "r1" });
                self.model.held.retain(|(_, _, of)| *of != replica);
                let asked = &self.model.asked;
                self.model.waiting.retain(|op| asked[op].1 != replica);
            }
            Step::Limit(new) => {
                self.limit = new;
                self.bench.pool.install(Arc::new(document(new)));
            }
            Step::Tick(ms) => {
                tokio::time::advance(Duration::from_millis(ms)).await;
                self.bench.pool.tick();
            }
        }
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
            self.model.hear(op, self.limit);
        }
    }

    fn check(&self) {
        let state = self.bench.pool.route_state();
        let reserved = self.model.held.iter().filter(|(_, on, _)| on.is_empty()).count();
        assert_eq!(self.bench.pool.in_flight() as usize, self.model.held.len(), "every lease is known outside, once");
        assert_eq!(state.reserved as usize, reserved);
        assert_eq!(state.waiting as usize, self.model.waiting.len(), "no waiter is lost");
        assert!(state.waiting <= MAX_WAITING, "the queue is bounded");
        let (sessions, _) = self.bench.pool.sessions(&SessionFilter::default(), 100);
        let bound: HashMap<String, String> = sessions.into_iter().map(|row| (row.fingerprint, row.backend)).collect();
        let told = self.model.bound.iter().map(|(number, on)| (session(*number).to_string(), on.clone())).collect();
        assert_eq!(bound, told, "a session is where its last grant was, and nowhere else");
    }
}
