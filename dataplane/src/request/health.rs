//! Health paths on the traffic port, under the names that different engines and platforms ask for (conventions §1).
//! Liveness says that the process runs; readiness says whether it can serve.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::server::readiness::NotReady;

/// The answer when `path` is a health path.
pub(crate) fn answer(path: &str, readiness: impl FnOnce() -> Result<(), NotReady>) -> Option<Response<Full<Bytes>>> {
    match path {
        "/health" | "/healthz" | "/liveness" | "/health/liveliness" => Some(render(Ok(()))),
        "/readyz" | "/readiness" | "/health/readiness" => Some(render(readiness())),
        _ => None,
    }
}

fn render(state: Result<(), NotReady>) -> Response<Full<Bytes>> {
    let (status, body) = match state {
        Ok(()) => (StatusCode::OK, r#"{"status":"ok"}"#),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason.json()),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
