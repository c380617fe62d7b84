//! Writes the backend state file (gateway.md §9): at each change, at most every [`AT_MOST_EVERY`], and at least every
//! [`AT_LEAST_EVERY`], so that a reader can tell a router that stands still from one that has nothing to say. The last state
//! of an orderly end has no active port.

use std::sync::Arc;
use std::time::Duration;

use router_policy::ids::RouteName;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Fleet;
use crate::files::atomic_write::{Hardness, Mode};
use crate::files::backend_state::{BackendStates, last_active_port};
use crate::files::bounded_read::read_bounded;
use crate::files::file_access::FileAccess;
use crate::files::health::FileHealth;
use crate::files::private_paths::Guard;
use crate::pool::Pool;

const AT_MOST_EVERY: Duration = Duration::from_millis(250);
const AT_LEAST_EVERY: Duration = Duration::from_secs(2);
/// Most that is read of an earlier start's file.
const MAX_BYTES: u64 = 16 << 20;

/// The file.
pub(super) struct StateFile {
    route: RouteName,
    pub(super) health: FileHealth,
    access: FileAccess,
    guard: Arc<Guard>,
}

impl StateFile {
    pub(super) fn new(route: RouteName, health: FileHealth, guard: Guard) -> Self {
        let access = FileAccess::new(health.path());
        Self { route, health, access, guard: Arc::new(guard) }
    }

    async fn write(&self, states: &BackendStates, now_unix_ms: u64, hardness: Hardness) {
        let text = states.print(now_unix_ms);
        match self.access.replace(text, Mode::Private, hardness, Arc::clone(&self.guard), |_| true).await {
            Ok(()) => self.health.good(now_unix_ms, ""),
            Err(problem) => self.health.bad(&format!("can't be written: {problem}; readers see an old state")),
        }
    }
}

impl Fleet {
    /// Writes the file until the control plane shuts down, and once more then.
    pub async fn write_backend_state(&self) {
        let Some(file) = &self.backend_state else { return };
        let known = file.access.run(|path| read_bounded(path, MAX_BYTES, 0)).await;
        let mut active_port = known.ok().and_then(Result::ok).and_then(|bytes| last_active_port(&bytes));
        let unix_ms = || self.context.clock.unix_ms(self.context.clock.now());
        let mut snapshot = self.hub.subscribe();
        let mut written: Option<(BackendStates, Instant)> = None;
        while !self.shutdown.is_cancelled() {
            // Subscribed before it is looked at: no change is missed.
            snapshot.mark_unchanged();
            let pool = self.pool_of(&file.route);
            let mut activity = pool.as_ref().map(|pool| pool.watch_activity());
            let states = Self::states_of(pool.as_deref(), active_port);
            active_port = states.active_port().or(active_port);
            if written.as_ref().is_none_or(|(last, at)| *last != states || at.elapsed() >= AT_LEAST_EVERY) {
                // Made anew every 2 s: only the first and the last are worth a sync.
                let hardness = if written.is_some() { Hardness::Soft } else { Hardness::Synced };
                file.write(&states, unix_ms(), hardness).await;
                written = Some((states, Instant::now()));
                tokio::select! {
                    () = sleep(AT_MOST_EVERY) => {}
                    () = self.shutdown.cancelled() => {}
                }
            }
            let at_latest = written.as_ref().map_or_else(Instant::now, |(_, at)| *at + AT_LEAST_EVERY);
            tokio::select! {
                () = changed(activity.as_mut()) => {}
                // Health, drains, and the route itself.
                _ = snapshot.changed() => {}
                () = sleep_until(at_latest) => {}
                () = self.shutdown.cancelled() => {}
            }
        }
        let last = Self::states_of(self.pool_of(&file.route).as_deref(), active_port).stopped();
        file.write(&last, unix_ms(), Hardness::Synced).await;
    }

    fn states_of(pool: Option<&Pool>, active_port: Option<u16>) -> BackendStates {
        BackendStates::new(&pool.map(Pool::backend_states).unwrap_or_default(), active_port)
    }

    /// The route's pool; that of a removed route while requests are in flight there.
    fn pool_of(&self, route: &RouteName) -> Option<Arc<Pool>> {
        let all = self.all_pools();
        let closed = || all.closed.get(route).filter(|pool| pool.in_flight() > 0);
        all.open.get(route).or_else(closed).cloned()
    }
}

async fn changed(activity: Option<&mut watch::Receiver<()>>) {
    let is_told = match activity {
        Some(activity) => activity.changed().await.is_ok(),
        None => false,
    };
    if !is_told {
        // There is no pool; the snapshot tells when there is one.
        std::future::pending::<()>().await;
    }
}
