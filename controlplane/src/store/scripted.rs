//! A [`Store`] that does as the test says: slow, down, or refusing one session. Keeps every batch that it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use router_policy::ids::{BackendId, Fingerprint, LeaseId, RouteName};
use tokio::sync::Semaphore;

use super::{
    BindingTouch, BindingWrite, KeyRow, LeaseRow, MarkKind, MarkRow, ReplicaRow, RouteRow, Store, StoreError, Stored,
};

/// The script and the record.
pub(crate) struct ScriptedStore {
    pub(super) is_down: AtomicBool,
    /// Whether a database that is down has done the write before its answer was lost; every other time.
    pub(super) loses_answers: AtomicBool,
    /// Each write takes one permit; closed by `stepped`, plenty otherwise.
    pub(super) steps: Semaphore,
    pub(super) refused: Mutex<Option<Fingerprint>>,
    pub(super) attempts: AtomicUsize,
    pub(super) batches: Mutex<Vec<Vec<BindingWrite>>>,
    pub(super) leases: Mutex<Vec<(Vec<LeaseRow>, Vec<LeaseId>)>>,
    pub(super) touches: Mutex<Vec<Vec<BindingTouch>>>,
}

impl ScriptedStore {
    fn with_steps(steps: usize) -> Arc<Self> {
        Arc::new(Self {
            is_down: AtomicBool::new(false),
            loses_answers: AtomicBool::new(false),
            steps: Semaphore::new(steps),
            refused: Mutex::new(None),
            attempts: AtomicUsize::new(0),
            batches: Mutex::default(),
            leases: Mutex::default(),
            touches: Mutex::default(),
        })
    }

    pub(crate) fn ready() -> Arc<Self> {
        Self::with_steps(Semaphore::MAX_PERMITS)
    }

    /// Each write waits for `steps.add_permits(1)`.
    pub(super) fn stepped() -> Arc<Self> {
        Self::with_steps(0)
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Does `write`, or not, and answers, or not.
    async fn step(&self, write: impl FnOnce() + Send) -> Result<(), StoreError> {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        self.steps.acquire().await.unwrap().forget();
        let is_down = self.is_down.load(Ordering::SeqCst);
        if !is_down || (self.loses_answers.load(Ordering::SeqCst) && attempt.is_multiple_of(2)) {
            write();
        }
        if is_down { Err(StoreError::Unreachable("scripted".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for ScriptedStore {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    async fn begin_epoch(&self) -> Result<u64, StoreError> {
        Ok(1)
    }

    async fn fingerprint_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        Ok(fresh)
    }

    async fn load(&self) -> Result<Stored, StoreError> {
        Ok(Stored::default())
    }

    async fn save_routes_marked(&self, _: &[RouteRow], _: &[RouteName], _: &[MarkRow]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn save_bindings(&self, writes: &[BindingWrite]) -> Result<(), StoreError> {
        let refused = *self.refused.lock();
        let hits = |write: &BindingWrite| match write {
            BindingWrite::Put(row) => Some(row.fingerprint) == refused,
            BindingWrite::Forget { fingerprint, .. } => Some(*fingerprint) == refused,
        };
        if writes.iter().any(hits) {
            return Err(StoreError::Other("scripted".into()));
        }
        self.step(|| self.batches.lock().push(writes.to_vec())).await
    }

    async fn touch_bindings(&self, touches: &[BindingTouch]) -> Result<(), StoreError> {
        self.step(|| self.touches.lock().push(touches.to_vec())).await
    }

    async fn save_leases(&self, put: &[LeaseRow], remove: &[LeaseId]) -> Result<(), StoreError> {
        self.step(|| self.leases.lock().push((put.to_vec(), remove.to_vec()))).await
    }

    async fn save_marks(&self, _: &[MarkRow], _: &[(RouteName, BackendId, MarkKind)]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn save_flows(&self, _: &[crate::store::FlowRow]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn save_payload_counts(&self, _: &[crate::store::PayloadCountsRow]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn save_toggles(
        &self,
        _: &[crate::store::ToggleRow],
        _: &[(RouteName, String, String)],
    ) -> Result<(), StoreError> {
        Ok(())
    }

    async fn add_key(&self, _: &KeyRow) -> Result<(), StoreError> {
        Ok(())
    }

    async fn remove_key(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn save_replicas(&self, _: &[ReplicaRow]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn remove_replica(&self, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.step(|| ()).await
    }
}
