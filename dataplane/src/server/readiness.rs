//! Whether the replica can serve. Liveness is not asked here: it depends on nothing (conventions §1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::coordinate::Admission;
use crate::snapshot::SnapshotStore;

/// A link that is lost for no longer than this is no reason to be taken out: streams go on, and new requests wait for the
/// link (a control plane restarts in less). Shorter would have a load balancer drop every replica at once.
const LINK_PATIENCE: Duration = Duration::from_secs(5);

/// Why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotReady {
    Draining,
    NoSnapshot,
    NoLink,
}

impl NotReady {
    /// The body of `/readyz`.
    pub(crate) fn json(self) -> &'static str {
        match self {
            Self::Draining => r#"{"status":"not ready","reason":"draining"}"#,
            Self::NoSnapshot => r#"{"status":"not ready","reason":"no configuration from the control plane yet"}"#,
            Self::NoLink => r#"{"status":"not ready","reason":"no link to the control plane"}"#,
        }
    }
}

/// Reads the parts that must be in order.
#[derive(Debug)]
pub(crate) struct Readiness {
    snapshots: Arc<SnapshotStore>,
    admission: Arc<Admission>,
    is_draining: AtomicBool,
}

impl Readiness {
    pub(crate) fn new(snapshots: Arc<SnapshotStore>, admission: Arc<Admission>) -> Self {
        Self { snapshots, admission, is_draining: AtomicBool::new(false) }
    }

    pub(crate) fn check(&self) -> Result<(), NotReady> {
        if self.is_draining.load(Ordering::Relaxed) {
            Err(NotReady::Draining)
        } else if self.snapshots.load().is_none() {
            Err(NotReady::NoSnapshot)
        } else if !self.admission.is_linked_within(LINK_PATIENCE) {
            Err(NotReady::NoLink)
        } else {
            Ok(())
        }
    }

    /// From now on the answer is no.
    pub(crate) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Ends when the answer may be yes for the first time.
    pub(crate) async fn ready(&self) {
        self.snapshots.arrived().await;
        self.admission.linked().await;
    }
}
