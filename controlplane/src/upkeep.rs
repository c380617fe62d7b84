//! What the control plane does by itself: queue deadlines, silent replicas, idle bindings, publishing, files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use router_policy::ids::RouteName;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fleet::Fleet;
use crate::pool::Pool;

/// How long replicas of the last start are waited for before others are welcomed, at most. Shorter than the default queue
/// timeout, so that a restart costs waiting requests time and nothing else.
const RECOVERY: Duration = Duration::from_secs(3);
/// How often each idle-binding walk goes on, and how long it rests after a round.
const SWEEP_REST: Duration = Duration::from_secs(10);
const SWEEP_PAUSE: Duration = Duration::from_millis(20);
/// How often the key store and the control file are read again (gateway.md §9: within 2 s).
const FILES_READ_EVERY: Duration = Duration::from_secs(1);
/// How often pools' flow control and payload counts are stored (design.md §4).
const FLOWS_STORED_EVERY: Duration = Duration::from_secs(1);
/// How often rows of toggles whose time is over are removed.
const TOGGLES_SWEPT_EVERY: Duration = Duration::from_secs(10);
/// How often the replicas' last-seen times are stored.
const REPLICAS_STORED_EVERY: Duration = Duration::from_secs(10);

/// Starts every task; they end with `shutdown`.
pub fn start(fleet: &Arc<Fleet>, tracker: &TaskTracker, shutdown: &CancellationToken) {
    let tasks: [std::pin::Pin<Box<dyn Future<Output = ()> + Send>>; 8] = [
        Box::pin(recover(Arc::clone(fleet))),
        Box::pin(watch_silence(Arc::clone(fleet))),
        Box::pin(sweep_idle(Arc::clone(fleet))),
        Box::pin(store_replicas(Arc::clone(fleet))),
        Box::pin(publish(Arc::clone(fleet), tracker.clone(), shutdown.clone())),
        Box::pin(follow_key_store(Arc::clone(fleet))),
        Box::pin(follow_control_file(Arc::clone(fleet))),
        Box::pin(forget_expired_toggles(Arc::clone(fleet))),
    ];
    for task in tasks {
        let shutdown = shutdown.clone();
        tracker.spawn(async move {
            tokio::select! {
                () = task => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    tracker.spawn(store_flows(Arc::clone(fleet), shutdown.clone()));
    // Has a last word to write after the shutdown.
    let fleet = Arc::clone(fleet);
    tracker.spawn(async move { fleet.write_backend_state().await });
}

/// After a start, waits a while for the replicas that were there before.
async fn recover(fleet: Arc<Fleet>) {
    tokio::time::sleep(RECOVERY.min(fleet.lease_ttl)).await;
    fleet.replicas.give_up_missing();
}

async fn watch_silence(fleet: Arc<Fleet>) {
    let every = (fleet.lease_ttl / 20).max(Duration::from_millis(20));
    let clock = fleet.context.clock;
    loop {
        let before = clock.now();
        tokio::time::sleep(every).await;
        let slept = clock.now().since(before);
        // A process that stood still (stopped, starved) has heard nobody. That is no silence of theirs: what they said
        // lies unread, and dropping their leases would give slots away that are in use.
        if let Some(stood_still) = slept.checked_sub(2 * every) {
            tracing::info!(ms = stood_still.as_millis(), "the control plane stood still; replicas get that time back");
            fleet.replicas.pardon(slept);
        }
        fleet.give_up_silent().await;
    }
}

async fn sweep_idle(fleet: Arc<Fleet>) {
    loop {
        let pools: Vec<Arc<Pool>> = fleet.pools().values().cloned().collect();
        for pool in pools {
            while !pool.sweep_idle() {
                tokio::time::sleep(SWEEP_PAUSE).await;
            }
        }
        tokio::time::sleep(SWEEP_REST).await;
    }
}

async fn store_replicas(fleet: Arc<Fleet>) {
    loop {
        tokio::time::sleep(REPLICAS_STORED_EVERY).await;
        let clock = fleet.context.clock;
        let rows = fleet.replicas.rows(|tick| clock.unix_ms(tick));
        if let Err(error) = fleet.store.save_replicas(&rows).await {
            tracing::debug!(%error, "replicas could not be stored");
        }
    }
}

async fn forget_expired_toggles(fleet: Arc<Fleet>) {
    loop {
        fleet.forget_expired_toggles().await;
        tokio::time::sleep(TOGGLES_SWEPT_EVERY).await;
    }
}

/// A write that has begun is carried to its end: what was taken for it is in no pool's list any more.
async fn store_flows(fleet: Arc<Fleet>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FLOWS_STORED_EVERY) => {}
            () = shutdown.cancelled() => return,
        }
        fleet.store_flows().await;
    }
}

async fn follow_key_store(fleet: Arc<Fleet>) {
    loop {
        tokio::time::sleep(FILES_READ_EVERY).await;
        fleet.follow_key_store().await;
    }
}

async fn follow_control_file(fleet: Arc<Fleet>) {
    loop {
        tokio::time::sleep(FILES_READ_EVERY).await;
        fleet.follow_control_file().await;
    }
}

/// Publishes changed pools, and keeps one deadline task per pool.
async fn publish(fleet: Arc<Fleet>, tracker: TaskTracker, shutdown: CancellationToken) {
    let mut deadlines: BTreeMap<RouteName, (Arc<Pool>, CancellationToken)> = BTreeMap::new();
    loop {
        fleet.publish_dirty();
        let pools = fleet.pools();
        deadlines.retain(|name, (known, stop)| {
            let stays = pools.get(name).is_some_and(|pool| Arc::ptr_eq(pool, known));
            if !stays {
                stop.cancel();
            }
            stays
        });
        for (name, pool) in pools.iter() {
            if !deadlines.contains_key(name) {
                let stop = shutdown.child_token();
                tracker.spawn(keep_deadlines(Arc::clone(&fleet), Arc::clone(pool), stop.clone()));
                deadlines.insert(name.clone(), (Arc::clone(pool), stop));
            }
        }
        fleet.context.publish.notified().await;
    }
}

async fn keep_deadlines(fleet: Arc<Fleet>, pool: Arc<Pool>, stop: CancellationToken) {
    let run = async {
        loop {
            match pool.tick() {
                Some(next) => {
                    let at = fleet.context.clock.instant(next);
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = pool.rearmed() => {}
                    }
                }
                None => pool.rearmed().await,
            }
        }
    };
    tokio::select! {
        () = run => {}
        () = stop.cancelled() => {}
    }
}
