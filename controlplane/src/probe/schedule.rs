//! When to probe. One loop per backend, so that a slow or dead one delays nobody else (routing.md §15).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use router_policy::ids::{BackendId, RouteName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http;
use crate::pool::Pool;

/// Probes at the same time, so that thousands of silent backends do not take every file descriptor.
const MOST_AT_ONCE: usize = 256;

/// The running loops.
pub struct Prober {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    turns: Arc<Semaphore>,
    loops: Mutex<HashMap<(RouteName, BackendId), CancellationToken>>,
}

impl Prober {
    /// With no loop.
    pub fn new(tracker: TaskTracker, shutdown: CancellationToken) -> Self {
        let turns = Arc::new(Semaphore::new(MOST_AT_ONCE));
        Self { tracker, shutdown, turns, loops: Mutex::new(HashMap::new()) }
    }

    /// Makes the loops of a pool those of its backends; new ones probe at once.
    pub fn follow(&self, pool: &Arc<Pool>) {
        let wanted: Vec<BackendId> = pool.probe_targets().into_iter().map(|(backend, _)| backend).collect();
        let mut loops = self.loops.lock();
        loops.retain(|(route, backend), stop| {
            let stays = route != pool.name() || wanted.contains(backend);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for backend in wanted {
            loops.entry((pool.name().clone(), backend.clone())).or_insert_with(|| {
                let stop = self.shutdown.child_token();
                self.tracker.spawn(probe_until(stop.clone(), Arc::clone(&self.turns), Arc::clone(pool), backend));
                stop
            });
        }
    }

    /// Ends the loops of a route.
    pub fn forget(&self, route: &RouteName) {
        self.loops.lock().retain(|(of, _), stop| {
            if of == route {
                stop.cancel();
            }
            of != route
        });
    }
}

/// Probes until stopped. Path and times are read anew each round, so that a changed option acts at once.
async fn probe_until(stop: CancellationToken, turns: Arc<Semaphore>, pool: Arc<Pool>, backend: BackendId) {
    let rounds = async {
        loop {
            let target = pool.probe_targets().into_iter().find(|(id, _)| *id == backend);
            let Some((_, path)) = target else {
                return;
            };
            let (interval, timeout) = pool.probe_times();
            let next = tokio::time::Instant::now() + interval;
            let Ok(turn) = turns.acquire().await else {
                return;
            };
            let seen = http::probe(&backend, &path, timeout).await;
            drop(turn);
            pool.record_probe(&backend, seen.probe, &seen.reason);
            tokio::time::sleep_until(next).await;
        }
    };
    tokio::select! {
        () = rounds => {}
        () = stop.cancelled() => {}
    }
}
