//! Routes: apply, export, list, set, remove.

use router_policy::option::kind::Value;
use router_policy::option::{Kind, catalogue};
use router_policy::route::raw::document_json;
use router_policy::route::validate::parse_option_each;
use router_policy::route::{Complaint, Complaints};
use router_proto::v1;
use serde_json::Value as Json;

use crate::error::AdminError;
use crate::fleet::{ApplyMode, Fleet};

pub(super) async fn apply(fleet: &Fleet, request: v1::ApplyRequest) -> Result<v1::ApplyReply, AdminError> {
    let document: Json = serde_json::from_str(&request.document_json)
        .map_err(|error| AdminError::Argument { field: "document", problem: format!("JSON expected: {error}") })?;
    let mode = ApplyMode { dry_run: request.dry_run, prune: request.prune, create_only: request.create_only };
    let changes = fleet.apply_drained(&document, mode, &request.drained).await?;
    Ok(v1::ApplyReply { changes: changes.into_iter().map(Into::into).collect() })
}

pub(super) async fn export(fleet: &Fleet, request: &v1::ExportRequest) -> Result<v1::ExportReply, AdminError> {
    if !request.route.is_empty() {
        fleet.pool(&request.route)?;
    }
    let specs = fleet.specs().await;
    let wanted = specs.iter().filter(|spec| request.route.is_empty() || spec.name.as_str() == request.route);
    Ok(v1::ExportReply { document_json: document_json(wanted.map(|spec| &**spec)).to_string() })
}

pub(super) fn list(fleet: &Fleet, request: &v1::ListRoutesRequest) -> Result<v1::ListRoutesReply, AdminError> {
    if !request.route.is_empty() {
        let pool = fleet.pool(&request.route)?;
        return Ok(v1::ListRoutesReply { routes: vec![state(fleet, &pool)] });
    }
    Ok(v1::ListRoutesReply { routes: states(fleet) })
}

pub(super) fn states(fleet: &Fleet) -> Vec<v1::RouteState> {
    fleet.pools().values().map(|pool| state(fleet, pool)).collect()
}

fn state(fleet: &Fleet, pool: &crate::pool::Pool) -> v1::RouteState {
    v1::RouteState { complaints: fleet.complaints(pool.name()), ..pool.route_state() }
}

pub(super) async fn remove(
    fleet: &Fleet,
    request: &v1::RemoveRouteRequest,
) -> Result<v1::RemoveRouteReply, AdminError> {
    let state = fleet.pool(&request.route)?.route_state();
    fleet.remove_route(&request.route).await?;
    let in_flight = state.backends.iter().map(|backend| backend.in_flight).sum();
    Ok(v1::RemoveRouteReply { in_flight, sessions_forgotten: state.sessions })
}

pub(super) async fn set(fleet: &Fleet, request: v1::SetRouteRequest) -> Result<v1::SetRouteReply, AdminError> {
    let v1::SetRouteRequest { route, mut set, unset } = request;
    let mut complaints = Vec::new();
    let mut complain = |name: &str, problem: String| {
        complaints.push(Complaint { field: format!("options.{name}"), problem });
    };
    let is_default = set.remove("default").and_then(|text| match Kind::Bool.parse_text(&text) {
        Ok(Value::Bool(flag)) => Some(flag),
        Ok(_) => None,
        Err(error) => {
            complain("default", error.to_string());
            None
        }
    });
    let mut values = Vec::new();
    for (name, text) in set {
        match parse_option_each(&name, &Json::String(text)) {
            Ok(value) => values.push(value),
            Err(found) => found.0.into_iter().for_each(|one| complain(&one.field, one.problem)),
        }
    }
    for name in unset.iter().filter(|name| catalogue::find(name).is_none()) {
        complain(name, "unknown option; `routerctl route options` lists all".to_owned());
    }
    if !complaints.is_empty() {
        complaints.sort_by(|a, b| a.field.cmp(&b.field));
        return Err(Complaints(complaints).into());
    }
    let changes = fleet
        .edit(&route, |spec| {
            spec.is_default = is_default.unwrap_or(spec.is_default);
            spec.set.retain(|name, _| !unset.iter().any(|gone| gone == name));
            spec.set.extend(values);
            Ok(())
        })
        .await?;
    Ok(v1::SetRouteReply { fields: changes.into_iter().flat_map(|change| change.fields).map(Into::into).collect() })
}
