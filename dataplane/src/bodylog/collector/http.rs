//! The HTTP port (payloads.md §7.6, §8): `/healthz`, `/summary`, `/details`, `/metrics`. With a token set, all but
//! `/healthz` ask for it.
//!
//! `/metrics` is Prometheus' text; with any parameter of the details query it is that query, as clients of the reference
//! ask: one that forgot `end` is told so, and does not get a page of metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Clock;
use super::files::Places;
use super::minutes::Minutes;
use super::port;
use super::prometheus::CollectorMetrics;
use super::query::index::Index;
use super::query::parameters::{BadParameter, Parameters};
use super::summary::summary;

/// Questions to files at the same time; more wait. Each may read whole days.
const QUERIES_AT_ONCE: usize = 2;
/// Summaries at the same time.
const SUMMARIES_AT_ONCE: usize = 2;
/// How long questions wait for their turn.
const TURN: Duration = Duration::from_secs(10);

/// What is asked.
pub(crate) struct Asked {
    pub(crate) places: Places,
    pub(crate) with_details: bool,
    /// SHA-256 of the token.
    pub(crate) token: Option<[u8; 32]>,
    pub(crate) minutes: Arc<Mutex<Minutes>>,
    pub(crate) metrics: Arc<CollectorMetrics>,
    index: Index,
    queries: Semaphore,
    summaries: Semaphore,
}

impl Asked {
    pub(crate) fn new(
        places: Places,
        with_details: bool,
        token: Option<[u8; 32]>,
        minutes: Arc<Mutex<Minutes>>,
        metrics: Arc<CollectorMetrics>,
    ) -> Self {
        Self {
            places,
            with_details,
            token,
            minutes,
            metrics,
            index: Index::default(),
            queries: Semaphore::new(QUERIES_AT_ONCE),
            summaries: Semaphore::new(SUMMARIES_AT_ONCE),
        }
    }
}

/// Serves everything until `stop`.
pub(crate) async fn serve(listener: TcpListener, asked: Arc<Asked>, clock: Clock, stop: CancellationToken) {
    let answer = move |request: Request<Incoming>| {
        let (asked, now) = (Arc::clone(&asked), clock());
        async move { answer(&asked, &request.into_parts().0, now).await }
    };
    port::serve(listener, answer, stop).await;
}

/// Serves Prometheus' text alone, to anybody who reaches the port, until `stop`.
pub(crate) async fn serve_exporter(listener: TcpListener, metrics: Arc<CollectorMetrics>, stop: CancellationToken) {
    let answer = move |request: Request<Incoming>| {
        let answer = refused_method(request.method()).unwrap_or_else(|| match request.uri().path() {
            "/healthz" => health(&metrics),
            "/metrics" => exposition(&metrics),
            _ => failed(StatusCode::NOT_FOUND, "not found; there is /metrics and /healthz", None),
        });
        std::future::ready(answer)
    };
    port::serve(listener, answer, stop).await;
}

/// Nothing can be written or changed here.
fn refused_method(method: &Method) -> Option<Response> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let refused = failed(StatusCode::METHOD_NOT_ALLOWED, "GET expected", None);
    Some(([(ALLOW, "GET, HEAD")], refused).into_response())
}

async fn answer(asked: &Arc<Asked>, request: &Parts, now: Timestamp) -> Response {
    let path = request.uri.path();
    if let Some(refused) = refused_method(&request.method) {
        return refused;
    }
    if path == "/healthz" {
        return health(&asked.metrics);
    }
    let parameters = Parameters::read(request.uri.query().unwrap_or_default());
    if !is_let_in(asked, request, &parameters) {
        let refused =
            failed(StatusCode::UNAUTHORIZED, "missing or wrong token; send Authorization: Bearer TOKEN", None);
        return ([(WWW_AUTHENTICATE, "Bearer")], refused).into_response();
    }
    let answered = match path {
        "/summary" => answer_summary(asked, &parameters, now).await,
        "/details" => details(asked, &parameters).await,
        "/metrics" if parameters.asks_for_details() => details(asked, &parameters).await,
        "/metrics" => Ok(exposition(&asked.metrics)),
        _ => {
            let there = "not found; there is /summary, /details, /metrics and /healthz";
            Ok(failed(StatusCode::NOT_FOUND, there, None))
        }
    };
    answered.unwrap_or_else(|bad| failed(StatusCode::BAD_REQUEST, &bad.to_string(), Some(&bad.name)))
}

fn is_let_in(asked: &Asked, request: &Parts, parameters: &Parameters) -> bool {
    let Some(expected) = asked.token else { return true };
    let header = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = header.and_then(|value| value.strip_prefix("Bearer ")).or_else(|| parameters.get("token"));
    // Digests are compared, so that the time taken tells nothing about the token.
    shown.is_some_and(|token| <[u8; 32]>::from(Sha256::digest(token)) == expected)
}

async fn answer_summary(asked: &Arc<Asked>, parameters: &Parameters, now: Timestamp) -> Result<Response, BadParameter> {
    parameters.allow(&["breakdown", "minutes", "stream"])?;
    let minutes = parameters.minutes()?;
    let stream = parameters.get("stream").map(|text| matches!(text, "true" | "1"));
    let with_buckets = parameters.get("breakdown") == Some("true");
    let Ok(Ok(_turn)) = tokio::time::timeout(TURN, asked.summaries.acquire()).await else { return Ok(busy()) };
    let reader = Arc::clone(asked);
    // A week of many backends takes a while: too long for the threads that serve sockets.
    let summed = tokio::task::spawn_blocking(move || {
        let summary = summary(&reader.minutes, now, minutes, stream, with_buckets, reader.places.zone());
        json(StatusCode::OK, &summary)
    });
    Ok(summed.await.unwrap_or_else(|_| failed(StatusCode::INTERNAL_SERVER_ERROR, "the sums failed", None)))
}

async fn details(asked: &Arc<Asked>, parameters: &Parameters) -> Result<Response, BadParameter> {
    let query = parameters.query(asked.places.zone())?;
    if !asked.with_details {
        let why = "details are off; start the collector with --details on";
        return Ok(failed(StatusCode::SERVICE_UNAVAILABLE, why, None));
    }
    let Ok(Ok(_turn)) = tokio::time::timeout(TURN, asked.queries.acquire()).await else { return Ok(busy()) };
    // When the caller leaves, this future is dropped, and the guard ends the reading.
    let guard = CancelOnDrop::default();
    let (is_cancelled, reader) = (Arc::clone(&guard.0), Arc::clone(asked));
    let reading = tokio::task::spawn_blocking(move || {
        query.run(&reader.places, &reader.index, &|| is_cancelled.load(Ordering::Relaxed))
    });
    Ok(match reading.await.map_err(std::io::Error::other).flatten() {
        Ok(page) => json(StatusCode::OK, &page),
        Err(error) => {
            tracing::warn!(%error, "read details");
            failed(StatusCode::INTERNAL_SERVER_ERROR, "the details can't be read; the collector's log says why", None)
        }
    })
}

fn busy() -> Response {
    let busy = failed(StatusCode::SERVICE_UNAVAILABLE, "other questions are being answered; ask again later", None);
    ([(RETRY_AFTER, TURN.as_secs())], busy).into_response()
}

#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// 503 while records can't be written and wait: for a readiness check. A restart would lose those that wait.
fn health(metrics: &CollectorMetrics) -> Response {
    if metrics.is_writable() {
        return "OK".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "files can't be written; records wait").into_response()
}

fn exposition(metrics: &CollectorMetrics) -> Response {
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.encode()).into_response()
}

fn failed(status: StatusCode, message: &str, parameter: Option<&str>) -> Response {
    json(status, &serde_json::json!({"error": {"message": message, "param": parameter}}))
}

fn json(status: StatusCode, answer: &impl Serialize) -> Response {
    // Made of texts, numbers and JSON: it can always be written.
    let body = serde_json::to_vec(answer).unwrap_or_default();
    (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body).into_response()
}

#[cfg(test)]
mod tests;
