//! Drains and bans by operators: durable first, then taken up. The selection, the marks and the control file change under
//! the lock of the specs, so that no change of a route comes between.

use std::sync::Arc;
use std::time::Duration;

use router_policy::ids::BackendId;

use super::control_file::{ControlFile, drained};
use super::{Fleet, Selected};
use crate::error::AdminError;
use crate::files::control_file::Reading;
use crate::pool::Pool;
use crate::store::{MarkKind, MarkRow};

pub(super) const DRAINED: &str = "drained by an operator";
const BANNED: &str = "banned by an operator";

/// Which backends. Fields that are set must all match.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selector<'a> {
    /// Empty for every route.
    pub route: &'a str,
    /// 0 for any.
    pub port: u32,
    /// `host:port` or a name; empty for any.
    pub backend: &'a str,
}

impl Fleet {
    /// Drains the selected backends, or takes them back in: in the database and, for its route, in the control file. On an
    /// error neither has changed.
    pub async fn set_drain(&self, wanted: Selector<'_>, is_draining: bool) -> Result<Selected, AdminError> {
        let specs = self.specs.lock().await;
        let selected = self.select_in(&specs, wanted)?;
        let before: Vec<bool> = selected.iter().map(|(pool, backend)| pool.is_draining(backend)).collect();
        self.store_marks(&selected, MarkKind::Drain, is_draining, None, DRAINED).await?;
        let by_file = match &self.control {
            Some(control) => match self.drain_in_file(control, &specs, &selected, is_draining).await {
                Ok(reading) => reading.map(|reading| (control, reading)),
                Err(error) => {
                    self.take_back(&selected, &before);
                    return Err(error);
                }
            },
            None => None,
        };
        for (pool, backend) in &selected {
            if by_file.as_ref().is_none_or(|(control, _)| control.route != *pool.name()) {
                pool.set_drain(backend, is_draining);
            }
            tracing::info!(route = %pool.name(), %backend, is_draining, "drain changed");
        }
        if let Some((control, reading)) = by_file {
            self.use_reading(control, &specs, reading);
        }
        Ok(selected)
    }

    /// Bans the selected backends, or ends their bans. `ttl_ms` 0 takes each route's `health_ban_ttl`.
    pub async fn set_ban(&self, wanted: Selector<'_>, is_banned: bool, ttl_ms: u64) -> Result<Selected, AdminError> {
        let specs = self.specs.lock().await;
        let selected = self.select_in(&specs, wanted)?;
        for target in &selected {
            let (pool, backend) = target;
            let span = match ttl_ms {
                0 => pool.default_ban(),
                ms => Some(Duration::from_millis(ms)),
            };
            let until = span.map(|span| self.context.clock.now() + span);
            let until_unix_ms = until.map(|until| self.context.clock.unix_ms(until));
            self.store_marks(std::slice::from_ref(target), MarkKind::Ban, is_banned, until_unix_ms, BANNED).await?;
            if is_banned {
                pool.ban(backend, until, BANNED);
            } else {
                pool.unban(backend);
            }
            tracing::info!(route = %pool.name(), %backend, is_banned, "ban changed");
        }
        Ok(selected)
    }

    /// Edits the control file when some of the selected backends are of its route; what it says afterwards.
    async fn drain_in_file(
        &self,
        control: &ControlFile,
        specs: &super::config::Specs,
        selected: &Selected,
        is_draining: bool,
    ) -> Result<Option<Reading>, AdminError> {
        let of_route = selected.iter().filter(|(pool, _)| *pool.name() == control.route);
        let meant: Vec<BackendId> = of_route.map(|(_, backend)| backend.clone()).collect();
        let Some(spec) = specs.get(&control.route).filter(|_| !meant.is_empty()) else {
            return Ok(None);
        };
        control.edit(|reading| drained(reading, spec, &meant, is_draining)).await.map(Some)
    }

    /// The marks go back to what is in force. Written behind: at a start the control file wins over them anyway.
    fn take_back(&self, selected: &Selected, before: &[bool]) {
        for ((pool, backend), was_draining) in selected.iter().zip(before) {
            let (route, backend, kind) = (pool.name().clone(), backend.clone(), MarkKind::Drain);
            if *was_draining {
                let reason = DRAINED.to_owned();
                self.context.marks.put(MarkRow { route, backend, kind, until_unix_ms: None, reason });
            } else {
                self.context.marks.remove(&route, &backend, kind);
            }
        }
    }

    async fn store_marks(
        &self,
        backends: &[(Arc<Pool>, BackendId)],
        kind: MarkKind,
        is_set: bool,
        until_unix_ms: Option<u64>,
        reason: &str,
    ) -> Result<(), AdminError> {
        let keys = backends.iter().map(|(pool, backend)| (pool.name().clone(), backend.clone(), kind));
        let (mut put, mut remove) = (Vec::new(), Vec::new());
        if is_set {
            let row =
                |(route, backend, kind)| MarkRow { route, backend, kind, until_unix_ms, reason: reason.to_owned() };
            put.extend(keys.map(row));
        } else {
            remove.extend(keys);
        }
        Ok(self.context.marks.write_now(&*self.store, &put, &remove).await?)
    }
}
