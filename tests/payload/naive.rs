//! What should become of a body, done the simple way: on the parsed tree, one transform after the other, with no eye on speed or
//! bytes (payloads.md §3, rulings §7). And where its session should be found (rulings §2).

use std::collections::HashMap;

use router_tests::engine::Recorded;
use serde_json::{Value as Json, json};

const KIMI: [&str; 6] =
    ["kimi-k2.5", "kimi-k2.6", "Kimi-K2.5", "Kimi-K2.6", "moonshotai/kimi-k2.5", "moonshotai/kimi-k2.6"];

/// What the transforms did, by their names.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) cch: bool,
    pub(crate) kimi: u64,
    pub(crate) usage: bool,
    pub(crate) hoisted: bool,
}

/// All four, on a request to `path`.
pub(crate) fn transform(path: &str, body: &mut Json) -> Done {
    let cch = strip_top_level_system(body) | strip_markers(body);
    let kimi = normalize(body);
    let usage = ["/v1/chat/completions", "/v1/completions"].contains(&path) && ask_for_usage(body);
    let hoisted = path == "/v1/messages" && hoist(body);
    Done { cch, kimi, usage, hoisted }
}

fn without_marker(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix("x-anthropic-billing-header:")?;
    for part in ["cc_version=", "cc_entrypoint=", "cch="] {
        rest = rest.trim_ascii_start().strip_prefix(part)?;
        rest = rest.split_once(';')?.1;
    }
    Some(rest)
}

fn strip_text(value: &mut Json) -> bool {
    let stripped = value.as_str().and_then(without_marker).map(str::to_owned);
    let was_there = stripped.is_some();
    if let Some(stripped) = stripped {
        *value = Json::from(stripped);
    }
    was_there
}

fn strip_top_level_system(body: &mut Json) -> bool {
    body.get_mut("system").is_some_and(strip_text)
}

fn strip_markers(value: &mut Json) -> bool {
    match value {
        Json::Object(fields) => fields
            .iter_mut()
            .map(|(key, value)| {
                (["content", "text"].contains(&key.as_str()) && strip_text(value)) | strip_markers(value)
            })
            .fold(false, |any, one| any | one),
        Json::Array(items) => items.iter_mut().map(strip_markers).fold(false, |any, one| any | one),
        _ => false,
    }
}

fn normalize(body: &mut Json) -> u64 {
    let is_kimi = body["model"].as_str().is_some_and(|model| KIMI.contains(&model));
    let Some(messages) = body["messages"].as_array().filter(|_| is_kimi) else { return 0 };
    let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    let mut new_ids = HashMap::new();
    for (place, call) in calls.filter(|call| call.is_object()).enumerate() {
        let (Some(id), Some(name)) = (call["id"].as_str(), call["function"]["name"].as_str()) else { continue };
        let new = format!("functions.{name}:{place}");
        if id != new {
            new_ids.entry(id.to_owned()).or_insert(new);
        }
    }
    replace_ids(body, &new_ids)
}

fn replace_ids(value: &mut Json, new_ids: &HashMap<String, String>) -> u64 {
    match value {
        Json::Object(fields) => fields
            .iter_mut()
            .map(|(key, value)| {
                let new = value.as_str().filter(|_| ["id", "tool_call_id"].contains(&key.as_str()));
                match new.and_then(|id| new_ids.get(id)) {
                    Some(new) => {
                        *value = Json::from(new.as_str());
                        1
                    }
                    None => replace_ids(value, new_ids),
                }
            })
            .sum(),
        Json::Array(items) => items.iter_mut().map(|item| replace_ids(item, new_ids)).sum(),
        _ => 0,
    }
}

fn ask_for_usage(body: &mut Json) -> bool {
    if body["stream"] != true || body["stream_options"]["include_usage"] == true {
        return false;
    }
    match body.get_mut("stream_options") {
        None | Some(Json::Null) => body["stream_options"] = json!({"include_usage": true}),
        Some(options) => options["include_usage"] = Json::from(true),
    }
    true
}

fn hoist(body: &mut Json) -> bool {
    let Some(messages) = body["messages"].as_array_mut() else { return false };
    let is_system = |message: &Json| message["role"] == "system";
    let system: Vec<Json> = messages.iter().filter(|message| is_system(message)).cloned().collect();
    if system.is_empty() {
        return false;
    }
    messages.retain(|message| !is_system(message));
    let block = |text: &Json| json!({"type": "text", "text": text});
    let mut blocks = match &body["system"] {
        text @ Json::String(_) => vec![block(text)],
        Json::Array(blocks) => blocks.clone(),
        _ => Vec::new(),
    };
    for message in &system {
        match &message["content"] {
            text @ Json::String(_) => blocks.push(block(text)),
            Json::Array(parts) => {
                blocks.extend(parts.iter().map(|part| if part.is_string() { block(part) } else { part.clone() }));
            }
            _ => {}
        }
    }
    body["system"] = Json::Array(blocks);
    true
}

/// `X-Routed-Source` by the default list of sources.
pub(crate) fn source(request: &Recorded, body: &Json) -> String {
    let headers = ["x-session-affinity", "x-litellm-session-id", "x-claude-code-session-id", "x-session-id"];
    if let Some(name) = headers.iter().find(|name| request.headers.iter().any(|(known, _)| known == *name)) {
        return format!("header.{name}");
    }
    let id = |value: &Json| value.as_str().is_some_and(|text| !text.trim().is_empty()) || value.is_number();
    let spaces = ["metadata", "litellm_metadata"];
    if let Some(space) = spaces.iter().find(|space| id(&body[**space]["session_id"])) {
        return format!("body.{space}.session_id");
    }
    for space in spaces {
        let user = &body[space]["user_id"];
        let inner = user.as_str().and_then(|text| serde_json::from_str::<Json>(text).ok());
        if inner.is_some_and(|inner| id(&inner["session_id"])) {
            return format!("body.{space}.user_id[json].session_id");
        }
    }
    if let Some(space) = spaces.iter().find(|space| body[**space]["user_id"].is_string()) {
        return format!("body.{space}.user_id[plain]");
    }
    if body["conversation"].is_string() || body["conversation"]["id"].is_string() {
        return "body.conversation".to_owned();
    }
    let named = ["prompt_cache_key", "user"].into_iter().find(|name| body[*name].is_string());
    named.map_or_else(|| "none".to_owned(), |name| format!("body.{name}"))
}
