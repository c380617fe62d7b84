//! Time is paused: a sleep passes at once when nothing else can run.

use std::sync::atomic::Ordering::SeqCst;

use router_policy::ids::{BackendId, Fingerprint};

use super::*;
use crate::store::contract_tests::{binding, forget, put, session};
use crate::store::scripted::ScriptedStore;

struct Fixture {
    store: Arc<ScriptedStore>,
    committer: Committer,
    health: Arc<StoreHealth>,
    shutdown: CancellationToken,
    tracker: TaskTracker,
    told: Arc<Mutex<Vec<(u32, Durability)>>>,
}

impl Fixture {
    fn new(store: Arc<ScriptedStore>) -> Self {
        let (tracker, shutdown, health) = (TaskTracker::new(), CancellationToken::new(), StoreHealth::new());
        let shared: Arc<dyn Store> = Arc::<ScriptedStore>::clone(&store);
        let committer = Committer::start(shared, &tracker, shutdown.clone(), Arc::clone(&health));
        Self { store, committer, health, shutdown, tracker, told: Arc::default() }
    }

    /// Submits with a name for its waiter.
    fn submit(&self, name: u32, write: Option<BindingWrite>, limit_ms: u64) -> u64 {
        let told = Arc::clone(&self.told);
        let deadline = Instant::now() + Duration::from_millis(limit_ms);
        self.committer.submit(write, deadline, move |durability| told.lock().push((name, durability)))
    }

    fn told(&self) -> Vec<(u32, Durability)> {
        std::mem::take(&mut *self.told.lock())
    }

    fn batches(&self) -> Vec<Vec<BindingWrite>> {
        self.store.batches.lock().clone()
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn written(names: impl IntoIterator<Item = u32>) -> Vec<(u32, Durability)> {
    names.into_iter().map(|name| (name, Durability::Written)).collect()
}

#[tokio::test(start_paused = true)]
async fn writes_that_wait_share_a_transaction() {
    let fixture = Fixture::new(ScriptedStore::stepped());
    fixture.submit(0, Some(put("chat", 0)), 60_000);
    pass(1).await;
    for number in 1..=500 {
        assert_eq!(fixture.submit(number, Some(put("chat", number)), 60_000), u64::from(number) + 1);
    }
    pass(1).await;
    assert_eq!((fixture.told(), fixture.committer.committed()), (vec![], 0));

    fixture.store.steps.add_permits(1);
    pass(1).await;
    assert_eq!((fixture.told(), fixture.committer.committed()), (written([0]), 1));
    fixture.store.steps.add_permits(1);
    pass(1).await;
    assert_eq!((fixture.told(), fixture.committer.committed()), (written(1..=500), 501));
    assert_eq!(fixture.batches().iter().map(Vec::len).collect::<Vec<_>>(), [1, 500]);
    assert_eq!(fixture.batches()[1], (1..=500).map(|number| put("chat", number)).collect::<Vec<_>>());
    let counts = fixture.committer.counts();
    assert_eq!((counts.transactions, counts.written, counts.queued_writes), (2, 501, 0));
}

/// The control for the test above: with a pause between them, nothing is shared.
#[tokio::test(start_paused = true)]
async fn writes_that_come_apart_are_written_apart() {
    let fixture = Fixture::new(ScriptedStore::ready());
    for number in 0..50 {
        fixture.submit(number, Some(put("chat", number)), 60_000);
        pass(1).await;
    }
    assert_eq!(fixture.batches().len(), 50);
    assert_eq!(fixture.told(), written(0..50));
}

#[tokio::test(start_paused = true)]
async fn a_barrier_waits_for_what_came_before_it_and_for_nothing_else() {
    let fixture = Fixture::new(ScriptedStore::stepped());
    fixture.submit(0, None, 60_000);
    pass(1).await;
    assert_eq!((fixture.told(), fixture.store.attempts.load(SeqCst)), (written([0]), 0));

    fixture.submit(1, Some(put("chat", 1)), 60_000);
    pass(1).await;
    fixture.submit(2, None, 60_000);
    fixture.submit(3, Some(put("chat", 2)), 60_000);
    fixture.submit(4, None, 60_000);
    pass(1).await;
    assert_eq!(fixture.told(), []);
    fixture.store.steps.add_permits(1);
    pass(1).await;
    assert_eq!(fixture.told(), written([1, 2]));
    fixture.store.steps.add_permits(1);
    pass(1).await;
    assert_eq!(fixture.told(), written([3, 4]));
}

#[tokio::test(start_paused = true)]
async fn an_outage_makes_waiters_provisional_and_loses_no_write() {
    let fixture = Fixture::new(ScriptedStore::ready());
    fixture.store.set_down(true);
    fixture.submit(1, Some(put("chat", 1)), 500);
    fixture.submit(2, Some(put("chat", 2)), 200);
    fixture.submit(3, None, 300);
    fixture.submit(4, Some(put("chat", 3)), 60_000);
    pass(190).await;
    assert_eq!(fixture.told(), []);
    assert!(!fixture.health.is_ok());
    pass(30).await;
    assert_eq!(fixture.told(), [(2, Durability::Provisional)]);
    pass(300).await;
    assert_eq!(fixture.told(), [(3, Durability::Provisional), (1, Durability::Provisional)]);
    // At most one attempt per second, once it has lasted.
    let before = fixture.store.attempts.load(SeqCst);
    pass(10_000).await;
    assert!((8..=11).contains(&(fixture.store.attempts.load(SeqCst) - before)));
    assert_eq!(fixture.committer.committed(), 0);

    fixture.store.set_down(false);
    pass(1_100).await;
    assert_eq!(fixture.told(), written([4]));
    assert_eq!(fixture.batches(), [vec![put("chat", 1), put("chat", 2), put("chat", 3)]]);
    assert_eq!(fixture.committer.committed(), 4);
    assert!(fixture.health.is_ok());
    assert_eq!(fixture.committer.counts().provisional, 3);
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_kept_while_a_write_hangs() {
    let fixture = Fixture::new(ScriptedStore::stepped());
    fixture.submit(1, Some(put("chat", 1)), 100);
    pass(50).await;
    fixture.submit(2, Some(put("chat", 2)), 20);
    pass(31).await;
    assert_eq!(fixture.told(), [(2, Durability::Provisional)]);
    pass(40).await;
    assert_eq!(fixture.told(), [(1, Durability::Provisional)]);
    fixture.store.steps.add_permits(2);
    pass(1).await;
    assert_eq!((fixture.batches().len(), fixture.told()), (2, vec![]));
}

#[tokio::test(start_paused = true)]
async fn queued_writes_of_one_session_become_the_newest() {
    let fixture = Fixture::new(ScriptedStore::ready());
    fixture.store.set_down(true);
    fixture.submit(1, Some(put("chat", 1)), 60_000);
    pass(1).await;
    let mut moved = binding("chat", 1);
    moved.backend = BackendId::new("10.0.0.9:1").unwrap();
    for name in 0..1_000 {
        fixture.submit(name, Some(put("chat", 1)), 60_000);
        fixture.submit(name, Some(put("chat", 2)), 60_000);
        fixture.submit(name, Some(forget("chat", 3)), 60_000);
    }
    fixture.submit(2, Some(BindingWrite::Put(moved.clone())), 60_000);
    pass(1_000).await;
    assert_eq!(fixture.committer.counts().queued_writes, 3);
    fixture.store.set_down(false);
    pass(1_100).await;
    assert_eq!(fixture.batches(), [vec![BindingWrite::Put(moved), put("chat", 2), forget("chat", 3)]]);
    assert_eq!(fixture.told().len(), 3_002);
    assert_eq!(fixture.committer.committed(), 3_002);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_new_sessions_and_says_so() {
    let fixture = Fixture::new(ScriptedStore::ready());
    fixture.store.set_down(true);
    let numbers = 0..u32::try_from(QUEUE_LIMIT).unwrap();
    for number in numbers.clone() {
        let _ = fixture.committer.submit(Some(put("chat", number)), Instant::now(), |_| ());
    }
    pass(50).await;
    fixture.submit(1, Some(put("chat", 0)), 60_000);
    fixture.submit(2, Some(put("other", 0)), 60_000);
    pass(20).await;
    assert_eq!(fixture.told(), [(2, Durability::Provisional)]);
    let counts = fixture.committer.counts();
    assert_eq!((counts.queued_writes, counts.dropped), (QUEUE_LIMIT as u64, 1));
    fixture.store.set_down(false);
    assert_eq!(fixture.committer.flush().await, Durability::Written);
    assert_eq!(fixture.told(), written([1]));
    assert!(fixture.batches().iter().all(|batch| batch.len() <= BATCH_LIMIT));
    assert_eq!(fixture.committer.counts().written, QUEUE_LIMIT as u64);
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_given_up_alone() {
    for refused in [0, 5, 63] {
        let fixture = Fixture::new(ScriptedStore::ready());
        *fixture.store.refused.lock() = Some(session(refused));
        for number in 0..64 {
            fixture.submit(number, Some(put("chat", number)), 60_000);
        }
        pass(1_000).await;
        let expected = (0..64).map(|number| match number {
            number if number == refused => (number, Durability::Provisional),
            number => (number, Durability::Written),
        });
        assert_eq!(fixture.told(), expected.collect::<Vec<_>>());
        let all: Vec<_> = (0..64).filter(|number| *number != refused).map(|number| put("chat", number)).collect();
        assert_eq!(fixture.batches().concat(), all);
        assert_eq!((fixture.committer.counts().dropped, fixture.committer.committed()), (1, 64));
        assert!(fixture.health.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_is_queued_and_tells_everyone() {
    let fixture = Fixture::new(ScriptedStore::ready());
    fixture.submit(1, Some(put("chat", 1)), 60_000);
    fixture.shutdown.cancel();
    fixture.tracker.close();
    fixture.tracker.wait().await;
    assert_eq!((fixture.told(), fixture.batches().len()), (written([1]), 1));
    fixture.submit(2, Some(put("chat", 2)), 60_000);
    assert_eq!(fixture.committer.flush().await, Durability::Provisional);

    let fixture = Fixture::new(ScriptedStore::ready());
    fixture.store.set_down(true);
    fixture.submit(1, Some(put("chat", 1)), 60_000);
    pass(300).await;
    assert_eq!(fixture.committer.flush().await, Durability::Provisional);
    fixture.shutdown.cancel();
    fixture.tracker.close();
    fixture.tracker.wait().await;
    assert_eq!(fixture.told(), [(1, Durability::Provisional)]);
}

/// Random submissions against random outages: the database ends with each session's last write, and every waiter is told.
#[tokio::test(start_paused = true)]
async fn the_database_ends_as_the_memory_does() {
    for seed in 0..20u64 {
        let fixture = Fixture::new(ScriptedStore::ready());
        fixture.store.loses_answers.store(true, SeqCst);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut memory: std::collections::BTreeMap<Fingerprint, BindingWrite> = std::collections::BTreeMap::new();
        for name in 0..2_000 {
            let number = u32::try_from(random(40)).unwrap();
            let write = if random(4) == 0 {
                forget("chat", number)
            } else {
                let mut row = binding("chat", number);
                row.requests = u64::from(name);
                BindingWrite::Put(row)
            };
            memory.insert(session(number), write.clone());
            fixture.submit(name, Some(write), random(800));
            if random(10) == 0 {
                fixture.store.set_down(random(2) == 0);
                pass(random(40)).await;
            }
        }
        fixture.store.set_down(false);
        assert_eq!(fixture.committer.flush().await, Durability::Written);
        let mut stored = std::collections::BTreeMap::new();
        for write in fixture.batches().concat() {
            let fingerprint = match &write {
                BindingWrite::Put(row) => row.fingerprint,
                BindingWrite::Forget { fingerprint, .. } => *fingerprint,
            };
            stored.insert(fingerprint, write);
        }
        assert_eq!(stored, memory, "seed {seed}");
        let mut names: Vec<u32> = fixture.told().into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names, (0..2_000).collect::<Vec<_>>());
    }
}
