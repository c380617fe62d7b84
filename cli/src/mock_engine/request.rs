//! Reads generation requests: just what a mock needs, one type for all three APIs.
//!
//! The prompt text stands for an engine's chat template. It only has to be a stable function of the messages in which an
//! earlier turn is a prefix of a later one.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The API that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/messages`
    Messages,
}

/// A generation request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Empty if the request names none.
    pub(crate) model: String,
    pub(crate) prompt: String,
    pub(crate) is_streamed: bool,
    pub(crate) wants_usage: bool,
    pub(crate) max_tokens: Option<u32>,
}

/// Why a request is refused with 400.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadRequest {
    pub(crate) message: String,
    /// The field concerned.
    pub(crate) param: Option<&'static str>,
}

/// Marks the end of a message and the start of the answer.
const ANSWER_START: &str = "<|assistant|>";
/// Closes each message of a prompt.
const MESSAGE_END: &str = "<|end|>";

#[derive(Deserialize)]
struct Wire<'a> {
    model: Option<String>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    #[serde(borrow)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

/// Parses the body of a request to `api`.
pub(crate) fn parse(api: Api, body: &[u8]) -> Result<Ask, BadRequest> {
    let wire: Wire<'_> = serde_json::from_slice(body)
        .map_err(|error| BadRequest { message: format!("invalid request body: {error}"), param: None })?;
    let prompt = match api {
        Api::Completions => {
            let raw = wire.prompt.ok_or_else(|| missing("prompt"))?;
            content_text(raw)
        }
        Api::Chat | Api::Messages => chat_prompt(&wire)?,
    };
    if api == Api::Messages && wire.max_tokens.is_none() {
        return Err(missing("max_tokens"));
    }
    let max_tokens = wire.max_completion_tokens.or(wire.max_tokens);
    if max_tokens == Some(0) {
        return Err(BadRequest { message: "max_tokens must be at least 1, got 0".into(), param: Some("max_tokens") });
    }
    Ok(Ask {
        model: wire.model.unwrap_or_default(),
        prompt,
        is_streamed: wire.stream.unwrap_or(false),
        wants_usage: wire.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        max_tokens,
    })
}

/// The text that follows `answer` once it has become a message of the next turn.
pub(crate) fn answer_as_message(api: Api, answer: &str) -> String {
    match api {
        Api::Completions => answer.to_owned(),
        Api::Chat | Api::Messages => format!("{answer}{MESSAGE_END}"),
    }
}

fn missing(param: &'static str) -> BadRequest {
    BadRequest { message: format!("{param}: field required"), param: Some(param) }
}

fn chat_prompt(wire: &Wire<'_>) -> Result<String, BadRequest> {
    let messages = wire.messages.as_ref().ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        return Err(BadRequest { message: "messages: at least one expected".into(), param: Some("messages") });
    }
    let mut prompt = String::new();
    if let Some(tools) = wire.tools {
        prompt.push_str("<|tools|>");
        prompt.push_str(tools.get());
        prompt.push_str(MESSAGE_END);
    }
    if let Some(system) = wire.system {
        push_message(&mut prompt, "system", &content_text(system));
    }
    for message in messages {
        let mut text = message.content.map(content_text).unwrap_or_default();
        if let Some(calls) = message.tool_calls {
            text.push_str(calls.get());
        }
        push_message(&mut prompt, &message.role, &text);
    }
    prompt.push_str(ANSWER_START);
    Ok(prompt)
}

fn push_message(prompt: &mut String, role: &str, text: &str) {
    prompt.push_str("<|");
    prompt.push_str(role);
    prompt.push_str("|>");
    prompt.push_str(text);
    prompt.push_str(MESSAGE_END);
}

/// The text of a `content`, `system` or `prompt` value: a string, a list of strings or of parts with a `text`; anything
/// else stands for itself.
fn content_text(raw: &RawValue) -> String {
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return text;
    }
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
        return raw.get().to_owned();
    };
    let mut text = String::new();
    for part in parts {
        if let Ok(string) = serde_json::from_str::<String>(part.get()) {
            text.push_str(&string);
        } else if let Ok(Part { text: Some(part_text) }) = serde_json::from_str::<Part<'_>>(part.get()) {
            text.push_str(&part_text);
        } else {
            text.push_str(part.get());
            text.push(' ');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(api: Api, body: &str) -> Ask {
        parse(api, body.as_bytes()).unwrap()
    }

    #[test]
    fn a_turn_with_its_answer_is_a_prefix_of_the_next_turn() {
        let first = ask(Api::Chat, r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#);
        let second = ask(
            Api::Chat,
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},
                {"role":"assistant","content":"yo"},{"role":"user","content":"more"}]}"#,
        );
        let with_answer = format!("{}{}", first.prompt, answer_as_message(Api::Chat, "yo"));
        assert!(second.prompt.starts_with(&with_answer), "{} / {with_answer}", second.prompt);
        assert_eq!(first.model, "m");
    }

    #[test]
    fn stream_fields_and_limits_are_read() {
        let ask = ask(
            Api::Chat,
            r#"{"messages":[{"role":"user","content":null}],"stream":true,"max_tokens":9,
                "max_completion_tokens":3,"stream_options":{"include_usage":true},"unknown":{"a":[1]}}"#,
        );
        assert!(ask.is_streamed && ask.wants_usage);
        assert_eq!(ask.max_tokens, Some(3));
    }

    #[test]
    fn prompts_of_completions_may_be_strings_lists_and_token_ids() {
        assert_eq!(ask(Api::Completions, r#"{"prompt":"a\nb"}"#).prompt, "a\nb");
        assert_eq!(ask(Api::Completions, r#"{"prompt":["a","b"]}"#).prompt, "ab");
        assert_eq!(ask(Api::Completions, r#"{"prompt":[1,2]}"#).prompt, "1 2 ");
    }

    #[test]
    fn the_system_prompt_of_messages_comes_first() {
        let ask = ask(
            Api::Messages,
            r#"{"max_tokens":5,"system":[{"type":"text","text":"be kind"}],"messages":[{"role":"user","content":"hi"}]}"#,
        );
        assert_eq!(ask.prompt, "<|system|>be kind<|end|><|user|>hi<|end|><|assistant|>");
    }

    #[test]
    fn bad_requests_name_their_field() {
        for (api, body, param) in [
            (Api::Chat, "{not json", None),
            (Api::Chat, r#"{"model":"m"}"#, Some("messages")),
            (Api::Chat, r#"{"messages":[]}"#, Some("messages")),
            (Api::Chat, r#"{"messages":[{"content":"no role"}]}"#, None),
            (Api::Chat, r#"{"messages":[{"role":"user"}],"max_tokens":0}"#, Some("max_tokens")),
            (Api::Completions, "{}", Some("prompt")),
            (Api::Messages, r#"{"messages":[{"role":"user"}]}"#, Some("max_tokens")),
        ] {
            assert_eq!(parse(api, body.as_bytes()).unwrap_err().param, param, "{body}");
        }
    }
}
