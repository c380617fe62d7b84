//! Bans and health, written behind: on change, at most each second (design.md §4). Drains by the control file pass here too,
//! for the file keeps them. What an operator marks is durable before the answer: [`MarkJournal::write_now`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::ids::{BackendId, RouteName};
use tokio_util::sync::CancellationToken;

use crate::store::{MarkKind, MarkRow, Store, StoreError};

/// How long a change may stay in memory only.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Which mark.
pub type Key = (RouteName, BackendId, MarkKind);

/// Changes that the database has not seen yet; bounded by the number of backends.
#[derive(Default)]
pub struct MarkJournal {
    /// `None`: the mark goes.
    changes: Mutex<BTreeMap<Key, Option<MarkRow>>>,
    /// Held over each write: an older word must not reach the database after a newer one.
    writing: tokio::sync::Mutex<()>,
}

impl MarkJournal {
    /// Notes a mark.
    pub fn put(&self, row: MarkRow) {
        self.changes.lock().insert((row.route.clone(), row.backend.clone(), row.kind), Some(row));
    }

    /// Notes that a mark goes.
    pub fn remove(&self, route: &RouteName, backend: &BackendId, kind: MarkKind) {
        self.changes.lock().insert((route.clone(), backend.clone(), kind), None);
    }

    /// Writes what has gathered. What can't be written stays, unless something newer has come.
    pub async fn flush(&self, store: &dyn Store) {
        let _alone = self.writing.lock().await;
        let changes = std::mem::take(&mut *self.changes.lock());
        if changes.is_empty() {
            return;
        }
        let put: Vec<MarkRow> = changes.values().flatten().cloned().collect();
        let remove: Vec<Key> = changes.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key.clone()).collect();
        if store.save_marks(&put, &remove).await.is_err() {
            let mut newer = self.changes.lock();
            for (key, row) in changes {
                newer.entry(key).or_insert(row);
            }
        }
    }

    /// Writes marks at once; what is queued for them is out of date then, and dropped.
    pub async fn write_now(&self, store: &dyn Store, put: &[MarkRow], remove: &[Key]) -> Result<(), StoreError> {
        let _alone = self.writing.lock().await;
        store.save_marks(put, remove).await?;
        let mut changes = self.changes.lock();
        let written = put.iter().map(|row| (row.route.clone(), row.backend.clone(), row.kind));
        for key in written.chain(remove.iter().cloned()) {
            changes.remove(&key);
        }
        Ok(())
    }

    /// Flushes each second until shutdown, and once more then.
    pub async fn run(self: Arc<Self>, store: Arc<dyn Store>, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(FLUSH_EVERY) => self.flush(&*store).await,
                () = shutdown.cancelled() => {
                    self.flush(&*store).await;
                    return;
                }
            }
        }
    }
}
