use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use router_policy::ids::{BackendId, Fingerprint, LeaseId};
use router_policy::route::parse_route;
use router_proto::v1;
use router_proto::v1::server_op::Kind;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::metrics::Metrics;
use crate::store::health::StoreHealth;
use crate::store::{self, BindingRow, SqliteSync, Stored};

mod explain;
mod flow;
mod model;
mod placing;
mod ranks;
mod reserve;
mod restart;
mod toggle;
mod turns;

/// A pool over a real SQLite file (or, for very many runs, over a store that forgets), and one stream that hears its answers.
struct Bench {
    pool: Pool,
    caller: Arc<Caller>,
    answers: mpsc::UnboundedReceiver<v1::ServerOp>,
    store: Arc<dyn store::Store>,
    next_op: u64,
    /// Of the database; goes with the bench.
    folder: Option<tempfile::TempDir>,
}

fn session(number: u8) -> Fingerprint {
    Fingerprint([number; 16])
}

fn backend(number: usize) -> BackendId {
    BackendId::new(&format!("10.0.0.1:{}", 9000 + number)).unwrap()
}

impl Bench {
    async fn new(backends: usize, options: serde_json::Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("router.db").display());
        let store = store::open(&url, SqliteSync::Normal).await.unwrap();
        let addresses: Vec<String> = (0..backends).map(|number| backend(number).to_string()).collect();
        let document = json!({"name": "chat", "options": options, "backends": addresses});
        let mut bench = Self::over(store, &document).await;
        bench.folder = Some(folder);
        bench
    }

    /// Nothing that is written is kept.
    async fn forgetful(document: &serde_json::Value) -> Self {
        Self::over(store::scripted::ScriptedStore::ready(), document).await
    }

    async fn over(store: Arc<dyn store::Store>, document: &serde_json::Value) -> Self {
        let tracker = TaskTracker::new();
        let stop = CancellationToken::new();
        let health = StoreHealth::new();
        let context = Context {
            clock: Clock::start(),
            epoch: 1,
            lease_count: AtomicU64::new(0),
            committer: Committer::start(Arc::clone(&store), &tracker, stop.clone(), Arc::clone(&health)),
            journal: Journal::start(Arc::clone(&store), &tracker, stop.clone(), Arc::clone(&health)),
            store_health: health,
            marks: Arc::new(MarkJournal::default()),
            publish: Notify::new(),
        };
        let spec = parse_route(document).unwrap();
        store
            .save_routes(&[store::RouteRow { name: spec.name.clone(), document: "{}".to_owned() }], &[])
            .await
            .unwrap();
        let pool = Pool::new(Arc::new(spec), Arc::new(context), Metrics::new().pool("chat"));
        let (caller, answers) = stream("r1", 1);
        Self { pool, caller, answers, store, next_op: 0, folder: None }
    }

    fn ask(&mut self, asked: Asked) -> u64 {
        self.next_op += 1;
        self.pool.acquire(self.next_op, asked, &self.caller);
        self.next_op
    }

    fn ask_for(&mut self, number: u8) -> u64 {
        self.ask(Asked { fingerprint: Some(session(number)), ..Asked::default() })
    }

    async fn answer(&mut self) -> (u64, Kind) {
        let op = self.answers.recv().await.unwrap();
        (op.op, op.kind.unwrap())
    }

    async fn granted(&mut self) -> v1::Granted {
        match self.answer().await {
            (_, Kind::Granted(granted)) => granted,
            other => panic!("granted expected, got {other:?}"),
        }
    }

    async fn refused(&mut self) -> v1::Refused {
        match self.answer().await {
            (_, Kind::Refused(refused)) => refused,
            other => panic!("refused expected, got {other:?}"),
        }
    }

    fn loads(&self) -> Vec<u32> {
        self.pool.backend_states().iter().map(|state| state.in_flight).collect()
    }

    /// Everything decided so far is in the database.
    async fn context_flush(&self) {
        self.pool.context.committer.flush().await;
        self.pool.context.journal.flush_now().await.unwrap();
    }

    fn release(&self, granted: &v1::Granted) {
        self.pool.release(LeaseId(granted.lease), &self.caller, &Answered::default());
    }
}

/// What a replica says of a lease.
fn held(lease: u64, backend: Option<BackendId>) -> Held {
    let (lease, granted, model) = (LeaseId(lease), Tick(0), String::new());
    Held { lease, backend, fingerprint: None, window: 0, granted, model, turn: None, is_stream: false }
}

fn stream(replica: &str, stream: u64) -> (Arc<Caller>, mpsc::UnboundedReceiver<v1::ServerOp>) {
    let (replies, answers) = mpsc::unbounded_channel();
    (Arc::new(Caller { replica: replica.into(), stream, replies }), answers)
}

#[tokio::test]
async fn a_binding_is_in_the_database_before_its_grant_is_sent() {
    let mut bench = Bench::new(2, json!({})).await;
    bench.ask_for(1);
    let granted = bench.granted().await;
    assert_eq!(granted.mode, i32::from(v1::Mode::New));
    let Stored { bindings, .. } = bench.store.load().await.unwrap();
    assert_eq!(bindings.len(), 1);
    assert_eq!(bindings[0].backend.to_string(), granted.backend);

    bench.release(&granted);
    bench.ask_for(1);
    let again = bench.granted().await;
    assert_eq!((again.mode, &again.backend), (i32::from(v1::Mode::Bound), &granted.backend));
}

#[tokio::test]
async fn gateway_3_moved_stays_moved() {
    let mut bench = Bench::new(2, json!({})).await;
    bench.ask_for(1);
    let first = bench.granted().await;
    bench.release(&first);
    let home = BackendId::new(&first.backend).unwrap();
    bench.pool.set_drain(&home, true);
    bench.ask_for(1);
    let moved = bench.granted().await;
    assert_eq!(moved.mode, i32::from(v1::Mode::Moved));
    assert_ne!(moved.backend, first.backend);
    bench.release(&moved);
    bench.pool.set_drain(&home, false);
    bench.ask_for(1);
    let later = bench.granted().await;
    assert_eq!((later.mode, later.backend), (i32::from(v1::Mode::Bound), moved.backend));
    let (sessions, total) = bench.pool.sessions(&SessionFilter::default(), 10);
    assert_eq!((total, sessions[0].moves, sessions[0].requests), (1, 1, 3));
}

#[tokio::test]
async fn waiters_are_served_in_order_and_a_cancelled_one_is_out_at_once() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1, "max_waiting": 2})).await;
    bench.ask(Asked::default());
    let holder = bench.granted().await;
    let first = bench.ask(Asked::default());
    let second = bench.ask(Asked::default());
    let third = bench.ask(Asked::default());
    let (op, Kind::Refused(refused)) = bench.answer().await else { panic!("refused expected") };
    assert_eq!((op, refused.gate, refused.http_status), (third, i32::from(v1::Gate::QueueFull), 429));
    assert_eq!((refused.retry_after_s, refused.in_flight, refused.limit), (1, 1, 1));

    bench.pool.cancel(1, first);
    assert_eq!(bench.pool.route_state().waiting, 1);
    bench.release(&holder);
    let (op, _) = bench.answer().await;
    assert_eq!(op, second, "the cancelled one is passed over");
    bench.pool.cancel(1, second);
    assert_eq!(bench.loads(), [1], "a grant is not undone by a late cancel");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_refused_after_the_queue_timeout_and_no_earlier() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1, "queue_timeout": "5s"})).await;
    bench.ask(Asked::default());
    let _holder = bench.granted().await;
    let early = bench.ask(Asked { waited: Duration::from_secs(2), ..Asked::default() });
    bench.ask(Asked::default());
    tokio::time::advance(Duration::from_millis(2999)).await;
    bench.pool.tick();
    assert!(bench.answers.try_recv().is_err());
    tokio::time::advance(Duration::from_millis(2)).await;
    bench.pool.tick();
    assert_eq!(bench.answer().await.0, early, "time waited before counts");
    assert!(bench.answers.try_recv().is_err());
    tokio::time::advance(Duration::from_secs(2)).await;
    bench.pool.tick();
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::QueueTimeout));
}

#[tokio::test]
async fn a_transfer_is_one_step_and_a_connect_error_takes_the_backend_out() {
    let mut bench = Bench::new(2, json!({"max_concurrency": 1})).await;
    bench.ask_for(1);
    let first = bench.granted().await;
    let failed =
        Failed { lease: LeaseId(first.lease), backend: BackendId::new(&first.backend).unwrap(), is_connect: true };
    let again = Asked { fingerprint: Some(session(1)), tried: vec![failed.backend.clone()], ..Asked::default() };
    bench.pool.transfer(9, &failed, again, &Arc::clone(&bench.caller));
    let second = bench.granted().await;
    assert_ne!(second.backend, first.backend);
    assert_eq!(second.retries, 1);
    assert_eq!(bench.loads().iter().sum::<u32>(), 1, "the first lease is given back");
    let states = bench.pool.backend_states();
    let is_out = |address: &str| {
        states.iter().any(|s| s.address == address && s.condition.is_some_and(|condition| condition.unhealthy))
    };
    assert!(is_out(&first.backend));

    // The last usable backend is not taken out by this.
    let failed =
        Failed { lease: LeaseId(second.lease), backend: BackendId::new(&second.backend).unwrap(), is_connect: true };
    let again = Asked { tried: vec![failed.backend.clone()], ..Asked::default() };
    bench.pool.transfer(10, &failed, again, &Arc::clone(&bench.caller));
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::NoMoreBackends));
    bench.ask(Asked::default());
    assert_eq!(bench.granted().await.backend, second.backend);
}

#[tokio::test]
async fn a_connection_that_ends_before_the_head_takes_no_backend_out() {
    let mut bench = Bench::new(3, json!({})).await;
    bench.ask(Asked::default());
    let first = bench.granted().await;
    let backend = BackendId::new(&first.backend).unwrap();
    let failed = Failed { lease: LeaseId(first.lease), backend: backend.clone(), is_connect: false };
    let again = Asked { tried: vec![backend], ..Asked::default() };
    bench.pool.transfer(9, &failed, again, &Arc::clone(&bench.caller));
    assert_ne!(bench.granted().await.backend, first.backend);
    let out = |state: &v1::BackendState| state.condition.is_some_and(|condition| condition.unhealthy);
    assert!(!bench.pool.backend_states().iter().any(out), "the request itself may be the cause");
    // It is chosen last for a while all the same.
    for _ in 0..20 {
        bench.ask(Asked::default());
        assert_ne!(bench.granted().await.backend, first.backend);
    }
}

#[tokio::test]
async fn a_replica_ends_no_lease_of_another() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 1})).await;
    bench.ask(Asked::default());
    let granted = bench.granted().await;
    let (other, mut heard) = stream("r2", 2);
    bench.pool.release(LeaseId(granted.lease), &other, &Answered::default());
    assert_eq!(bench.loads(), [1]);
    let failed =
        Failed { lease: LeaseId(granted.lease), backend: BackendId::new(&granted.backend).unwrap(), is_connect: false };
    bench.pool.transfer(5, &failed, Asked::default(), &other);
    assert_eq!(bench.loads(), [1]);
    assert!(heard.try_recv().is_err(), "it waits for the slot");
    bench.release(&granted);
    assert!(matches!(heard.recv().await.unwrap().kind, Some(Kind::Granted(_))));
}

#[tokio::test]
async fn hello_makes_leases_those_that_the_replica_reports() {
    let mut bench = Bench::new(1, json!({"max_concurrency": 4})).await;
    bench.ask(Asked::default());
    let kept = bench.granted().await;
    bench.ask(Asked::default());
    let lost = bench.granted().await;
    let (other, mut heard) = stream("r2", 2);
    bench.pool.acquire(1, Asked::default(), &other);
    assert!(heard.recv().await.is_some());
    let unknown = LeaseId::new(0, 77);
    let gone = BackendId::new("10.9.9.9:1").unwrap();
    let report =
        [held(kept.lease, Some(backend(0))), held(unknown.0, Some(backend(0))), held(unknown.0 + 1, Some(gone))];
    bench.pool.reconcile(&"r1".into(), &report);
    assert_eq!(bench.pool.leases_of("r1"), 3);
    assert_eq!(bench.pool.leases_of("r2"), 1, "another replica's are not touched");
    assert_eq!(bench.loads(), [3, 1], "one on a backend that has left the route");
    bench.release(&lost);
    assert_eq!(bench.loads(), [3, 1], "a lease ends once");
    bench.pool.drop_replica("r1");
    assert_eq!(bench.loads(), [1]);
}

#[tokio::test]
async fn a_replica_that_says_hello_again_or_dies_leaves_no_waiter_to_be_granted_a_lease() {
    for has_died in [false, true] {
        let mut bench = Bench::new(1, json!({"max_concurrency": 1})).await;
        bench.ask(Asked::default());
        bench.granted().await;
        bench.ask(Asked::default());
        let (other, mut heard) = stream("r2", 2);
        bench.pool.acquire(1, Asked::default(), &other);
        // The slot comes free by this very call; the replica's own waiter stands first in the queue.
        if has_died {
            assert_eq!(bench.pool.drop_replica("r1"), 1);
        } else {
            bench.pool.reconcile(&"r1".into(), &[]);
        }
        assert!(matches!(heard.try_recv().unwrap().kind, Some(Kind::Granted(_))), "whoever is there gets it");
        assert!(bench.answers.try_recv().is_err());
        assert_eq!((bench.pool.leases_of("r1"), bench.pool.leases_of("r2")), (0, 1));
        assert_eq!(bench.pool.route_state().waiting, 0);
    }
}

#[tokio::test]
async fn a_removed_backend_counts_until_its_last_lease_ends() {
    let mut bench = Bench::new(2, json!({"max_concurrency": 1})).await;
    bench.ask(Asked::default());
    let one = bench.granted().await;
    bench.ask(Asked::default());
    let two = bench.granted().await;
    let stays = if one.backend == backend(1).to_string() { &one } else { &two };
    let leaves = if one.backend == backend(1).to_string() { &two } else { &one };
    let spec = parse_route(&json!({"name": "chat", "options": {"max_concurrency": 1}, "backends": [stays.backend]}));
    bench.pool.install(Arc::new(spec.unwrap()));
    assert_eq!(bench.loads(), [1, 1]);
    bench.release(leaves);
    assert_eq!(bench.loads(), [1], "now it is gone");
    bench.release(stays);
    assert_eq!(bench.loads(), [0], "the other's slot has moved, its lease has not got lost");
}

#[tokio::test(start_paused = true)]
async fn idle_bindings_end_and_active_ones_do_not() {
    let mut bench = Bench::new(1, json!({"session_idle_ttl": "10s", "max_sessions": 2, "on_full": "evict_idle"})).await;
    bench.ask_for(1);
    let _in_use = bench.granted().await;
    bench.ask_for(2);
    let idle = bench.granted().await;
    bench.release(&idle);
    bench.ask_for(3);
    assert_eq!(bench.refused().await.gate, i32::from(v1::Gate::SessionTableFull), "nobody is idle for long enough");
    tokio::time::advance(Duration::from_secs(11)).await;
    bench.ask_for(3);
    bench.granted().await;
    let (sessions, _) = bench.pool.sessions(&SessionFilter::default(), 10);
    let left: HashSet<&str> = sessions.iter().map(|s| s.fingerprint.as_str()).collect();
    assert_eq!(left, HashSet::from([session(1).to_string().as_str(), session(3).to_string().as_str()]));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(bench.pool.sweep_idle());
    assert_eq!(bench.pool.sessions(&SessionFilter::default(), 10).1, 2, "both hold leases");
}

#[tokio::test]
async fn a_restart_keeps_sessions_where_they_are() {
    let mut bench = Bench::new(3, json!({})).await;
    let row = |number: u8, at: usize| BindingRow {
        route: bench.pool.name().clone(),
        fingerprint: session(number),
        backend: backend(at),
        dp_rank: None,
        created_unix_ms: 1,
        last_used_unix_ms: 2,
        requests: 5,
        moves: 0,
    };
    let rows = vec![row(1, 2), row(2, 2), row(3, 0)];
    bench.pool.restore_bindings(rows);
    assert_eq!(bench.pool.backend_states().iter().map(|s| s.sessions).collect::<Vec<_>>(), [1, 0, 2]);
    for (number, at) in [(1, 2), (2, 2), (3, 0)] {
        bench.ask_for(number);
        assert_eq!(bench.granted().await.backend, backend(at).to_string());
    }
    assert_eq!(bench.pool.forget(|_, on| *on == backend(2)), 2);
    assert_eq!(bench.pool.backend_states().iter().map(|s| s.sessions).collect::<Vec<_>>(), [1, 0, 0]);
}
