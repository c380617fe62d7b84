//! Changes of configuration: routes and their backends.

use std::collections::BTreeMap;
use std::sync::Arc;

use router_policy::ids::{BackendId, RouteName};
use router_policy::route::diff::diff_route;
use router_policy::route::raw::route_json;
use router_policy::route::{BackendSpec, RouteChange, RouteSpec, check_all, parse_document};
use serde_json::Value as Json;

use super::Fleet;
use crate::error::AdminError;
use crate::pool::Pool;
use crate::store::{MarkKind, RouteRow};

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

type Specs = BTreeMap<RouteName, Arc<RouteSpec>>;

impl Fleet {
    /// Applies a document: all of it or, on an error, nothing.
    pub async fn apply(&self, document: &Json, mode: ApplyMode) -> Result<Vec<RouteChange>, AdminError> {
        let wanted = parse_document(document)?;
        let mut specs = self.specs.lock().await;
        let mut next = if mode.prune { Specs::new() } else { specs.clone() };
        for route in wanted {
            if mode.create_only && specs.contains_key(&route.name) {
                return Err(AdminError::Exists { what: "route", name: route.name.to_string() });
            }
            next.insert(route.name.clone(), Arc::new(route));
        }
        self.change_to(&mut specs, next, mode.dry_run).await
    }

    /// Changes one route's document.
    pub async fn edit(
        &self,
        route: &str,
        edit: impl FnOnce(&mut RouteSpec) -> Result<(), AdminError>,
    ) -> Result<Vec<RouteChange>, AdminError> {
        let mut specs = self.specs.lock().await;
        let not_found = || AdminError::NotFound { what: "route", name: route.to_owned() };
        let name = RouteName::new(route).map_err(|_| not_found())?;
        let mut spec = RouteSpec::clone(specs.get(&name).ok_or_else(not_found)?);
        edit(&mut spec)?;
        let mut next = specs.clone();
        next.insert(name, Arc::new(spec));
        self.change_to(&mut specs, next, false).await
    }

    /// Removes a route.
    pub async fn remove_route(&self, route: &str) -> Result<(), AdminError> {
        let mut specs = self.specs.lock().await;
        let not_found = || AdminError::NotFound { what: "route", name: route.to_owned() };
        let name = RouteName::new(route).map_err(|_| not_found())?;
        let mut next = specs.clone();
        next.remove(&name).ok_or_else(not_found)?;
        self.change_to(&mut specs, next, false).await.map(|_| ())
    }

    /// The documents in force, in order of name.
    pub async fn specs(&self) -> Vec<Arc<RouteSpec>> {
        self.specs.lock().await.values().cloned().collect()
    }

    /// Makes drains durable, then takes them up.
    pub async fn set_drain(&self, backends: &[(Arc<Pool>, BackendId)], is_draining: bool) -> Result<(), AdminError> {
        self.store_marks(backends, MarkKind::Drain, is_draining, None, "drained by an operator").await?;
        for (pool, backend) in backends {
            pool.set_drain(backend, is_draining);
            tracing::info!(route = %pool.name(), %backend, is_draining, "drain changed");
        }
        Ok(())
    }

    /// Makes bans durable, then takes them up. `ttl_ms` 0 takes each route's `health_ban_ttl`.
    pub async fn set_ban(
        &self,
        backends: &[(Arc<Pool>, BackendId)],
        is_banned: bool,
        ttl_ms: u64,
    ) -> Result<(), AdminError> {
        const REASON: &str = "banned by an operator";
        for target in backends {
            let (pool, backend) = target;
            let span = match ttl_ms {
                0 => pool.default_ban(),
                ms => Some(std::time::Duration::from_millis(ms)),
            };
            let until = span.map(|span| self.context.clock.now() + span);
            let until_unix_ms = until.map(|until| self.context.clock.unix_ms(until));
            self.store_marks(std::slice::from_ref(target), MarkKind::Ban, is_banned, until_unix_ms, REASON).await?;
            if is_banned {
                pool.ban(backend, until, REASON);
            } else {
                pool.unban(backend);
            }
            tracing::info!(route = %pool.name(), %backend, is_banned, "ban changed");
        }
        Ok(())
    }

    async fn store_marks(
        &self,
        backends: &[(Arc<Pool>, BackendId)],
        kind: MarkKind,
        is_set: bool,
        until_unix_ms: Option<u64>,
        reason: &str,
    ) -> Result<(), AdminError> {
        let keys = backends.iter().map(|(pool, backend)| (pool.name().clone(), backend.clone()));
        if is_set {
            let put: Vec<_> = keys
                .map(|(route, backend)| {
                    let reason = reason.to_owned();
                    crate::store::MarkRow { route, backend, kind, until_unix_ms, reason }
                })
                .collect();
            self.store.save_marks(&put, &[]).await?;
        } else {
            let remove: Vec<_> = keys.map(|(route, backend)| (route, backend, kind)).collect();
            self.store.save_marks(&[], &remove).await?;
        }
        Ok(())
    }

    /// Goes from the specs in force to others: checked together, stored, then used.
    async fn change_to(&self, specs: &mut Specs, next: Specs, dry_run: bool) -> Result<Vec<RouteChange>, AdminError> {
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
        self.store.save_routes(&put, &remove).await?;
        let gone = gone_backends(&changes, specs, &next);
        if !gone.is_empty()
            && let Err(error) = self.store.save_marks(&[], &gone).await
        {
            tracing::info!(%error, "marks of removed backends stay in the database until the next change");
        }
        self.use_specs(&changes, &next);
        *specs = next;
        Ok(changes)
    }

    /// Takes up specs that are stored already.
    pub(super) fn use_specs(&self, changes: &[RouteChange], next: &Specs) {
        let _alone = self.publishing.lock();
        let mut pools = super::Pools::clone(&self.pools.load());
        let mut closed = super::Pools::clone(&self.closed.load());
        closed.retain(|_, pool| pool.in_flight() > 0);
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
                pool.install(Arc::clone(spec));
                self.hub.put_route(pool.message());
                self.prober.follow(pool);
            } else {
                if let Some(pool) = pools.remove(&change.route) {
                    pool.close();
                    closed.insert(change.route.clone(), pool);
                }
                self.hub.remove_route(change.route.as_str());
                self.prober.forget(&change.route);
            }
            tracing::info!(route = %change.route, action = ?change.action, "route changed");
        }
        self.closed.store(Arc::new(closed));
        self.pools.store(Arc::new(pools));
        // Once more: a pool that woke the publisher before this line was not in its list yet.
        self.context.publish.notify_one();
    }

    /// Publishes what has changed in pools since the last call.
    pub fn publish_dirty(&self) {
        let _alone = self.publishing.lock();
        for pool in self.pools.load().values() {
            if pool.take_dirty() {
                self.hub.put_route(pool.message());
            }
        }
    }
}

/// The marks of backends that a change takes out of their route.
fn gone_backends(changes: &[RouteChange], before: &Specs, after: &Specs) -> Vec<(RouteName, BackendId, MarkKind)> {
    let mut gone = Vec::new();
    for change in changes {
        let (Some(old), Some(new)) = (before.get(&change.route), after.get(&change.route)) else {
            continue;
        };
        let left = old.backends.iter().filter(|backend| new.backends.iter().all(|kept| kept.id != backend.id));
        for backend in left {
            for kind in [MarkKind::Drain, MarkKind::Ban, MarkKind::Unhealthy] {
                gone.push((change.route.clone(), backend.id.clone(), kind));
            }
        }
    }
    gone
}

/// Finds a backend of a route's document.
pub fn backend_mut<'a>(spec: &'a mut RouteSpec, address: &str) -> Result<&'a mut BackendSpec, AdminError> {
    spec.backends
        .iter_mut()
        .find(|backend| backend.answers_to(address))
        .ok_or_else(|| AdminError::NotFound { what: "backend", name: address.to_owned() })
}
