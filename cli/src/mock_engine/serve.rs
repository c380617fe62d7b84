//! Takes one HTTP request through the engine: what counts as in flight, in which order a request is read, held, failed
//! and answered.
//!
//! Counted are all paths under `/v1/` except `/v1/models`. The body is read whole before anything else, because only then
//! does hyper notice a client that leaves while the request waits.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL};
use http::{HeaderValue, Method, Request, Response, StatusCode, request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::body::{EngineBody, Script};
use super::prefix_cache::token_count;
use super::request::{Api, Ask, BadRequest};
use super::response::{
    EVENT_STREAM, bad_request, error_response, json_response, response, whole_response, with_origin, with_rank,
};
use super::state::{Engine, FailMode, Health, InFlight, Settings, unix_seconds};
use super::{anthropic, control, embeddings, openai, request as ask, text};

/// Longest request body.
const MAX_BODY_BYTES: usize = 256 << 20;

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("told to refuse")]
pub(crate) struct Refused;

/// One answer's data, before it takes a wire shape.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Without the API's prefix.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    /// Output tokens, at least 1.
    pub(crate) tokens: u32,
    /// The request's `max_tokens` was lower than what the engine had to say.
    pub(crate) is_cut: bool,
    pub(crate) wants_usage: bool,
}

impl Script {
    /// The events of `answer`, without delays.
    pub(crate) fn new(
        opening: Vec<u8>,
        before_token: Vec<u8>,
        after_token: Vec<u8>,
        closing: Vec<u8>,
        answer: &Answer,
    ) -> Self {
        Self {
            opening,
            before_token,
            after_token,
            closing,
            tokens: answer.tokens,
            ttft: Duration::ZERO,
            token_gap: Duration::ZERO,
            dies_after: None,
        }
    }
}

/// Answers one request.
pub(crate) async fn answer(engine: Arc<Engine>, request: Request<Incoming>) -> Result<Response<EngineBody>, Refused> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if let Some(operation) = path.strip_prefix("/_mock/") {
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map(http_body_util::Collected::to_bytes);
        let (status, json) = control::answer(&engine, &head.method, operation, &body.unwrap_or_default());
        return Ok(json_response(status, json, None));
    }
    let settings = engine.settings();
    if settings.fail == FailMode::Refuse {
        engine.count_refused();
        return Err(Refused);
    }
    match path {
        "/health" => Ok(health(settings.health).await),
        "/version" => Ok(json_response(StatusCode::OK, br#"{"version":"mock-engine"}"#.to_vec(), None)),
        "/v1/models" => Ok(json_response(StatusCode::OK, openai::models(&engine.model, settings.max_model_len), None)),
        path if path.starts_with("/v1/") => counted(&engine, &head, body, &settings).await,
        _ => Ok(error_response(path, StatusCode::NOT_FOUND, "the mock engine has no such path", None, None)),
    }
}

async fn health(health: Health) -> Response<EngineBody> {
    let status = match health {
        Health::Ok => StatusCode::OK,
        Health::Fail => StatusCode::SERVICE_UNAVAILABLE,
        Health::Hang => std::future::pending().await,
    };
    json_response(status, b"{}".to_vec(), None)
}

/// A request that counts as in flight.
async fn counted(
    engine: &Arc<Engine>,
    head: &request::Parts,
    body: Incoming,
    settings: &Settings,
) -> Result<Response<EngineBody>, Refused> {
    let in_flight = engine.enter();
    let path = head.uri.path();
    let is_canned = !settings.canned.is_empty();
    let body = match read(body, is_canned).await {
        Ok(body) => body,
        Err(status) => {
            return Ok(error_response(path, status, "the request body was not read", None, Some(in_flight)));
        }
    };
    engine.record(head, &body);
    engine.wait_until_released().await;
    // What a test set while the request was held applies to it.
    let settings = &engine.settings();
    match settings.fail {
        FailMode::None | FailMode::DieMidStream => {}
        FailMode::Refuse => {
            engine.count_refused();
            return Err(Refused);
        }
        FailMode::Hang => return std::future::pending().await,
        FailMode::Status500 | FailMode::Status503 => {
            let is_500 = settings.fail == FailMode::Status500;
            let status = if is_500 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::SERVICE_UNAVAILABLE };
            return Ok(error_response(path, status, "the mock engine was told to fail", None, Some(in_flight)));
        }
    }
    if is_canned {
        pause(Duration::from_millis(settings.ttft_ms)).await;
        return Ok(whole_response(settings, settings.canned.clone(), in_flight));
    }
    let api = match path {
        "/v1/chat/completions" => Api::Chat,
        "/v1/completions" => Api::Completions,
        "/v1/messages" => Api::Messages,
        "/v1/embeddings" if head.method == Method::POST => {
            pause(Duration::from_millis(settings.ttft_ms)).await;
            return Ok(match embeddings::answer(&body, &engine.model) {
                Ok(json) => whole_response(settings, json.into(), in_flight),
                Err(bad) => bad_request(path, &bad, in_flight),
            });
        }
        _ => return Ok(echo(head, &body, in_flight)),
    };
    if head.method != Method::POST {
        let mut response =
            error_response(path, StatusCode::METHOD_NOT_ALLOWED, "POST is expected here", None, Some(in_flight));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Ok(response);
    }
    Ok(match ask::parse(api, &body) {
        Ok(ask) => with_rank(&head.headers, generate(engine, settings, api, ask, in_flight).await),
        Err(bad) => bad_request(path, &bad, in_flight),
    })
}

/// Reads the body to its end; `is_canned` throws it away as it comes.
async fn read(mut body: Incoming, is_canned: bool) -> Result<Bytes, StatusCode> {
    if is_canned {
        while let Some(frame) = body.frame().await {
            frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        }
        return Ok(Bytes::new());
    }
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

/// Answers a generation request, streamed or not.
async fn generate(
    engine: &Engine,
    settings: &Settings,
    api: Api,
    ask: Ask,
    in_flight: InFlight,
) -> Response<EngineBody> {
    let prompt_tokens = token_count(&ask.prompt);
    if prompt_tokens > settings.max_model_len as usize {
        let message = format!(
            "This model's maximum context length is {} tokens. However, your request has {prompt_tokens} input tokens. \
             Please reduce the length of the input messages.",
            settings.max_model_len
        );
        let path = if api == Api::Messages { "/v1/messages" } else { "" };
        return bad_request(path, &BadRequest { message, param: Some("messages") }, in_flight);
    }
    let tokens = settings.tokens.min(ask.max_tokens.unwrap_or(u32::MAX)).max(1);
    let becomes = ask::answer_as_message(api, &text::answer(tokens));
    let cached_tokens = engine.use_prefix(&ask.prompt, &becomes, prompt_tokens);
    let answer = Answer {
        id: format!("mock{:08x}", engine.next_answer()),
        created: unix_seconds(),
        model: if ask.model.is_empty() { engine.model.clone() } else { ask.model },
        prompt_tokens,
        cached_tokens,
        tokens,
        is_cut: tokens < settings.tokens,
        wants_usage: ask.wants_usage || settings.always_usage,
    };
    let ttft = settings.ttft(cached_tokens, prompt_tokens);
    if !ask.is_streamed {
        pause(ttft + settings.token_gap() * (tokens - 1)).await;
        let body = if api == Api::Messages { anthropic::whole(&answer) } else { openai::whole(api, &answer) };
        return with_origin(engine, whole_response(settings, body.into(), in_flight));
    }
    let mut script = if api == Api::Messages { anthropic::script(&answer) } else { openai::script(api, &answer) };
    script.ttft = ttft;
    script.token_gap = settings.token_gap();
    script.dies_after = (settings.fail == FailMode::DieMidStream).then_some(tokens / 2);
    let mut response = response(StatusCode::OK, EVENT_STREAM, EngineBody::tokens(script, in_flight));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    with_origin(engine, response)
}

/// Says what was received, so that tests can compare it with what was sent.
fn echo(head: &request::Parts, body: &[u8], in_flight: InFlight) -> Response<EngineBody> {
    let headers: Vec<(&str, String)> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let answer = json!({
        "method": head.method.as_str(),
        "path": head.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str),
        "version": format!("{:?}", head.version),
        "headers": headers,
        "body_bytes": body.len(),
        "body_sha256": hex(&Sha256::digest(body)),
        "system_fingerprint": openai::FINGERPRINT,
    });
    // A body for HEAD would never be asked for, and the request would look aborted.
    if head.method == Method::HEAD {
        in_flight.finish();
        return json_response(StatusCode::OK, Vec::new(), None);
    }
    json_response(StatusCode::OK, answer.to_string().into_bytes(), Some(in_flight))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
impl Answer {
    /// An answer for tests of the wire shapes.
    pub(crate) fn example() -> Self {
        Self {
            id: "mock1".into(),
            created: 1,
            model: "m".into(),
            prompt_tokens: 3,
            cached_tokens: 0,
            tokens: 2,
            is_cut: false,
            wants_usage: false,
        }
    }
}
