//! The control file (gateway.md §9): with the drain marks of its route, one state with two doors.
//!
//! The file has the last word. It is read at start before anything is admitted and about each second after that, and the
//! drains of its route are made what it says. An operator's drain through the other door is an edit of the file, on top of
//! whatever stands there by then; so whichever door was used last wins, and after kill -9 between two steps the file does.
//!
//! * A backend that is added to a route that exists is enabled in the file: adding it is the operator's word. When the
//!   route itself is new, the file decides.
//! * A backend that is removed takes its entry along. Entries that mean no backend stay where they are.
//! * A file that is missing or not valid is written only by an undrain, which lists what it undrains and nothing else.
//!
//! Every change of the marks and of the file is made under the lock of the specs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::gateway_file::control_file::{Content, MAX_BYTES};
use router_policy::ids::{BackendId, RouteName};
use router_policy::route::RouteSpec;
use tokio::task::spawn_blocking;

use super::Fleet;
use super::config::Specs;
use crate::error::AdminError;
use crate::files::atomic_write::{Hardness, replace};
use crate::files::bounded_read::read_bounded;
use crate::files::control_file::Reading;
use crate::files::health::FileHealth;
use crate::store::{MarkKind, MarkRow};

/// A file that gives nothing is looked at again before admission closes, or an undrain takes it for lost: somebody may be
/// writing it in place.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Permission bits that a rewritten file keeps.
const KEPT_BITS: u32 = 0o755;

/// The file and what it said last.
pub(super) struct ControlFile {
    path: PathBuf,
    pub(super) route: RouteName,
    pub(super) health: FileHealth,
    last: Mutex<Option<Reading>>,
}

impl ControlFile {
    pub(super) fn new(route: RouteName, health: FileHealth) -> Self {
        Self { path: health.path().to_owned(), route, health, last: Mutex::default() }
    }

    /// What the file says now. One that has just come to say nothing is looked at again.
    pub(super) async fn read(&self) -> Reading {
        let reading = self.read_once().await;
        if !self.looks_unfinished(&reading) {
            return reading;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        self.read_once().await
    }

    async fn read_once(&self) -> Reading {
        let path = self.path.clone();
        match spawn_blocking(move || read_bounded(&path, MAX_BYTES, 0)).await {
            Ok(read) => Reading::new(read),
            Err(_) => Reading::Bad("could not be read".to_owned()),
        }
    }

    /// Changes what the file says now; `change` gives `None` to leave it. Returns what stands there afterwards.
    pub(super) async fn edit(&self, change: impl FnOnce(&Reading) -> Option<Content>) -> Result<Reading, AdminError> {
        let reading = self.read().await;
        let Some(content) = change(&reading).filter(|content| reading != Reading::Listed(content.clone())) else {
            return Ok(reading);
        };
        let (path, text) = (self.path.clone(), content.print());
        let written = spawn_blocking(move || {
            let mode = std::fs::metadata(&path).map_or(0o600, |metadata| metadata.permissions().mode() & KEPT_BITS);
            replace(&path, text.as_bytes(), mode, Hardness::Synced)
        });
        match written.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok(()) => Ok(Reading::Listed(content)),
            Err(error) => Err(AdminError::Precondition(format!(
                "the control file {} can't be written ({error}), nothing was changed; make its folder writable for the control \
                 plane, or edit the file instead",
                self.path.display()
            ))),
        }
    }

    /// Whether what was read may be half of a write.
    fn looks_unfinished(&self, reading: &Reading) -> bool {
        let last = self.last.lock();
        !matches!(reading, Reading::Listed(_)) && last.as_ref().is_some_and(|last| last != reading)
    }
}

impl Fleet {
    /// Makes the drains of the control file's route what the file says now.
    pub async fn follow_control_file(&self) {
        let Some(control) = &self.control else { return };
        let specs = self.specs.lock().await;
        let reading = control.read().await;
        self.use_reading(control, &specs, reading);
    }

    /// Takes up what the file says. The caller holds the specs' lock.
    pub(super) fn use_reading(&self, control: &ControlFile, specs: &Specs, reading: Reading) {
        let spec = specs.get(&control.route);
        if let (Some(spec), Some(pool)) = (spec, self.pools().get(&control.route)) {
            let changed = pool.set_drains(&|backend| reading.why_drained(backend));
            if !changed.is_empty() {
                self.note_drains(spec, &reading);
                self.publish_dirty();
            }
            for backend in changed {
                let drained = reading.why_drained(&backend);
                tracing::info!(route = %control.route, %backend, is_draining = drained.is_some(), "drain is as the control file says");
            }
        }
        let route = &control.route;
        match (reading.problem(), spec) {
            (Some(problem), _) => control.health.bad(&problem),
            (None, Some(spec)) => control.health.good(self.unix_ms(), &reading.note(&ids(spec))),
            (None, None) => {
                control.health.good(self.unix_ms(), &format!("there is no route '{route}' yet (--gateway-route)"));
            }
        }
        *control.last.lock() = Some(reading);
    }

    /// The database's marks follow the file; written behind, for the file keeps them.
    pub(super) fn note_drains(&self, spec: &RouteSpec, reading: &Reading) {
        for backend in ids(spec) {
            match reading.why_drained(&backend) {
                Some(reason) => {
                    let (route, kind) = (spec.name.clone(), MarkKind::Drain);
                    self.context.marks.put(MarkRow { route, backend, kind, until_unix_ms: None, reason });
                }
                None => self.context.marks.remove(&spec.name, &backend, MarkKind::Drain),
            }
        }
    }

    fn unix_ms(&self) -> u64 {
        self.context.clock.unix_ms(self.context.clock.now())
    }
}

/// What an operator's drain or undrain makes of the file.
pub(super) fn drained(reading: &Reading, spec: &RouteSpec, meant: &[BackendId], is_draining: bool) -> Option<Content> {
    let all = ids(spec);
    let mut content = match (reading, is_draining) {
        (Reading::Listed(content), _) => content.clone(),
        // Everything is drained already.
        (Reading::Missing | Reading::Bad(_), true) => return None,
        (Reading::Missing | Reading::Bad(_), false) => Content::default(),
    };
    for backend in meant {
        if is_draining {
            content.disable(backend, &all);
        } else {
            content.enable(backend, &all);
        }
    }
    Some(content)
}

/// What it makes of the file when backends come, or leave.
pub(super) fn moved(reading: &Reading, spec: &RouteSpec, come: &[BackendId], left: &[BackendId]) -> Option<Content> {
    let Reading::Listed(content) = reading else { return None };
    let (all, mut content) = (ids(spec), content.clone());
    for backend in come {
        content.enable(backend, &all);
    }
    for backend in left {
        content.forget(backend, &all);
    }
    Some(content)
}

/// A route's backends.
pub(super) fn ids(spec: &RouteSpec) -> Vec<BackendId> {
    spec.backends.iter().map(|backend| backend.id.clone()).collect()
}
