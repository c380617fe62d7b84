//! Drains and bans by operators: durable first, then taken up. A drain is in the control file before it is in the database:
//! what is killed between the two is what the file says at the next start, and its database never says more. The selection,
//! the marks and the control file change under the lock of the specs, so that no change of a route comes between.

use std::sync::Arc;
use std::time::Duration;

use router_policy::ids::BackendId;

use super::config::Specs;
use super::control_file::{ControlFile, Edited, ids};
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
    /// error neither has changed, but for [`AdminError::Unfinished`].
    pub async fn set_drain(&self, wanted: Selector<'_>, is_draining: bool) -> Result<Selected, AdminError> {
        let is_concerned =
            |control: &ControlFile, selected: &Selected| selected.iter().any(|(pool, _)| *pool.name() == control.route);
        let early = self.select(wanted).await?;
        if self.control.as_ref().is_some_and(|control| is_concerned(control, &early)) {
            self.settle_control_file().await;
        }
        let specs = self.specs.lock().await;
        let selected = self.select_in(&specs, wanted)?;
        let by_file = match &self.control {
            Some(control) if is_concerned(control, &selected) => {
                Some((control, self.drain_in_file(control, &specs, &selected, is_draining).await?))
            }
            _ => None,
        };
        let stored = if is_draining {
            self.store_marks(&selected, MarkKind::Drain, true, None, DRAINED).await
        } else {
            self.end_drains(&selected).await
        };
        if let Err(error) = stored {
            if let Some((control, edited)) = by_file {
                self.take_back(control, &specs, &edited, is_draining).await?;
            }
            return Err(error);
        }
        for (pool, backend) in &selected {
            if by_file.as_ref().is_none_or(|(control, _)| control.route != *pool.name()) {
                pool.set_drain(backend, is_draining);
            }
            tracing::info!(route = %pool.name(), %backend, is_draining, "drain changed");
        }
        if let Some((control, edited)) = by_file {
            self.use_reading(control, &specs, edited.after);
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

    /// Edits the control file for those of the selected backends that are of its route.
    async fn drain_in_file(
        &self,
        control: &ControlFile,
        specs: &Specs,
        selected: &Selected,
        is_draining: bool,
    ) -> Result<Edited, AdminError> {
        let of_route = selected.iter().filter(|(pool, _)| *pool.name() == control.route);
        let meant: Vec<BackendId> = of_route.map(|(_, backend)| backend.clone()).collect();
        let not_found = || AdminError::NotFound { what: "route", name: control.route.to_string() };
        let spec = specs.get(&control.route).ok_or_else(not_found)?;
        // Without the database the file would be written and taken back.
        self.store.ping().await?;
        control.edit(|reading| control.drained(reading, spec, &meant, is_draining)).await
    }

    /// The file goes back to what it said of the backends that an edit changed. What somebody else has written since stays. A
    /// file that the edit made stays, with an empty list: that says the same as no file.
    async fn take_back(
        &self,
        control: &ControlFile,
        specs: &Specs,
        edited: &Edited,
        was_draining: bool,
    ) -> Result<(), AdminError> {
        let Some(spec) = specs.get(&control.route) else { return Ok(()) };
        let is_drained = |reading: &Reading, backend: &BackendId| reading.why_drained(backend).is_some();
        let mut changed = ids(spec);
        changed.retain(|backend| is_drained(&edited.before, backend) != is_drained(&edited.after, backend));
        let taken_back = control.edit(|reading| match &edited.before {
            Reading::Listed(before) if *reading == edited.after => Ok(Some(before.clone())),
            _ => control.drained(reading, spec, &changed, !was_draining),
        });
        if let Err(error) = taken_back.await {
            tracing::warn!(%error, "the database failed, and the control file could not be taken back: it will be followed");
            return Err(AdminError::Unfinished);
        }
        Ok(())
    }

    /// Whoever drained them.
    async fn end_drains(&self, selected: &Selected) -> Result<(), AdminError> {
        let of = |kind| selected.iter().map(move |(pool, backend)| (pool.name().clone(), backend.clone(), kind));
        let remove: Vec<_> = of(MarkKind::Drain).chain(of(MarkKind::FileDrain)).collect();
        Ok(self.context.marks.write_now(&*self.store, &[], &remove).await?)
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
