//! The admin port: `/healthz`, `/readyz`, `/metrics`, and the routes' pages `/<route>/_…`. Answers until the very end
//! of a shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::request::handle::Proxy;
use crate::request::page::{self, Port};

/// Serves until `stop`.
pub(crate) async fn serve(listener: TcpListener, proxy: Arc<Proxy>, stop: CancellationToken) {
    let (readiness, metrics) = (Arc::clone(&proxy.readiness), Arc::clone(&proxy.metrics));
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
    let pages = move |ConnectInfo(peer): ConnectInfo<SocketAddr>, request: Request| async move {
        let caller = page::Caller::of(Port::Admin, peer.ip(), request.method(), request.uri(), request.headers());
        Box::pin(page::answer(&proxy, caller, request)).await.map(Body::new)
    };
    let app = Router::new()
        .route("/healthz", get(|| async { json(StatusCode::OK, r#"{"status":"ok"}"#) }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(exposition))
        .fallback(pages)
        .into_make_service_with_connect_info::<SocketAddr>();
    // Dropped rather than drained: an open keep-alive connection of a scraper must not hold up the process.
    let serving = std::future::IntoFuture::into_future(axum::serve(listener, app));
    if let Some(Err(error)) = stop.run_until_cancelled(serving).await {
        tracing::error!(%error, "admin port failed");
    }
}

fn json(status: StatusCode, body: &'static str) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
