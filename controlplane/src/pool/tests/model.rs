//! Random runs against what must be true from outside: no interleaving exceeds a limit, loses a waiter or splits a session.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// One step of a random run.
#[derive(Debug, Clone)]
enum Step {
    Acquire {
        session: Option<u8>,
        replica: bool,
    },
    /// A body starts to come in.
    Reserve {
        replica: bool,
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
        3 => any::<bool>().prop_map(|replica| Step::Reserve { replica }),
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
struct Model {
    max_sessions: usize,
    held: Vec<(u64, String, bool)>,
    waiting: HashSet<u64>,
    answered: HashSet<u64>,
    bound: HashMap<u8, String>,
    asked: HashMap<u64, (Option<u8>, bool)>,
}

impl Model {
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
                    assert_eq!(self.bound.len(), self.max_sessions);
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
    fn no_interleaving_exceeds_a_limit_or_loses_a_waiter(steps in proptest::collection::vec(any_step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}

async fn run(steps: Vec<Step>) {
    let options = |limit: u32| {
        json!({"max_concurrency": limit, "max_waiting": 4, "health_successes": 1, "queue_timeout": "5s",
            "max_sessions": 4, "on_full": "refuse"})
    };
    let mut bench = Bench::new(3, options(2)).await;
    let (second, mut second_answers) = stream("r2", 2);
    let mut model = Model {
        max_sessions: 4,
        held: Vec::new(),
        waiting: HashSet::new(),
        answered: HashSet::new(),
        bound: HashMap::new(),
        asked: HashMap::new(),
    };
    let mut limit = 2;
    for step in steps {
        match step {
            Step::Acquire { session: number, replica } => {
                bench.next_op += 1;
                model.asked.insert(bench.next_op, (number, replica));
                model.waiting.insert(bench.next_op);
                let asked = Asked { fingerprint: number.map(session), ..Asked::default() };
                bench.pool.acquire(bench.next_op, asked, if replica { &second } else { &bench.caller });
            }
            Step::Reserve { replica } => {
                bench.next_op += 1;
                model.asked.insert(bench.next_op, (None, replica));
                model.waiting.insert(bench.next_op);
                let asked = Asked { is_reserve: true, ..Asked::default() };
                bench.pool.acquire(bench.next_op, asked, if replica { &second } else { &bench.caller });
            }
            Step::Place { pick, session: number } => {
                let reserved: Vec<usize> = (0..model.held.len()).filter(|at| model.held[*at].1.is_empty()).collect();
                if let Some(at) = reserved.get(pick % reserved.len().max(1)) {
                    let (lease, _, replica) = model.held.swap_remove(*at);
                    bench.next_op += 1;
                    model.asked.insert(bench.next_op, (number, replica));
                    model.waiting.insert(bench.next_op);
                    let reservation = Some(LeaseId(lease));
                    let asked = Asked { fingerprint: number.map(session), reservation, ..Asked::default() };
                    bench.pool.acquire(bench.next_op, asked, if replica { &second } else { &bench.caller });
                }
            }
            Step::Cancel(pick) => {
                let mut waiting: Vec<u64> = model.waiting.iter().copied().collect();
                waiting.sort_unstable();
                if let Some(op) = waiting.get(pick % waiting.len().max(1)).copied() {
                    bench.pool.cancel(if model.asked[&op].1 { 2 } else { 1 }, op);
                    model.waiting.remove(&op);
                }
            }
            Step::Release(pick) if !model.held.is_empty() => {
                let (lease, _, replica) = model.held.swap_remove(pick % model.held.len());
                bench.pool.release(LeaseId(lease), if replica { &second } else { &bench.caller }, false);
            }
            Step::Transfer { pick, is_connect } if model.held.iter().any(|(_, on, _)| !on.is_empty()) => {
                let placed: Vec<usize> = (0..model.held.len()).filter(|at| !model.held[*at].1.is_empty()).collect();
                let (lease, on, replica) = model.held.swap_remove(placed[pick % placed.len()]);
                let failed = Failed { lease: LeaseId(lease), backend: BackendId::new(&on).unwrap(), is_connect };
                bench.next_op += 1;
                model.asked.insert(bench.next_op, (None, replica));
                model.waiting.insert(bench.next_op);
                let again = Asked { tried: vec![failed.backend.clone()], ..Asked::default() };
                bench.pool.transfer(bench.next_op, &failed, again, if replica { &second } else { &bench.caller });
            }
            Step::Drain { at, on } => bench.pool.set_drain(&backend(at), on),
            Step::Probe { at, good } => {
                let probe = if good {
                    router_policy::health::round::Probe::Good
                } else {
                    router_policy::health::round::Probe::Failed
                };
                bench.pool.record_probe(&backend(at), probe, "test");
            }
            Step::DropReplica(replica) => {
                bench.pool.drop_replica(if replica { "r2" } else { "r1" });
                model.held.retain(|(_, _, of)| *of != replica);
                let asked = &model.asked;
                model.waiting.retain(|op| asked[op].1 != replica);
            }
            Step::Limit(new) => {
                limit = new;
                let addresses: Vec<String> = (0..3).map(|number| backend(number).to_string()).collect();
                let document = json!({"name": "chat", "options": options(new), "backends": addresses});
                let spec = parse_route(&document).unwrap();
                bench.pool.install(Arc::new(spec));
            }
            Step::Tick(ms) => {
                tokio::time::advance(Duration::from_millis(ms)).await;
                bench.pool.tick();
            }
            Step::Release(_) | Step::Transfer { .. } => {}
        }
        // Grants that wait for their binding's commit come before the next step.
        bench.pool.context.committer.flush().await;
        let mut answers = Vec::new();
        answers.extend(std::iter::from_fn(|| bench.answers.try_recv().ok()));
        answers.extend(std::iter::from_fn(|| second_answers.try_recv().ok()));
        // Two streams hear of one step side by side; leases tell in which order it granted.
        answers.sort_by_key(|op| match &op.kind {
            Some(Kind::Granted(granted)) => granted.lease,
            // After the grants: nothing leaves the table, so what it refused it would refuse still.
            _ => u64::MAX,
        });
        for op in answers {
            model.hear(op, limit);
        }
        let held = bench.pool.in_flight();
        let reserved = model.held.iter().filter(|(_, on, _)| on.is_empty()).count();
        assert_eq!(bench.pool.route_state().reserved as usize, reserved);
        let (sessions, _) = bench.pool.sessions(&SessionFilter::default(), 100);
        let bound: HashMap<String, String> = sessions.into_iter().map(|row| (row.fingerprint, row.backend)).collect();
        let told: HashMap<String, String> =
            model.bound.iter().map(|(number, on)| (session(*number).to_string(), on.clone())).collect();
        assert_eq!(bound, told, "a session is where its last grant was, and nowhere else");
        assert_eq!(held as usize, model.held.len(), "every lease is known outside, and none twice");
        assert_eq!(bench.pool.route_state().waiting as usize, model.waiting.len(), "no waiter is lost");
    }
}
