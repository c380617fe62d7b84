//! Time is paused: a sleep passes at once when nothing else can run.

use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::store::BindingTouch;
use crate::store::contract_tests::{lease, route, session};
use crate::store::scripted::ScriptedStore;

struct Fixture {
    store: Arc<ScriptedStore>,
    journal: Arc<Journal>,
    health: Arc<StoreHealth>,
    shutdown: CancellationToken,
    tracker: TaskTracker,
}

impl Fixture {
    async fn new(store: Arc<ScriptedStore>) -> Self {
        let (tracker, shutdown, health) = (TaskTracker::new(), CancellationToken::new(), StoreHealth::new());
        let shared: Arc<dyn Store> = Arc::<ScriptedStore>::clone(&store);
        let journal = Journal::start(shared, &tracker, shutdown.clone(), Arc::clone(&health));
        // Past the first tick, which is at once.
        pass(1).await;
        Self { store, journal, health, shutdown, tracker }
    }

    fn grant(&self, number: u64) -> LeaseId {
        let row = lease("chat", number, "r1");
        let id = row.lease;
        self.journal.lease_granted(row);
        id
    }

    fn touch(&self, number: u32, at_unix_ms: u64) {
        self.journal.touched(&route("chat"), session(number), at_unix_ms);
    }

    /// The flushes so far: leases put and removed, each ordered.
    fn flushes(&self) -> Vec<(Vec<LeaseId>, Vec<LeaseId>)> {
        let flushes = self.store.leases.lock();
        let sorted = |mut ids: Vec<LeaseId>| {
            ids.sort_unstable();
            ids
        };
        flushes
            .iter()
            .map(|(put, remove)| (sorted(put.iter().map(|row| row.lease).collect()), sorted(remove.clone())))
            .collect()
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn used(number: u32, last_used_unix_ms: u64, more_requests: u64) -> BindingTouch {
    BindingTouch { route: route("chat"), fingerprint: session(number), last_used_unix_ms, more_requests }
}

#[tokio::test(start_paused = true)]
async fn short_leases_are_never_written() {
    let fixture = Fixture::new(ScriptedStore::ready()).await;
    for number in 0..1_000 {
        let id = fixture.grant(number);
        pass(u64::from(number % 100 == 0)).await;
        fixture.journal.lease_ended(id);
    }
    pass(200).await;
    assert_eq!(fixture.flushes(), []);
    assert_eq!(fixture.store.attempts.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn longer_leases_are_written_within_50_ms_and_removed() {
    let fixture = Fixture::new(ScriptedStore::ready()).await;
    let (one, two) = (fixture.grant(1), fixture.grant(2));
    pass(51).await;
    assert_eq!(fixture.flushes(), [(vec![one, two], vec![])]);
    fixture.journal.lease_ended(one);
    let three = fixture.grant(3);
    // One that was in the database at start.
    fixture.journal.lease_ended(LeaseId(9));
    pass(51).await;
    assert_eq!(fixture.flushes()[1..], [(vec![three], vec![LeaseId(9), one])]);
    assert_eq!(fixture.journal.leases_written(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failed_flush_is_merged_with_what_came_since() {
    let fixture = Fixture::new(ScriptedStore::ready()).await;
    let (one, two) = (fixture.grant(1), fixture.grant(2));
    fixture.store.set_down(true);
    pass(60).await;
    assert!(!fixture.health.is_ok());
    // It may have been written before the answer was lost: it is not put again, and removed.
    fixture.journal.lease_ended(one);
    let three = fixture.grant(3);
    let (four, five) = (fixture.grant(4), fixture.grant(5));
    fixture.journal.lease_ended(four);
    pass(5_000).await;
    // About one attempt per second.
    assert!(fixture.store.attempts.load(SeqCst) <= 7);
    fixture.store.set_down(false);
    pass(1_100).await;
    assert_eq!(fixture.flushes(), [(vec![two, three, five], vec![one])]);
    assert!(fixture.health.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_during_its_flush_is_removed_after_it() {
    let fixture = Fixture::new(ScriptedStore::stepped()).await;
    let one = fixture.grant(1);
    pass(60).await;
    fixture.journal.lease_ended(one);
    fixture.store.steps.add_permits(2);
    pass(60).await;
    assert_eq!(fixture.flushes(), [(vec![one], vec![]), (vec![], vec![one])]);
}

/// Random grants, changes and ends against random outages: the database ends as the memory does.
#[tokio::test(start_paused = true)]
async fn the_database_ends_as_the_memory_does() {
    for seed in 0..20u64 {
        let fixture = Fixture::new(ScriptedStore::ready()).await;
        fixture.store.loses_answers.store(true, SeqCst);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut memory = std::collections::BTreeMap::new();
        for step in 0..2_000 {
            let mut row = lease("chat", random(60), "r1");
            row.granted_unix_ms = step;
            if random(2) == 0 {
                memory.insert(row.lease, row.clone());
                fixture.journal.lease_granted(row);
            } else if memory.remove(&row.lease).is_some() {
                fixture.journal.lease_ended(row.lease);
            }
            if random(20) == 0 {
                fixture.store.set_down(random(2) == 0);
                pass(random(120)).await;
            }
        }
        fixture.store.set_down(false);
        fixture.journal.flush_now().await.unwrap();
        let mut stored = std::collections::BTreeMap::new();
        for (put, remove) in &*fixture.store.leases.lock() {
            for lease in remove {
                stored.remove(lease);
            }
            stored.extend(put.iter().map(|row| (row.lease, row.clone())));
        }
        assert_eq!(stored, memory, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn touches_are_summed_for_a_second() {
    let fixture = Fixture::new(ScriptedStore::ready()).await;
    fixture.touch(1, 100);
    fixture.touch(1, 300);
    fixture.touch(1, 200);
    pass(900).await;
    assert!(fixture.store.touches.lock().is_empty());
    pass(200).await;
    assert_eq!(*fixture.store.touches.lock(), [vec![used(1, 300, 3)]]);

    fixture.store.set_down(true);
    fixture.touch(1, 400);
    pass(1_000).await;
    fixture.touch(1, 350);
    pass(3_000).await;
    fixture.store.set_down(false);
    pass(2_100).await;
    assert_eq!(fixture.store.touches.lock()[1..], [vec![used(1, 400, 2)]]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_flush_loses_nothing() {
    let fixture = Fixture::new(ScriptedStore::stepped()).await;
    fixture.shutdown.cancel();
    fixture.tracker.close();
    fixture.tracker.wait().await;
    let one = fixture.grant(1);
    fixture.touch(1, 100);
    let dropped = tokio::time::timeout(Duration::from_millis(5), fixture.journal.flush_now()).await;
    assert!(dropped.is_err());
    fixture.store.steps.add_permits(2);
    fixture.journal.flush_now().await.unwrap();
    assert_eq!(fixture.flushes(), [(vec![one], vec![])]);
    assert_eq!(*fixture.store.touches.lock(), [vec![used(1, 100, 1)]]);
    fixture.journal.flush_now().await.unwrap();
    assert_eq!(fixture.store.attempts.load(SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn pings_find_out_that_the_database_is_back() {
    let fixture = Fixture::new(ScriptedStore::ready()).await;
    let store: Arc<dyn Store> = Arc::<ScriptedStore>::clone(&fixture.store);
    fixture.health.start_pings(store, &fixture.tracker, fixture.shutdown.clone());
    pass(10_000).await;
    assert_eq!(fixture.store.attempts.load(SeqCst), 0);
    fixture.store.set_down(true);
    fixture.grant(1);
    let mut changes = fixture.health.subscribe();
    changes.wait_for(|state| !state.is_ok).await.unwrap();
    let lost = fixture.health.state();
    assert!(lost.last_error.is_some_and(|text| text.contains("unreachable")));
    pass(10_000).await;
    fixture.store.set_down(false);
    changes.wait_for(|state| state.is_ok).await.unwrap();
    assert!(fixture.health.state().since - lost.since < Duration::from_millis(10_600));
    assert_eq!(fixture.health.outages(), 1);
}
