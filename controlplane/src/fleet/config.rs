//! Changes of configuration: routes and their backends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use router_policy::ids::{BackendId, RouteName};
use router_policy::route::diff::diff_route;
use router_policy::route::raw::route_json;
use router_policy::route::{BackendSpec, Complaint, Complaints, RouteChange, RouteSpec, check_all, parse_document};
use serde_json::Value as Json;

use super::control_file::{ids, moved};
use super::doors::DRAINED;
use super::{AllPools, Fleet, Pools};
use crate::error::AdminError;
use crate::files::control_file::Reading;
use crate::pool::Pool;
use crate::store::{MarkKind, MarkRow, RouteRow};

/// How a document is applied.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyMode {
    /// Report only.
    pub dry_run: bool,
    /// Remove routes that the document does not name.
    pub prune: bool,
    /// Refuse routes that exist.
    pub create_only: bool,
}

/// A backend of a route.
type Member = (RouteName, BackendId);

/// The documents in force.
pub(super) type Specs = BTreeMap<RouteName, Arc<RouteSpec>>;

impl Fleet {
    /// Applies a document: all of it or, on an error, nothing.
    pub async fn apply(&self, document: &Json, mode: ApplyMode) -> Result<Vec<RouteChange>, AdminError> {
        self.apply_drained(document, mode, &[]).await
    }

    /// [`Fleet::apply`]; backends of `drained` (`host:port`) that are new to their route are never admitted before somebody
    /// undrains them. The control file's route is an exception: there the file has the last word.
    pub async fn apply_drained(
        &self,
        document: &Json,
        mode: ApplyMode,
        drained: &[String],
    ) -> Result<Vec<RouteChange>, AdminError> {
        let wanted = parse_document(document)?;
        let drained = known_backends(drained, &wanted)?;
        let mut specs = self.specs_to_change().await;
        let mut next = if mode.prune { Specs::new() } else { specs.clone() };
        for route in wanted {
            if mode.create_only && specs.contains_key(&route.name) {
                return Err(AdminError::Exists { what: "route", name: route.name.to_string() });
            }
            next.insert(route.name.clone(), Arc::new(route));
        }
        self.change_to(&mut specs, next, &drained, mode.dry_run).await
    }

    /// Changes one route's document.
    pub async fn edit(
        &self,
        route: &str,
        edit: impl FnOnce(&mut RouteSpec) -> Result<(), AdminError>,
    ) -> Result<Vec<RouteChange>, AdminError> {
        let mut specs = self.specs_to_change().await;
        let not_found = || AdminError::NotFound { what: "route", name: route.to_owned() };
        let name = RouteName::new(route).map_err(|_| not_found())?;
        let mut spec = RouteSpec::clone(specs.get(&name).ok_or_else(not_found)?);
        edit(&mut spec)?;
        let mut next = specs.clone();
        next.insert(name, Arc::new(spec));
        self.change_to(&mut specs, next, &BTreeSet::new(), false).await
    }

    /// Removes a route.
    pub async fn remove_route(&self, route: &str) -> Result<(), AdminError> {
        let mut specs = self.specs_to_change().await;
        let not_found = || AdminError::NotFound { what: "route", name: route.to_owned() };
        let name = RouteName::new(route).map_err(|_| not_found())?;
        let mut next = specs.clone();
        next.remove(&name).ok_or_else(not_found)?;
        self.change_to(&mut specs, next, &BTreeSet::new(), false).await.map(|_| ())
    }

    async fn specs_to_change(&self) -> tokio::sync::MutexGuard<'_, Specs> {
        self.settle_control_file().await;
        self.specs.lock().await
    }

    /// The documents in force, in order of name.
    pub async fn specs(&self) -> Vec<Arc<RouteSpec>> {
        self.specs.lock().await.values().cloned().collect()
    }

    /// Goes from the specs in force to others: checked together, stored, then used. New backends that stand in `drained` start
    /// drained.
    async fn change_to(
        &self,
        specs: &mut Specs,
        next: Specs,
        drained: &BTreeSet<BackendId>,
        dry_run: bool,
    ) -> Result<Vec<RouteChange>, AdminError> {
        let all: Vec<RouteSpec> = next.values().map(|spec| RouteSpec::clone(spec)).collect();
        check_all(&all)?;
        let mut names: Vec<&RouteName> = specs.keys().chain(next.keys()).collect();
        names.sort();
        names.dedup();
        let changes: Vec<RouteChange> = names
            .into_iter()
            .filter_map(|name| diff_route(specs.get(name).map(|spec| &**spec), next.get(name).map(|spec| &**spec)))
            .collect();
        if dry_run || changes.is_empty() {
            return Ok(changes);
        }
        let put: Vec<RouteRow> = changes
            .iter()
            .filter_map(|change| next.get(&change.route))
            .map(|spec| RouteRow { name: spec.name.clone(), document: route_json(spec).to_string() })
            .collect();
        let remove: Vec<RouteName> =
            changes.iter().map(|change| &change.route).filter(|name| !next.contains_key(*name)).cloned().collect();
        if !remove.is_empty() {
            // What is queued for a route that goes must not be written after it is gone.
            self.context.committer.flush().await;
        }
        let drained = drained_at_start(&changes, specs, &next, drained);
        let marks: Vec<MarkRow> = drained.iter().filter(|one| !self.is_by_file(&one.0)).map(drain_mark).collect();
        let admitted = self.admit_added(&changes, specs, &next, &drained).await?;
        if let Err(error) = self.store.save_routes_marked(&put, &remove, &marks).await {
            if let Some((_, fresh)) = &admitted {
                self.forget_in_file(specs, fresh).await;
            }
            return Err(error.into());
        }
        // Whatever is queued for them from their last life is older.
        for mark in marks {
            self.context.marks.put(mark);
        }
        let reading = admitted.map(|(reading, _)| reading);
        let gone = gone_backends(&changes, specs, &next);
        if !gone.is_empty()
            && let Err(error) = self.context.marks.write_now(&*self.store, &[], &gone).await
        {
            tracing::info!(%error, "marks of removed backends stay in the database until the next change");
        }
        self.use_specs(&changes, &next, &drained, reading.as_ref());
        let before = std::mem::replace(specs, next);
        if let (Some(control), Some(mut reading)) = (&self.control, reading) {
            if let Some(spec) = specs.get(&control.route) {
                self.note_drains(spec, &reading);
            }
            if let (Some(old), Some(new)) = (before.get(&control.route), specs.get(&control.route)) {
                reading = self.forget_in_file(specs, &missing(old, new)).await.unwrap_or(reading);
            }
            self.use_reading(control, specs, reading);
        }
        Ok(changes)
    }

    /// Enables backends that come to the control file's route in the file, before they can be admitted; what the file says
    /// then, and which it did not list before. `None` when that route is not concerned. The file decides about a route that
    /// is new, and about backends that shall start drained.
    async fn admit_added(
        &self,
        changes: &[RouteChange],
        before: &Specs,
        after: &Specs,
        drained: &[Member],
    ) -> Result<Option<(Reading, Vec<BackendId>)>, AdminError> {
        let Some(control) = self.control.as_ref().filter(|c| changes.iter().any(|change| change.route == c.route))
        else {
            return Ok(None);
        };
        let Some(spec) = after.get(&control.route) else {
            return Ok(None);
        };
        let mut fresh = before.get(&control.route).map(|old| missing(spec, old)).unwrap_or_default();
        fresh.retain(|backend| drained.iter().all(|(route, one)| *route != control.route || one != backend));
        let unlisted = |reading: &Reading, fresh: &[BackendId]| -> Vec<BackendId> {
            fresh.iter().filter(|backend| reading.why_drained(backend).is_some()).cloned().collect()
        };
        let edited = control.edit(|reading| Ok(moved(reading, spec, &unlisted(reading, &fresh), &[]))).await?;
        let fresh = unlisted(&edited.before, &fresh);
        Ok(Some((edited.after, fresh)))
    }

    /// Takes backends that their route does not have out of the control file; what it says then. One that stays there does no
    /// harm: it means no backend.
    async fn forget_in_file(&self, specs: &Specs, left: &[BackendId]) -> Option<Reading> {
        let control = self.control.as_ref()?;
        let spec = specs.get(&control.route).filter(|_| !left.is_empty())?;
        match control.edit(|reading| Ok(moved(reading, spec, &[], left))).await {
            Ok(edited) => Some(edited.after),
            Err(error) => {
                tracing::warn!(%error, "removed backends stay listed in the control file");
                None
            }
        }
    }

    /// Whether the control file keeps a route's drains.
    fn is_by_file(&self, route: &RouteName) -> bool {
        self.control.as_ref().is_some_and(|control| control.route == *route)
    }

    /// Takes up specs that are stored already; `drained` are new backends that start drained, `reading` is what the control
    /// file says of its route.
    pub(super) fn use_specs(
        &self,
        changes: &[RouteChange],
        next: &Specs,
        drained: &[Member],
        reading: Option<&Reading>,
    ) {
        let _alone = self.publishing.lock();
        let before = self.pools.load_full();
        let (mut pools, mut closed) = (Pools::clone(&before.open), before.closed.clone());
        closed.retain(|_, pool| pool.in_flight() > 0);
        let (mut installed, mut removed) = (Vec::new(), Vec::new());
        for change in changes {
            self.complaints.lock().remove(&change.route);
            if let Some(spec) = next.get(&change.route) {
                let pool = pools.entry(change.route.clone()).or_insert_with(|| {
                    if let Some(pool) = closed.remove(&change.route) {
                        return pool;
                    }
                    let metrics = self.metrics.pool(change.route.as_str());
                    Arc::new(Pool::new(Arc::clone(spec), Arc::clone(&self.context), metrics))
                });
                match reading.filter(|_| self.is_by_file(&change.route)) {
                    Some(reading) => pool.install_with(Arc::clone(spec), Some(&|id| reading.why_drained(id))),
                    None => install(pool, spec, drained),
                }
                self.prober.follow(pool);
                installed.push(Arc::clone(pool));
            } else {
                if let Some(pool) = pools.remove(&change.route) {
                    pool.close();
                    closed.insert(change.route.clone(), pool);
                }
                self.prober.forget(&change.route);
                self.forget_timed_rows(&change.route);
                removed.push(&change.route);
            }
            tracing::info!(route = %change.route, action = ?change.action, "route changed");
        }
        self.pools.store(Arc::new(AllPools { open: Arc::new(pools), closed }));
        // Told once it is so: whoever hears of a route may ask for it at once.
        for route in removed {
            self.hub.remove_route(route.as_str());
        }
        for pool in installed {
            self.hub.put_route(pool.message());
        }
        // Once more: a pool that woke the publisher before this line was not in its list yet.
        self.context.publish.notify_one();
    }

    /// Publishes what has changed in pools since the last call.
    pub fn publish_dirty(&self) {
        let _alone = self.publishing.lock();
        for pool in self.pools().values() {
            if pool.take_dirty() {
                self.hub.put_route(pool.message());
            }
        }
    }
}

/// Takes up a document; of its new backends, those in `drained` enter drained, within the pool's own lock.
fn install(pool: &Pool, spec: &Arc<RouteSpec>, drained: &[Member]) {
    let new: BTreeSet<&BackendId> = drained.iter().filter(|one| one.0 == spec.name).map(|one| &one.1).collect();
    if new.is_empty() {
        return pool.install(Arc::clone(spec));
    }
    // Drains change under the lock of the specs only, which is held.
    let all: BTreeSet<BackendId> =
        ids(spec).into_iter().filter(|id| new.contains(id) || pool.is_draining(id)).collect();
    pool.install_with(Arc::clone(spec), Some(&|id| all.contains(id).then(String::new)));
}

/// Reads `host:port` texts that must be backends of the document.
fn known_backends(texts: &[String], document: &[RouteSpec]) -> Result<BTreeSet<BackendId>, Complaints> {
    let (mut known, mut complaints) = (BTreeSet::new(), Vec::new());
    for (index, text) in texts.iter().enumerate() {
        let problem = match BackendId::new(text) {
            Ok(id) if document.iter().any(|route| ids(route).contains(&id)) => {
                known.insert(id);
                continue;
            }
            Ok(_) => format!("{text} is not a backend of the document's routes"),
            Err(error) => error.to_string(),
        };
        complaints.push(Complaint { field: format!("drained[{index}]"), problem });
    }
    if complaints.is_empty() { Ok(known) } else { Err(Complaints(complaints)) }
}

/// Those of `drained` that a change brings to their route.
fn drained_at_start(
    changes: &[RouteChange],
    before: &Specs,
    after: &Specs,
    drained: &BTreeSet<BackendId>,
) -> Vec<Member> {
    let mut found = Vec::new();
    for spec in changes.iter().filter_map(|change| after.get(&change.route)) {
        let new = before.get(&spec.name).map_or_else(|| ids(spec), |old| missing(spec, old));
        found.extend(new.into_iter().filter(|id| drained.contains(id)).map(|id| (spec.name.clone(), id)));
    }
    found
}

fn drain_mark((route, backend): &Member) -> MarkRow {
    let (route, backend, kind) = (route.clone(), backend.clone(), MarkKind::Drain);
    MarkRow { route, backend, kind, until_unix_ms: None, reason: DRAINED.to_owned() }
}

/// The marks of backends that a change takes out of their route.
fn gone_backends(changes: &[RouteChange], before: &Specs, after: &Specs) -> Vec<(RouteName, BackendId, MarkKind)> {
    let mut gone = Vec::new();
    for change in changes {
        let (Some(old), Some(new)) = (before.get(&change.route), after.get(&change.route)) else {
            continue;
        };
        for backend in missing(old, new) {
            for kind in MarkKind::ALL {
                gone.push((change.route.clone(), backend.clone(), kind));
            }
        }
    }
    gone
}

/// The backends of one document that another does not have.
fn missing(of: &RouteSpec, in_: &RouteSpec) -> Vec<BackendId> {
    ids(of).into_iter().filter(|id| in_.backends.iter().all(|kept| kept.id != *id)).collect()
}

/// Finds a backend of a route's document.
pub fn backend_mut<'a>(spec: &'a mut RouteSpec, address: &str) -> Result<&'a mut BackendSpec, AdminError> {
    spec.backends
        .iter_mut()
        .find(|backend| backend.answers_to(address))
        .ok_or_else(|| AdminError::NotFound { what: "backend", name: address.to_owned() })
}
