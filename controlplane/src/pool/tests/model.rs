//! Random runs against what must be true from outside: no interleaving exceeds a limit, loses a waiter or splits a session.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// One step of a random run.
#[derive(Debug, Clone)]
enum Step {
    Acquire { session: Option<u8>, replica: bool },
    Cancel(usize),
    Release(usize),
    Transfer { pick: usize, is_connect: bool },
    Drain { at: usize, on: bool },
    Probe { at: usize, good: bool },
    DropReplica(bool),
    Limit(u32),
    Tick(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (proptest::option::of(0_u8..6), any::<bool>()).prop_map(|(session, replica)| Step::Acquire { session, replica }),
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
    fn hear(&mut self, op: v1::ServerOp, limit: u32) {
        assert!(self.answered.insert(op.op), "answered twice");
        assert!(self.waiting.remove(&op.op), "answered without being asked");
        let Some(Kind::Granted(granted)) = op.kind else {
            return;
        };
        let (session, replica) = self.asked[&op.op];
        if let Some(session) = session {
            let before = self.bound.insert(session, granted.backend.clone());
            if granted.mode == i32::from(v1::Mode::Bound) {
                assert_eq!(before.as_ref(), Some(&granted.backend), "bound means: where it was");
            }
            if granted.mode == i32::from(v1::Mode::New) {
                assert_eq!(before, None, "a session is new once");
            }
        }
        self.held.push((granted.lease, granted.backend.clone(), replica));
        let load = self.held.iter().filter(|(_, on, _)| *on == granted.backend).count();
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
    let options = json!({"max_concurrency": 2, "max_waiting": 4, "health_successes": 1, "queue_timeout": "5s"});
    let mut bench = Bench::new(3, options).await;
    let (second, mut second_answers) = stream("r2", 2);
    let mut model = Model::default();
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
            Step::Transfer { pick, is_connect } if !model.held.is_empty() => {
                let (lease, on, replica) = model.held.swap_remove(pick % model.held.len());
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
                let options =
                    json!({"max_concurrency": new, "max_waiting": 4, "health_successes": 1, "queue_timeout": "5s"});
                let spec = parse_route(&json!({"name": "chat", "options": options, "backends": addresses})).unwrap();
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
            _ => 0,
        });
        for op in answers {
            model.hear(op, limit);
        }
        let held: u32 = bench.loads().iter().sum();
        assert_eq!(held as usize, model.held.len(), "every lease is known outside, and none twice");
        assert_eq!(bench.pool.route_state().waiting as usize, model.waiting.len(), "no waiter is lost");
    }
}
