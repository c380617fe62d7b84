//! The control file (gateway.md §9): with the drain marks of its route, one state with two doors.
//!
//! The file has the last word. It is read at start before anything is admitted and about each second after that, and the
//! drains of its route are made what it says. An operator's drain through the other door is an edit of the file, on top of
//! whatever stands there by then; so whichever door was used last wins, and after kill -9 between two steps the file does.
//!
//! * A backend that is added to a route that exists is enabled in the file: adding it is the operator's word. When the
//!   route itself is new, the file decides.
//! * A backend that is removed takes its entry along. Entries that mean no backend stay where they are.
//! * A file that is missing is written only by an undrain, which lists what it undrains and nothing else. One that is not
//!   valid is never written: it holds somebody's list.
//!
//! Every change of the marks and of the file is made under the lock of the specs; the file is read before that is taken, and
//! once more under it by who changes it. Nothing waits for the file longer than [`FileAccess`] lets it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use router_policy::gateway_file::control_file::{Content, MAX_BYTES};
use router_policy::ids::{BackendId, RouteName};
use router_policy::route::RouteSpec;

use super::Fleet;
use super::config::Specs;
use crate::error::AdminError;
use crate::files::atomic_write::{Hardness, Mode};
use crate::files::bounded_read::read_bounded;
use crate::files::control_file::Reading;
use crate::files::file_access::{FileAccess, Trouble, WriteProblem};
use crate::files::health::FileHealth;
use crate::files::private_paths::Guard;
use crate::store::{MarkKind, MarkRow};

/// A file that gives nothing is looked at again before admission closes, or an undrain takes it for lost: somebody may be
/// writing it in place.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// An edit that somebody else's write overtakes is made again on theirs, so often.
const MOST_EDITS: usize = 10;

/// The file and what it said last.
pub(super) struct ControlFile {
    pub(super) route: RouteName,
    pub(super) health: FileHealth,
    access: FileAccess,
    guard: Arc<Guard>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// What is in force.
    last: Option<Reading>,
    /// What a second look has confirmed.
    settled: Option<Reading>,
    /// Rises when a reading comes in force and when the file is written: what was read before is out of date.
    version: u64,
}

/// What an edit of the file found and left.
pub(super) struct Edited {
    pub(super) before: Reading,
    pub(super) after: Reading,
}

impl ControlFile {
    pub(super) fn new(route: RouteName, health: FileHealth, guard: Guard) -> Self {
        let (access, guard) = (FileAccess::new(health.path()), Arc::new(guard));
        Self { route, health, access, guard, known: Mutex::default() }
    }

    /// What the file says now. One that has just come to say nothing is looked at again.
    pub(super) async fn read(&self) -> Result<Reading, Trouble> {
        let reading = self.read_once().await?;
        if !self.looks_unfinished(&reading) {
            return Ok(reading);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        let reading = self.read_once().await?;
        self.known.lock().settled = Some(reading.clone());
        Ok(reading)
    }

    async fn read_once(&self) -> Result<Reading, Trouble> {
        self.access.run(|path| Reading::new(read_bounded(path, MAX_BYTES, 0))).await
    }

    /// Changes what the file says now; `change` gives `None` to leave it.
    pub(super) async fn edit(
        &self,
        change: impl Fn(&Reading) -> Result<Option<Content>, AdminError>,
    ) -> Result<Edited, AdminError> {
        for _ in 0..MOST_EDITS {
            if let Some(edited) = self.edit_once(&change).await? {
                return Ok(edited);
            }
        }
        Err(self.refusal("is written by somebody else all the time, nothing was changed; try again"))
    }

    /// `None` when somebody else's write came between.
    async fn edit_once(
        &self,
        change: impl Fn(&Reading) -> Result<Option<Content>, AdminError>,
    ) -> Result<Option<Edited>, AdminError> {
        let read = self.read().await;
        let before = read.map_err(|trouble| {
            self.refusal(&format!("{trouble}, nothing was changed; look at the file system that it is on"))
        })?;
        let Some(content) = change(&before)?.filter(|content| before != Reading::Listed(content.clone())) else {
            return Ok(Some(Edited { after: before.clone(), before }));
        };
        self.known.lock().version += 1;
        let guard = Arc::clone(&self.guard);
        let based_on = before.clone();
        let is_current = move |path: &Path| Reading::new(read_bounded(path, MAX_BYTES, 0)) == based_on;
        let written = self.access.replace(content.print(), Mode::Kept, Hardness::Synced, guard, is_current).await;
        // Once more, whatever came of it: what was read while it was being written must not come in force either.
        self.known.lock().version += 1;
        match written {
            Ok(()) => Ok(Some(Edited { before, after: Reading::Listed(content) })),
            Err(WriteProblem::Overtaken) => Ok(None),
            Err(WriteProblem::Unchanged(problem)) => Err(self.refusal(&format!(
                "can't be written ({problem}), nothing was changed; make its folder writable for the control plane, or edit the \
                 file instead"
            ))),
            Err(problem @ WriteProblem::Unknown(_)) => {
                tracing::warn!(path = %self.health.path().display(), %problem, "the control file is being written");
                Err(AdminError::Unfinished)
            }
        }
    }

    /// In words that follow the file's name.
    fn refusal(&self, problem: &str) -> AdminError {
        AdminError::Precondition(format!("the control file {} {problem}", self.health.path().display()))
    }

    /// What an operator's drain or undrain makes of the file.
    pub(super) fn drained(
        &self,
        reading: &Reading,
        spec: &RouteSpec,
        meant: &[BackendId],
        is_draining: bool,
    ) -> Result<Option<Content>, AdminError> {
        let all = ids(spec);
        let mut content = match (reading, is_draining) {
            (Reading::Listed(content), _) => content.clone(),
            // Everything is out already, but who repairs the file by its old list would take this backend back in.
            (Reading::Missing | Reading::Bad(_), true) => {
                let what = if *reading == Reading::Missing { "is missing" } else { "is not valid" };
                return Err(self.refusal(&format!(
                    "{what}: nobody is admitted, and a drain can't be kept in it; nothing was changed; mend the file first, or name another route with --route"
                )));
            }
            (Reading::Missing, false) => Content::default(),
            (Reading::Bad(problem), false) => {
                return Err(self.refusal(&format!(
                    "is not valid ({problem}), nothing was changed; fix the file, or remove it and undrain"
                )));
            }
        };
        for backend in meant {
            if is_draining {
                content.disable(backend, &all);
            } else {
                content.enable(backend, &all);
            }
        }
        Ok(Some(content))
    }

    /// Whether what was read may be half of a write.
    fn looks_unfinished(&self, reading: &Reading) -> bool {
        let known = self.known.lock();
        let is_known = known.last.as_ref() == Some(reading) || known.settled.as_ref() == Some(reading);
        !matches!(reading, Reading::Listed(_)) && !is_known
    }

    fn has_spoken(&self) -> bool {
        self.known.lock().last.is_some()
    }

    fn version(&self) -> u64 {
        self.known.lock().version
    }
}

impl Fleet {
    /// Makes the drains of the control file's route what the file says now.
    pub async fn follow_control_file(&self) {
        let Some(control) = &self.control else { return };
        loop {
            let version = control.version();
            let read = control.read().await;
            let specs = self.specs.lock().await;
            if control.version() != version {
                // Written meanwhile.
                continue;
            }
            match read {
                Ok(reading) => self.use_reading(control, &specs, reading),
                Err(trouble) if !control.has_spoken() => {
                    self.use_reading(control, &specs, Reading::Bad(trouble.to_string()));
                }
                Err(trouble) => control.health.bad(&format!("{trouble}; drains stay as they are")),
            }
            return;
        }
    }

    /// Lets a control file that is just being written come to its end, before the lock is taken under which it is read again.
    pub(super) async fn settle_control_file(&self) {
        if let Some(control) = &self.control {
            // Whoever changes it is told.
            let _ = control.read().await;
        }
    }

    /// As when the file system of the control file hangs, until the answer is dropped.
    #[cfg(test)]
    pub(crate) async fn hang_control_file(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        Some(self.control.as_ref()?.access.hang().await)
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
        let mut known = control.known.lock();
        known.version += 1;
        known.last = Some(reading);
    }

    /// The database's marks follow the file; written behind, for the file keeps them. An operator's mark stays beside the file's
    /// until the file admits the backend: its word is the last, whoever drained.
    pub(super) fn note_drains(&self, spec: &RouteSpec, reading: &Reading) {
        for backend in ids(spec) {
            match reading.why_drained(&backend) {
                Some(reason) => {
                    let (route, kind) = (spec.name.clone(), MarkKind::FileDrain);
                    self.context.marks.put(MarkRow { route, backend, kind, until_unix_ms: None, reason });
                }
                None => {
                    for kind in [MarkKind::Drain, MarkKind::FileDrain] {
                        self.context.marks.remove(&spec.name, &backend, kind);
                    }
                }
            }
        }
    }

    fn unix_ms(&self) -> u64 {
        self.context.clock.unix_ms(self.context.clock.now())
    }
}

/// What becomes of the file when backends come, or leave.
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
