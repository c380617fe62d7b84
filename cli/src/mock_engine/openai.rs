//! Wire shapes of `OpenAI`: chat completions, text completions, the model list and errors.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::body::Script;
use super::request::Api;
use super::serve::Answer;
use super::{sse, text};

/// Marks every answer as a mock's.
pub(crate) const FINGERPRINT: &str = "mock-engine";

/// `usage` of an answer.
fn usage(answer: &Answer) -> Value {
    json!({
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.tokens,
        "total_tokens": answer.prompt_tokens + answer.tokens as usize,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    })
}

fn finish_reason(answer: &Answer) -> &'static str {
    if answer.is_cut { "length" } else { "stop" }
}

/// Id, object name of a whole answer, object name of a chunk.
fn names(api: Api, answer: &Answer) -> (String, &'static str, &'static str) {
    match api {
        Api::Completions => (format!("cmpl-{}", answer.id), "text_completion", "text_completion"),
        Api::Chat | Api::Messages => (format!("chatcmpl-{}", answer.id), "chat.completion", "chat.completion.chunk"),
    }
}

/// The JSON body of an answer that is not streamed.
pub(crate) fn whole(api: Api, answer: &Answer) -> Vec<u8> {
    let (id, object, _) = names(api, answer);
    let content = text::answer(answer.tokens);
    let choice = match api {
        Api::Completions => json!({
            "index": 0, "text": content, "logprobs": null, "finish_reason": finish_reason(answer),
        }),
        Api::Chat | Api::Messages => json!({
            "index": 0,
            "message": {"role": "assistant", "content": content, "refusal": null},
            "logprobs": null,
            "finish_reason": finish_reason(answer),
        }),
    };
    let body = json!({
        "id": id,
        "object": object,
        "created": answer.created,
        "model": answer.model,
        "system_fingerprint": FINGERPRINT,
        "choices": [choice],
        "usage": usage(answer),
    });
    body.to_string().into_bytes()
}

/// The events of a streamed answer. Delays and death are the caller's to set.
pub(crate) fn script(api: Api, answer: &Answer) -> Script {
    let (id, _, object) = names(api, answer);
    let chunk = |choices: Value, chunk_usage: Value| {
        let mut chunk = json!({
            "id": id,
            "object": object,
            "created": answer.created,
            "model": answer.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        });
        // Asked for usage, OpenAI sends the field with every chunk, null in all but the last.
        if answer.wants_usage
            && let Some(fields) = chunk.as_object_mut()
        {
            fields.insert("usage".into(), chunk_usage);
        }
        chunk.to_string()
    };
    let delta = |delta: Value, reason: Value| {
        let choice = match api {
            Api::Completions => {
                json!([{"index": 0, "text": "", "logprobs": null, "finish_reason": reason}])
            }
            Api::Chat | Api::Messages => {
                json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}])
            }
        };
        chunk(choice, Value::Null)
    };

    let mut opening = Vec::new();
    if api != Api::Completions {
        sse::push_data(&mut opening, &delta(json!({"role": "assistant", "content": ""}), Value::Null));
    }
    let mut token = Vec::new();
    sse::push_data(&mut token, &delta(json!({"content": ""}), Value::Null));
    let (before_token, after_token) = split_at_text(&token, api);
    let mut closing = Vec::new();
    sse::push_data(&mut closing, &delta(json!({}), json!(finish_reason(answer))));
    if answer.wants_usage {
        sse::push_data(&mut closing, &chunk(json!([]), usage(answer)));
    }
    sse::push_done(&mut closing);
    Script::new(opening, before_token, after_token, closing, answer)
}

/// Cuts the event of an empty token where the token's text belongs.
fn split_at_text(event: &[u8], api: Api) -> (Vec<u8>, Vec<u8>) {
    let marker: &[u8] = if api == Api::Completions { br#""text":""# } else { br#""content":""# };
    // The last one: a model name may hold the same characters, but only escaped and before it.
    let at = event.windows(marker.len()).rposition(|window| window == marker).map_or(0, |at| at + marker.len());
    let (before, after) = event.split_at(at);
    (before.to_vec(), after.to_vec())
}

/// `/v1/models`
pub(crate) fn models(model: &str, max_model_len: u32) -> Vec<u8> {
    let body = json!({
        "object": "list",
        "data": [{
            "id": model,
            "object": "model",
            "created": 0,
            "owned_by": FINGERPRINT,
            "root": model,
            "parent": null,
            "max_model_len": max_model_len,
        }],
    });
    body.to_string().into_bytes()
}

/// An error body.
pub(crate) fn error(status: StatusCode, message: &str, param: Option<&str>) -> Vec<u8> {
    let kind = match status.as_u16() {
        404 => "not_found_error",
        400..500 => "invalid_request_error",
        503 => "service_unavailable_error",
        _ => "internal_server_error",
    };
    let body = json!({"error": {"message": message, "type": kind, "param": param, "code": status.as_u16()}});
    body.to_string().into_bytes()
}

/// A chat completion of exactly `bytes` bytes, whatever was asked.
pub(crate) fn canned(model: &str, bytes: usize) -> Result<Bytes, String> {
    let filled = |content: &str| {
        let body = json!({
            "id": "chatcmpl-mock",
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "system_fingerprint": FINGERPRINT,
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        });
        body.to_string()
    };
    let smallest = filled("").len();
    let padding = bytes
        .checked_sub(smallest)
        .ok_or_else(|| format!("answer_bytes: 0 or at least {smallest} expected, got {bytes}"))?;
    Ok(Bytes::from(filled(&"x".repeat(padding))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canned_answer_has_exactly_the_size_asked_for() {
        let body = canned("mock-model", 300).unwrap();
        assert_eq!(body.len(), 300);
        let parsed: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(parsed["system_fingerprint"], FINGERPRINT);
        assert!(canned("mock-model", 20).unwrap_err().contains("at least"));
    }

    #[test]
    fn a_model_name_cannot_misplace_the_token() {
        let answer = Answer { model: r#"m"content":""text":""#.into(), ..Answer::example() };
        for api in [Api::Chat, Api::Completions] {
            let script = script(api, &answer);
            let event = [script.before_token, b"word".to_vec(), script.after_token].concat();
            let data = event.strip_prefix(b"data: ").unwrap();
            let parsed: Value = serde_json::from_slice(data).unwrap();
            let choice = &parsed["choices"][0];
            let written = if api == Api::Chat { &choice["delta"]["content"] } else { &choice["text"] };
            assert_eq!(written, "word");
        }
    }
}
