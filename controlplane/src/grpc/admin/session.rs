//! Sessions: list, forget.

use std::sync::Arc;

use router_policy::ids::BackendId;
use router_proto::v1;

use crate::error::AdminError;
use crate::fleet::{Fleet, Selector};
use crate::pool::{Pool, SessionFilter};

/// Sessions shown when the caller states no limit.
const DEFAULT_LIMIT: usize = 100;
/// Digits that a prefix needs before sessions may be forgotten by it.
const MIN_FORGET_PREFIX: usize = 4;

pub(super) async fn list(
    fleet: &Fleet,
    request: &v1::ListSessionsRequest,
) -> Result<v1::ListSessionsReply, AdminError> {
    let limit = if request.limit == 0 { DEFAULT_LIMIT } else { request.limit as usize };
    let mut reply = v1::ListSessionsReply::default();
    for (pool, filter) in filters(fleet, &request.route, &request.prefix, &request.backend).await? {
        let (sessions, total) = pool.sessions(&filter, limit);
        reply.sessions.extend(sessions);
        reply.total += total;
    }
    reply.sessions.sort_by_key(|session| std::cmp::Reverse(session.last_used_unix_ms));
    reply.sessions.truncate(limit);
    Ok(reply)
}

pub(super) async fn forget(
    fleet: &Fleet,
    request: &v1::ForgetSessionsRequest,
) -> Result<v1::ForgetSessionsReply, AdminError> {
    if request.prefix.is_empty() && request.backend.is_empty() {
        let problem = "nothing selected; allowed: the start of a fingerprint, or a backend".to_owned();
        return Err(AdminError::Argument { field: "prefix", problem });
    }
    if !request.prefix.is_empty() && request.prefix.len() < MIN_FORGET_PREFIX {
        let problem = format!("{MIN_FORGET_PREFIX} hexadecimal digits or more expected");
        return Err(AdminError::Argument { field: "prefix", problem });
    }
    let mut forgotten = 0;
    for (pool, filter) in filters(fleet, &request.route, &request.prefix, &request.backend).await? {
        forgotten += pool.forget(|session, backend| filter.matches(session, backend));
    }
    fleet.context.committer.flush().await;
    if forgotten == 0 && !request.prefix.is_empty() {
        return Err(AdminError::NotFound { what: "session", name: request.prefix.clone() });
    }
    Ok(v1::ForgetSessionsReply { forgotten })
}

async fn filters(
    fleet: &Fleet,
    route: &str,
    prefix: &str,
    backend: &str,
) -> Result<Vec<(Arc<Pool>, SessionFilter)>, AdminError> {
    if !prefix.bytes().all(|c| c.is_ascii_hexdigit()) || prefix.len() > 32 {
        let problem = "hexadecimal digits expected; allowed: up to 32".to_owned();
        return Err(AdminError::Argument { field: "prefix", problem });
    }
    let prefix = prefix.to_ascii_lowercase();
    if !backend.is_empty() {
        // A backend that has left its route may still have sessions: its address is taken as it is.
        let selected = match fleet.select(Selector { route, backend, ..Selector::default() }).await {
            Err(error @ AdminError::NothingSelected { .. }) => {
                let id = BackendId::new(backend).map_err(|_| error)?;
                pools(fleet, route)?.into_iter().map(|pool| (pool, id.clone())).collect()
            }
            other => other?,
        };
        let filter = |id| SessionFilter { prefix: prefix.clone(), backend: Some(id) };
        return Ok(selected.into_iter().map(|(pool, id)| (pool, filter(id))).collect());
    }
    let filter = SessionFilter { prefix, backend: None };
    Ok(pools(fleet, route)?.into_iter().map(|pool| (pool, filter.clone())).collect())
}

fn pools(fleet: &Fleet, route: &str) -> Result<Vec<Arc<Pool>>, AdminError> {
    if route.is_empty() { Ok(fleet.pools().values().cloned().collect()) } else { Ok(vec![fleet.pool(route)?]) }
}
