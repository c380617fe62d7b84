//! Writes the backend state file (gateway.md §9): at each change, at most every [`AT_MOST_EVERY`], and at least every
//! [`AT_LEAST_EVERY`], so that a reader can tell a router that stands still from one that has nothing to say.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use router_policy::ids::RouteName;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::Fleet;
use crate::files::atomic_write::{Hardness, replace};
use crate::files::backend_state::{BackendStates, last_active_port};
use crate::files::bounded_read::read_bounded;
use crate::files::health::FileHealth;
use crate::pool::Pool;

const AT_MOST_EVERY: Duration = Duration::from_millis(250);
const AT_LEAST_EVERY: Duration = Duration::from_secs(2);
/// Nobody else may read it.
const MODE: u32 = 0o600;
/// Most that is read of an earlier start's file.
const MAX_BYTES: u64 = 16 << 20;

/// The file.
pub(super) struct StateFile {
    path: PathBuf,
    route: RouteName,
    pub(super) health: FileHealth,
}

impl StateFile {
    pub(super) fn new(route: RouteName, health: FileHealth) -> Self {
        Self { path: health.path().to_owned(), route, health }
    }

    async fn write(&self, text: String, now_unix_ms: u64) {
        let path = self.path.clone();
        // Made anew every 2 s: not worth a sync.
        let written = spawn_blocking(move || replace(&path, text.as_bytes(), MODE, Hardness::Soft)).await;
        match written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok(()) => self.health.good(now_unix_ms, ""),
            Err(error) => self.health.bad(&format!("can't be written: {error}; readers see an old state")),
        }
    }
}

impl Fleet {
    /// Writes the file for ever.
    pub async fn write_backend_state(&self) {
        let Some(file) = &self.backend_state else { return };
        let path = file.path.clone();
        let known = spawn_blocking(move || read_bounded(&path, MAX_BYTES, 0)).await;
        let mut active_port = known.ok().and_then(Result::ok).and_then(|bytes| last_active_port(&bytes));
        let mut snapshot = self.hub.subscribe();
        let mut written: Option<(BackendStates, Instant)> = None;
        loop {
            // Subscribed before it is looked at: no change is missed.
            snapshot.mark_unchanged();
            let pool = self.pool_of(&file.route);
            let mut activity = pool.as_ref().map(|pool| pool.watch_activity());
            let states = pool.as_ref().map(|pool| pool.backend_states()).unwrap_or_default();
            let states = BackendStates::new(&states, active_port);
            active_port = states.active_port();
            if written.as_ref().is_none_or(|(last, at)| *last != states || at.elapsed() >= AT_LEAST_EVERY) {
                let now_unix_ms = self.context.clock.unix_ms(self.context.clock.now());
                file.write(states.print(now_unix_ms), now_unix_ms).await;
                written = Some((states, Instant::now()));
                sleep(AT_MOST_EVERY).await;
            }
            let at_latest = written.as_ref().map_or_else(Instant::now, |(_, at)| *at + AT_LEAST_EVERY);
            tokio::select! {
                () = changed(activity.as_mut()) => {}
                // Health, drains, and the route itself.
                _ = snapshot.changed() => {}
                () = sleep_until(at_latest) => {}
            }
        }
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
