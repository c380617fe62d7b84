//! `/healthz` (alive), `/readyz` (the truth), `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;

use crate::fleet::Fleet;
use crate::metrics::RouteFlow;
use crate::pool::Pool;

/// The routes of the HTTP listener.
pub fn router(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(fleet)
}

/// 503 while the database does not answer: bound sessions go on, new ones are provisional (design.md §5).
async fn readyz(State(fleet): State<Arc<Fleet>>) -> impl IntoResponse {
    let health = &fleet.store_health;
    let is_ready = health.is_ok();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let error = (!is_ready).then(|| health.state().last_error).flatten();
    let body = json!({
        "ready": is_ready,
        "database": { "kind": fleet.store.kind(), "ok": is_ready, "error": error },
    });
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n"))
}

async fn metrics(State(fleet): State<Arc<Fleet>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics_text(&fleet))
}

/// Everything that is measured, as Prometheus reads it.
pub(crate) fn metrics_text(fleet: &Fleet) -> String {
    let backends: Vec<_> = fleet.pools().values().flat_map(|pool| pool.backend_states()).collect();
    let flow = |pool: &Arc<Pool>| RouteFlow { seen: pool.inspect(), flows: pool.inspect_flows() };
    let routes: Vec<RouteFlow> = fleet.pools().values().map(flow).collect();
    fleet.metrics.render(
        &backends,
        &routes,
        fleet.replicas.connected(),
        fleet.store_health.is_ok(),
        fleet.context.committer.counts(),
    )
}
