//! Anthropic's wire shape of `/v1/messages`.

use http::StatusCode;
use serde_json::{Value, json};

use super::body::Script;
use super::openai::FINGERPRINT;
use super::serve::Answer;
use super::{sse, text};

fn stop_reason(answer: &Answer) -> &'static str {
    if answer.is_cut { "max_tokens" } else { "end_turn" }
}

/// A message object. Anthropic's `input_tokens` leaves out what came from the cache.
fn message(answer: &Answer, content: &Value, reason: &Value, output_tokens: u32) -> Value {
    json!({
        "id": format!("msg_{}", answer.id),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": null,
        "usage": {
            "input_tokens": answer.prompt_tokens - answer.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": answer.cached_tokens,
            "output_tokens": output_tokens,
        },
        "system_fingerprint": FINGERPRINT,
    })
}

/// The JSON body of an answer that is not streamed.
pub(crate) fn whole(answer: &Answer) -> Vec<u8> {
    let content = json!([{"type": "text", "text": text::answer(answer.tokens)}]);
    message(answer, &content, &json!(stop_reason(answer)), answer.tokens).to_string().into_bytes()
}

/// The events of a streamed answer.
pub(crate) fn script(answer: &Answer) -> Script {
    let event = |out: &mut Vec<u8>, name: &str, data: &Value| sse::push_event(out, name, &data.to_string());

    let mut opening = Vec::new();
    let start = json!({"type": "message_start", "message": message(answer, &json!([]), &Value::Null, 0)});
    event(&mut opening, "message_start", &start);
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    event(&mut opening, "content_block_start", &block);
    event(&mut opening, "ping", &json!({"type": "ping"}));

    let before_token = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
                         \"delta\":{\"type\":\"text_delta\",\"text\":\""
        .to_vec();
    let after_token = b"\"}}\n\n".to_vec();

    let mut closing = Vec::new();
    event(&mut closing, "content_block_stop", &json!({"type": "content_block_stop", "index": 0}));
    let delta = json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
        "usage": {"output_tokens": answer.tokens},
    });
    event(&mut closing, "message_delta", &delta);
    event(&mut closing, "message_stop", &json!({"type": "message_stop"}));
    Script::new(opening, before_token, after_token, closing, answer)
}

/// An error body.
pub(crate) fn error(status: StatusCode, message: &str) -> Vec<u8> {
    let kind = match status.as_u16() {
        404 => "not_found_error",
        400..500 => "invalid_request_error",
        503 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}}).to_string().into_bytes()
}
