//! Builds HTTP responses around the engine's bodies.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, SERVER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::body::EngineBody;
use super::request::BadRequest;
use super::state::{Engine, FailMode, InFlight, Settings};
use super::{anthropic, openai};

const SERVER_NAME: HeaderValue = HeaderValue::from_static("routerctl-mock-engine");
pub(crate) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response that names the mock as its server.
pub(crate) fn response(status: StatusCode, content_type: HeaderValue, body: EngineBody) -> Response<EngineBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(SERVER, SERVER_NAME);
    response
}

/// A JSON answer; `in_flight` is finished with it.
pub(crate) fn json_response(status: StatusCode, json: Vec<u8>, in_flight: Option<InFlight>) -> Response<EngineBody> {
    response(status, JSON, EngineBody::whole(json, in_flight))
}

/// An answer in one piece, of which the second half is missing if the engine is told to die.
pub(crate) fn whole_response(settings: &Settings, json: Bytes, in_flight: InFlight) -> Response<EngineBody> {
    let body = if settings.fail == FailMode::DieMidStream {
        EngineBody::torn(&json, in_flight)
    } else {
        EngineBody::whole(json, Some(in_flight))
    };
    response(StatusCode::OK, JSON, body)
}

/// An error in the shape of the API that `path` belongs to.
pub(crate) fn error_response(
    path: &str,
    status: StatusCode,
    message: &str,
    param: Option<&str>,
    in_flight: Option<InFlight>,
) -> Response<EngineBody> {
    let body =
        if path == "/v1/messages" { anthropic::error(status, message) } else { openai::error(status, message, param) };
    json_response(status, body, in_flight)
}

/// A 400 in the shape of the API that `path` belongs to.
pub(crate) fn bad_request(path: &str, bad: &BadRequest, in_flight: InFlight) -> Response<EngineBody> {
    error_response(path, StatusCode::BAD_REQUEST, &bad.message, bad.param, Some(in_flight))
}

/// Says which engine answered.
pub(crate) fn with_origin(engine: &Engine, mut response: Response<EngineBody>) -> Response<EngineBody> {
    if let Ok(address) = HeaderValue::try_from(engine.address.to_string()) {
        response.headers_mut().insert("x-mock-engine", address);
    }
    response
}

/// Says which data-parallel rank the request named, if any; several as they came.
pub(crate) fn with_rank(request: &HeaderMap, mut response: Response<EngineBody>) -> Response<EngineBody> {
    for rank in request.get_all("x-data-parallel-rank") {
        response.headers_mut().append("x-mock-data-parallel-rank", rank.clone());
    }
    response
}
