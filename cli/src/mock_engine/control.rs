//! `/_mock/*`: what tests use to watch the engine and to change its behaviour while it runs.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::state::{Engine, FailMode, Health};
use super::{MAX_PAUSE_MS, MAX_TOKENS, openai};

/// Body of `/_mock/set`: what is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    ttft_ms: Option<u64>,
    #[serde(alias = "token_ms")]
    token_gap_ms: Option<u64>,
    tokens: Option<u32>,
    max_model_len: Option<u32>,
    cached_speedup: Option<f64>,
    always_usage: Option<bool>,
    fail: Option<FailMode>,
    health: Option<Health>,
    answer_bytes: Option<usize>,
    record: Option<usize>,
}

/// Carries out `operation` (the path after `/_mock/`); returns the status and a JSON body.
pub(crate) fn answer(engine: &Engine, method: &Method, operation: &str, body: &[u8]) -> (StatusCode, Vec<u8>) {
    match (method, operation) {
        (&Method::GET, "stats") => json_of(&engine.stats()),
        (&Method::GET, "settings") => json_of(&engine.settings()),
        (&Method::GET, "recorded") => json_of(&engine.recorded()),
        (&Method::POST, "set") => match set(engine, body) {
            Ok(()) => json_of(&engine.settings()),
            Err(message) => refusal(StatusCode::BAD_REQUEST, &message),
        },
        (&Method::POST, "reset") => {
            engine.reset();
            json_of(&engine.stats())
        }
        (&Method::POST, "flush") => {
            engine.flush_cache();
            json_of(&json!({"flushed": true}))
        }
        (&Method::POST, "hold") => hold(engine, true),
        (&Method::POST, "release") => hold(engine, false),
        (_, "stats" | "settings" | "recorded" | "set" | "reset" | "flush" | "hold" | "release") => {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "another method is expected here")
        }
        _ => refusal(StatusCode::NOT_FOUND, "no such control operation"),
    }
}

fn hold(engine: &Engine, is_held: bool) -> (StatusCode, Vec<u8>) {
    engine.set_held(is_held);
    json_of(&json!({"held": is_held}))
}

/// Applies a change whole, or not at all.
fn set(engine: &Engine, body: &[u8]) -> Result<(), String> {
    let change: Change = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let tokens = change.tokens.unwrap_or(1);
    if !(1..=MAX_TOKENS).contains(&tokens) {
        return Err(format!("tokens: 1 to {MAX_TOKENS} expected, got {tokens}"));
    }
    for (name, pause_ms) in [("ttft_ms", change.ttft_ms), ("token_gap_ms", change.token_gap_ms)] {
        if pause_ms.is_some_and(|pause_ms| pause_ms > MAX_PAUSE_MS) {
            return Err(format!("{name}: at most {MAX_PAUSE_MS} expected"));
        }
    }
    if let Some(share) = change.cached_speedup
        && !(0.0..=1.0).contains(&share)
    {
        return Err(format!("cached_speedup: 0 to 1 expected, got {share}"));
    }
    if let Some(bytes) = change.answer_bytes {
        engine.set_answer_bytes(bytes)?;
    }
    engine.change(|settings| {
        settings.ttft_ms = change.ttft_ms.unwrap_or(settings.ttft_ms);
        settings.token_gap_ms = change.token_gap_ms.unwrap_or(settings.token_gap_ms);
        settings.tokens = change.tokens.unwrap_or(settings.tokens);
        settings.max_model_len = change.max_model_len.unwrap_or(settings.max_model_len);
        settings.cached_speedup = change.cached_speedup.unwrap_or(settings.cached_speedup);
        settings.always_usage = change.always_usage.unwrap_or(settings.always_usage);
        settings.fail = change.fail.unwrap_or(settings.fail);
        settings.health = change.health.unwrap_or(settings.health);
        settings.record = change.record.unwrap_or(settings.record);
    });
    Ok(())
}

fn json_of(value: &impl serde::Serialize) -> (StatusCode, Vec<u8>) {
    match serde_json::to_vec(value) {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn refusal(status: StatusCode, message: &str) -> (StatusCode, Vec<u8>) {
    (status, openai::error(status, message, None))
}
