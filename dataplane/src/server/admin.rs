//! The admin port: `/healthz`, `/readyz`, `/metrics`. Answers until the very end of a shutdown.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::readiness::Readiness;
use crate::metrics::Metrics;

/// Serves until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let readyz = move || async move {
        match readiness.check() {
            Ok(()) => json(StatusCode::OK, r#"{"status":"ok"}"#),
            Err(reason) => json(StatusCode::SERVICE_UNAVAILABLE, reason.json()),
        }
    };
    let exposition = move || async move {
        ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.encode())
            .into_response()
    };
    let app = Router::new()
        .route("/healthz", get(|| async { json(StatusCode::OK, r#"{"status":"ok"}"#) }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(exposition));
    // Dropped rather than drained: an open keep-alive connection of a scraper must not hold up the process.
    let serving = std::future::IntoFuture::into_future(axum::serve(listener, app));
    if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
        tracing::error!(%error, "admin port failed");
    }
}

fn json(status: StatusCode, body: &'static str) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
