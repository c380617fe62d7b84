//! Errors as clients read them: the `OpenAI` shape, and the Anthropic shape on `/v1/messages` (rulings §4, conventions §1).
//! The only place in the replica where a cause becomes a status.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use router_policy::header::CONTEXT_WINDOW;
use router_policy::refusal::Gate;
use serde_json::{Map, Value as Json, json};

use super::error::Error;
use crate::coordinate::Refused;

/// A machine-readable reason on each refusal.
const REFUSED: HeaderName = HeaderName::from_static("x-router-refused");

/// Which API's shape the client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    OpenAi,
    Anthropic,
}

impl Shape {
    /// Of a path without its route prefix.
    pub(crate) fn of(path: &str) -> Self {
        let messages = path.strip_prefix("/v1/messages");
        if messages.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            Self::Anthropic
        } else {
            Self::OpenAi
        }
    }
}

/// An error, decided.
struct Answer {
    status: StatusCode,
    /// The `type` of the `OpenAI` shape, and Anthropic's.
    kinds: (&'static str, &'static str),
    /// `None`: clients read the status in its place and nothing more, so that nothing tells of the backend (routing.md §8.3).
    code: Option<&'static str>,
    message: String,
    details: Json,
}

impl Answer {
    fn of(error: &Error) -> Self {
        let status;
        let kinds;
        let code;
        let mut details = json!({});
        let message = match error {
            Error::NoRoute => {
                (status, kinds, code) = (StatusCode::NOT_FOUND, NOT_FOUND, Gate::UnknownRoute.code());
                "no route answers this path; expected /v1/... or /<route>/v1/...".to_owned()
            }
            Error::NoDefaultRoute => {
                (status, kinds, code) = (StatusCode::NOT_FOUND, NOT_FOUND, "no_default_route");
                "no default route; call /<route>/v1/..., or make one the default: routerctl route set <route> --default true"
                    .to_owned()
            }
            Error::BadHost => {
                (status, kinds, code) = (StatusCode::BAD_REQUEST, INVALID, "bad_host");
                "exactly one host header is expected".to_owned()
            }
            Error::BadPath => {
                (status, kinds, code) = (StatusCode::BAD_REQUEST, INVALID, "bad_path");
                "dot segments are not allowed in the path".to_owned()
            }
            Error::Unauthorized => {
                (status, kinds, code) =
                    (StatusCode::UNAUTHORIZED, ("invalid_request_error", "authentication_error"), "invalid_api_key");
                "missing or invalid api key".to_owned()
            }
            Error::InvalidContextWindow(invalid) => {
                (status, kinds, code) = (StatusCode::BAD_REQUEST, INVALID, "invalid_context_window");
                details = json!({"header": CONTEXT_WINDOW.as_str()});
                invalid.to_string()
            }
            Error::BodyTooLarge { limit } => {
                (status, kinds, code) =
                    (StatusCode::PAYLOAD_TOO_LARGE, ("invalid_request_error", "request_too_large"), "body_too_large");
                details = json!({"limit_bytes": limit});
                format!("the request body is larger than {limit} bytes")
            }
            Error::BodyTimeout => {
                (status, kinds, code) = (StatusCode::REQUEST_TIMEOUT, INVALID, "body_timeout");
                "the request body stopped coming in".to_owned()
            }
            Error::BodyBroken => {
                (status, kinds, code) = (StatusCode::BAD_REQUEST, INVALID, "body_broken");
                "the request body broke off or is malformed".to_owned()
            }
            Error::BodyNotJson => {
                (status, kinds, code) = (StatusCode::BAD_REQUEST, INVALID, "body_not_json");
                "the request body is not one JSON object or list in UTF-8".to_owned()
            }
            Error::NotReady => {
                return Self::of(&Error::Refused(Refused::by(Gate::ControlPlaneUnavailable)));
            }
            Error::RejectedByRule(rejected) => {
                status = StatusCode::from_u16(rejected.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
                code = "rejected_by_rule";
                kinds = (code, anthropic_kind(status));
                details = json!({"rule": rejected.rule, "route": rejected.route});
                rejected.message.clone()
            }
            Error::Refused(refused) => {
                status = StatusCode::from_u16(refused.http_status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                code = refused.gate.code();
                kinds = (code, anthropic_kind(status));
                details = refused_details(refused);
                refused.detail.clone().into_owned()
            }
            Error::BackendUnreachable => {
                (status, kinds, code) = (StatusCode::BAD_GATEWAY, UPSTREAM, "backend_unreachable");
                "the backend could not be reached".to_owned()
            }
            Error::BackendSilent => {
                (status, kinds, code) = (StatusCode::GATEWAY_TIMEOUT, UPSTREAM, "backend_timeout");
                "the backend did not answer in time".to_owned()
            }
            Error::HiddenStatus { .. } => {
                return Self {
                    status: StatusCode::NOT_IMPLEMENTED,
                    kinds: ("not_implemented", "api_error"),
                    code: None,
                    message: "Not Implemented".to_owned(),
                    details,
                };
            }
            Error::BackendBadAnswer { status: answered } => {
                (status, kinds, code) = (StatusCode::BAD_GATEWAY, UPSTREAM, "backend_bad_answer");
                details = json!({"backend_status": answered});
                "the backend did not answer with a list of models".to_owned()
            }
            Error::NoModelList => {
                (status, kinds, code) = (StatusCode::NOT_FOUND, NOT_FOUND, "no_model_list");
                "the backends of this route have no list of models".to_owned()
            }
            Error::ModelNotFound => {
                (status, kinds, code) = (StatusCode::NOT_FOUND, NOT_FOUND, "model_not_found");
                "no backend of this route has a model with this id".to_owned()
            }
        };
        Self { status, kinds, code: Some(code), message, details }
    }
}

/// The gate and its numbers; what the control plane says besides comes before the latter (limits.md §12.1).
fn refused_details(refused: &Refused) -> Json {
    let mut details = Map::new();
    details.insert("in_flight".to_owned(), Json::from(refused.in_flight));
    details.insert("limit".to_owned(), Json::from(refused.limit));
    details.extend(refused.details.clone());
    details.insert("gate".to_owned(), Json::from(refused.gate.code()));
    if refused.gate == Gate::ContextWindow {
        details.insert("header".to_owned(), Json::from(CONTEXT_WINDOW.as_str()));
    }
    Json::Object(details)
}

const INVALID: (&str, &str) = ("invalid_request_error", "invalid_request_error");
const NOT_FOUND: (&str, &str) = ("invalid_request_error", "not_found_error");
const UPSTREAM: (&str, &str) = ("upstream_error", "api_error");

fn anthropic_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "not_found_error",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The whole response.
pub(crate) fn render(error: &Error, shape: Shape) -> Response<Full<Bytes>> {
    let answer = Answer::of(error);
    let body = match (shape, answer.code) {
        (Shape::OpenAi, None) => json!({"error": {
            "message": answer.message,
            "type": answer.kinds.0,
            "code": answer.status.as_u16(),
        }}),
        (Shape::OpenAi, Some(code)) => json!({"error": {
            "message": answer.message,
            "type": answer.kinds.0,
            "param": null,
            "code": code,
            "details": answer.details,
        }}),
        (Shape::Anthropic, _) => json!({"type": "error", "error": {"type": answer.kinds.1, "message": answer.message}}),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    match error {
        Error::Refused(refused) => {
            headers.insert(REFUSED, HeaderValue::from_static(refused.gate.code()));
            if let Some(seconds) = refused.retry_after_s {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
        }
        Error::NotReady => {
            headers.insert(REFUSED, HeaderValue::from_static(Gate::ControlPlaneUnavailable.code()));
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Error::Unauthorized => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Error::BadHost => {
            // What follows on the connection may not be what the client thinks it is.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Error::RejectedByRule(_) => {
            headers.insert(REFUSED, HeaderValue::from_static("rejected_by_rule"));
        }
        Error::NoRoute
        | Error::NoDefaultRoute
        | Error::BadPath
        | Error::InvalidContextWindow(_)
        | Error::BodyTooLarge { .. }
        | Error::BodyTimeout
        | Error::BodyBroken
        | Error::BodyNotJson
        | Error::BackendUnreachable
        | Error::BackendSilent
        | Error::HiddenStatus { .. }
        | Error::BackendBadAnswer { .. }
        | Error::NoModelList
        | Error::ModelNotFound => {}
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use router_proto::v1;

    const CODE: &str = "model_not_supported";

    fn json_of(error: &Error, shape: Shape) -> (StatusCode, Json) {
        let response = render(error, shape);
        let status = response.status();
        let body = futures_util::FutureExt::now_or_never(response.into_body().collect()).unwrap().unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn shapes() {
        let (status, openai) = json_of(&Error::Unauthorized, Shape::OpenAi);
        assert_eq!(status, 401);
        assert_eq!(
            openai,
            json!({"error": {"message": "missing or invalid api key", "type": "invalid_request_error", "param": null,
                "code": "invalid_api_key", "details": {}}})
        );
        let (_, anthropic) = json_of(&Error::Refused(Refused::by(Gate::QueueFull)), Shape::Anthropic);
        assert_eq!(anthropic["type"], "error");
        assert_eq!(anthropic["error"]["type"], "rate_limit_error");
        for (path, shape) in [
            ("/v1/messages", Shape::Anthropic),
            ("/v1/messages/count_tokens", Shape::Anthropic),
            ("/v1/messagesX", Shape::OpenAi),
            ("/v1/chat/completions", Shape::OpenAi),
        ] {
            assert_eq!(Shape::of(path), shape, "{path}");
        }
    }

    #[test]
    fn limits_12_1_details_of_the_control_plane_come_before_the_common_numbers() {
        let details_json =
            r#"{"error":"concurrency limit exceeded","limit":10.2,"realtime":11,"avg_5min":3.0,"gate":"x"}"#;
        let refused = |details_json: &str| {
            let message = v1::Refused {
                gate: v1::Gate::QueueFull.into(),
                in_flight: 11,
                limit: 10,
                details_json: details_json.to_owned(),
                ..Default::default()
            };
            let (_, json) = json_of(&Error::Refused(Refused::from(message)), Shape::OpenAi);
            json["error"]["details"].clone()
        };
        assert_eq!(
            refused(details_json),
            json!({"in_flight": 11, "limit": 10.2, "error": "concurrency limit exceeded", "realtime": 11,
                "avg_5min": 3.0, "gate": "queue_full"})
        );
        for none in ["", "{", "[1]", "null"] {
            assert_eq!(refused(none), json!({"in_flight": 11, "limit": 10, "gate": "queue_full"}), "{none}");
        }
    }

    #[test]
    fn rulings_4_an_unknown_model_and_the_latency_gates() {
        let message = v1::Refused {
            gate: v1::Gate::UnknownModel.into(),
            http_status: 400,
            detail: "model 'x' not configured on this route".into(),
            details_json: r#"{"supported_models":["a","b"]}"#.into(),
            ..Default::default()
        };
        let error = Error::Refused(Refused::from(message));
        let (status, openai) = json_of(&error, Shape::OpenAi);
        let told = &openai["error"];
        assert_eq!((status.as_u16(), &told["type"], &told["code"]), (400, &json!(CODE), &json!(CODE)));
        assert_eq!(told["message"], "model 'x' not configured on this route");
        assert_eq!(told["details"]["supported_models"], json!(["a", "b"]));
        assert_eq!(json_of(&error, Shape::Anthropic).1["error"]["type"], "invalid_request_error");
        for gate in [Gate::Ttft, Gate::Tps] {
            let (status, json) = json_of(&Error::Refused(Refused::by(gate)), Shape::Anthropic);
            assert_eq!((status.as_u16(), &json["error"]["type"]), (429, &json!("rate_limit_error")), "{gate:?}");
        }
    }

    #[test]
    fn conventions_1_each_429_and_503_carries_retry_after_and_a_reason() {
        for error in Gate::ALL.map(|gate| Error::Refused(Refused::by(gate))).into_iter().chain([Error::NotReady]) {
            let response = render(&error, Shape::OpenAi);
            let is_busy = matches!(response.status().as_u16(), 429 | 503);
            assert_eq!(response.headers().contains_key(RETRY_AFTER), is_busy, "{error}");
            assert!(response.headers().contains_key(REFUSED), "{error}");
        }
    }
}
