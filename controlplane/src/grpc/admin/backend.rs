//! Backends: add, set, remove, drain, ban.

use router_policy::route::validate::{check_backends, parse_backend};
use router_proto::v1;
use serde_json::{Map, Value as Json};

use crate::error::AdminError;
use crate::fleet::{Fleet, Selected, Selector, backend_mut};

/// Most milliseconds of a ban: a year.
const MAX_BAN_MS: u64 = 365 * 86_400_000;

pub(super) async fn add(fleet: &Fleet, request: v1::AddBackendRequest) -> Result<v1::AddBackendReply, AdminError> {
    let wanted = request.backend.unwrap_or_default();
    let backend = parse_backend("backend", &Json::Object(Map::from(&wanted)))?;
    fleet
        .edit(&request.route, |spec| {
            if spec.backends.iter().any(|known| known.id == backend.id) {
                return Err(AdminError::Exists { what: "backend", name: backend.id.to_string() });
            }
            spec.backends.push(backend);
            check_backends("backend", &spec.backends).map_err(AdminError::from)
        })
        .await?;
    Ok(v1::AddBackendReply {})
}

pub(super) async fn set(fleet: &Fleet, request: v1::SetBackendRequest) -> Result<v1::SetBackendReply, AdminError> {
    let wanted = request.backend.unwrap_or_default();
    let changes = fleet
        .edit(&request.route, |spec| {
            let backend = backend_mut(spec, &wanted.address)?;
            let mut object = Map::from(&v1::BackendSpec::from(&*backend));
            let given = v1::BackendSpec { address: backend.id.to_string(), ..wanted };
            object.extend(Map::from(&given));
            *backend = parse_backend("backend", &Json::Object(object))?;
            check_backends("backend", &spec.backends).map_err(AdminError::from)
        })
        .await?;
    Ok(v1::SetBackendReply { fields: changes.into_iter().flat_map(|change| change.fields).map(Into::into).collect() })
}

pub(super) async fn remove(
    fleet: &Fleet,
    request: &v1::RemoveBackendRequest,
) -> Result<v1::RemoveBackendReply, AdminError> {
    let mut removed = String::new();
    fleet
        .edit(&request.route, |spec| {
            backend_mut(spec, &request.address)?.id.as_str().clone_into(&mut removed);
            spec.backends.retain(|backend| backend.id.as_str() != removed);
            spec.forget_windows_of_others();
            Ok(())
        })
        .await?;
    let states = fleet.pool(&request.route)?.backend_states();
    let in_flight = states.iter().filter(|state| state.address == removed).map(|state| state.in_flight).sum();
    Ok(v1::RemoveBackendReply { in_flight })
}

pub(super) async fn select(fleet: &Fleet, selector: &v1::BackendSelector) -> Result<Selected, AdminError> {
    fleet.select(wanted(selector)).await
}

fn wanted(selector: &v1::BackendSelector) -> Selector<'_> {
    Selector { route: &selector.route, port: selector.port, backend: &selector.backend }
}

pub(super) async fn set_drain(fleet: &Fleet, request: v1::SetDrainRequest) -> Result<v1::SetDrainReply, AdminError> {
    let selected = fleet.set_drain(wanted(&request.selector.unwrap_or_default()), request.drain).await?;
    fleet.publish_dirty();
    Ok(v1::SetDrainReply { backends: states(&selected) })
}

pub(super) async fn set_ban(fleet: &Fleet, request: v1::SetBanRequest) -> Result<v1::SetBanReply, AdminError> {
    if request.ttl_ms > MAX_BAN_MS {
        let problem = "allowed: at most 8760h; to take a backend out until further notice, drain it".to_owned();
        return Err(AdminError::Argument { field: "ttl", problem });
    }
    let selector = request.selector.unwrap_or_default();
    let selected = fleet.set_ban(wanted(&selector), request.ban, request.ttl_ms).await?;
    fleet.publish_dirty();
    Ok(v1::SetBanReply { backends: states(&selected) })
}

/// The selected backends' states. One that has left its route meanwhile is shown as removed while it holds leases, and not
/// at all after that.
pub(super) fn states(selected: &Selected) -> Vec<v1::BackendState> {
    selected
        .iter()
        .filter_map(|(pool, id)| pool.backend_states().into_iter().find(|state| state.address == id.as_str()))
        .collect()
}
