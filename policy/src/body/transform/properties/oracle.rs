//! The transforms once more, on a tree: slow, short, and without a line of the real ones.

use serde_json::{Map, Value, json};

use super::super::{Changes, KimiStrategy, Transforms};

pub(super) fn apply(transforms: Transforms, mut body: Value) -> (Value, Changes) {
    let mut changes = Changes::default();
    if transforms.cch_strip {
        strip_fields(&mut body, &mut changes.cch_stripped);
        if let Some(Value::String(system)) = body.get_mut("system") {
            strip(system, &mut changes.cch_stripped);
        }
    }
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    if let Some(strategy) = transforms.kimi_normalize
        && ["kimi-k2.5", "Kimi-K2.6", "moonshotai/kimi-k2.6"].contains(&model.as_str())
    {
        let pairs = pairs(&body, strategy);
        changes.kimi_ids = rename(&mut body, &pairs);
    }
    if transforms.include_usage && body["stream"] == Value::Bool(true) {
        ask(body.as_object_mut().unwrap(), &mut changes);
    }
    if transforms.system_hoist {
        hoist(body.as_object_mut().unwrap(), &mut changes);
    }
    (body, changes)
}

fn strip_fields(value: &mut Value, is_stripped: &mut bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| strip_fields(item, is_stripped)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "content" || key == "text" => strip(text, is_stripped),
                    _ => strip_fields(value, is_stripped),
                }
            }
        }
        _ => {}
    }
}

fn strip(text: &mut String, is_stripped: &mut bool) {
    let parts: Vec<&str> = text.splitn(4, ';').collect();
    let [version, entrypoint, hash, rest] = parts[..] else { return };
    let is_marker = version
        .strip_prefix("x-anthropic-billing-header:")
        .is_some_and(|part| part.trim_start().starts_with("cc_version="))
        && entrypoint.trim_start().starts_with("cc_entrypoint=")
        && hash.trim_start().starts_with("cch=")
        && ![version, entrypoint, hash].concat().contains('"');
    if is_marker {
        *is_stripped = true;
        *text = rest.to_owned();
    }
}

fn entries(body: &Value) -> Vec<&Value> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let lists = messages.filter_map(|message| message["tool_calls"].as_array());
    lists.flatten().filter(|entry| entry.is_object()).collect()
}

fn id_and_name(entry: &Value) -> Option<(&str, &str)> {
    let (id, name) = (entry["id"].as_str()?, entry["function"]["name"].as_str()?);
    let is_fine = !id.trim().is_empty()
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    is_fine.then_some((id, name))
}

/// The ids that may be replaced.
pub(super) fn ids(body: &Value) -> Vec<String> {
    entries(body).into_iter().filter_map(id_and_name).map(|(id, _)| id.to_owned()).collect()
}

/// Old and new ids, in order, also of those that stay.
fn pairs(body: &Value, strategy: KimiStrategy) -> Vec<(String, String)> {
    let entries = entries(body);
    let count = ids(body).len();
    let number = |id: &str, name: &str| id.strip_prefix(&format!("functions.{name}:"))?.parse::<usize>().ok();
    let largest = entries.iter().filter_map(|entry| id_and_name(entry)).filter_map(|(id, name)| number(id, name)).max();
    let (mut pairs, mut next) = (Vec::new(), 0);
    for (position, entry) in entries.iter().enumerate() {
        let Some((id, name)) = id_and_name(entry) else { continue };
        let new = match strategy {
            KimiStrategy::Rerank => position,
            KimiStrategy::Hash => {
                let arguments = entry["function"]["arguments"].as_str().unwrap_or_default();
                let crc = crc32fast::hash(format!("{name}\u{1}{arguments}").as_bytes());
                1_000_000 + crc as usize % 1_000_000
            }
            KimiStrategy::RerankMaxlast if pairs.len() + 1 == count => largest.unwrap_or(count - 1),
            KimiStrategy::RerankMaxlast => pairs.len(),
            KimiStrategy::Keepinc => {
                let new = number(id, name).filter(|number| *number >= next).unwrap_or(next);
                next = new + 1;
                new
            }
        };
        pairs.push((id.to_owned(), format!("functions.{name}:{new}")));
    }
    pairs
}

fn rename(value: &mut Value, pairs: &[(String, String)]) -> u64 {
    match value {
        Value::Array(items) => items.iter_mut().map(|item| rename(item, pairs)).sum(),
        Value::Object(fields) => {
            let mut count = 0;
            for (key, value) in fields {
                let new = pairs.iter().find(|(old, new)| value.as_str() == Some(old) && old != new);
                match new {
                    Some((_, new)) if key == "id" || key == "tool_call_id" => {
                        *value = json!(new);
                        count += 1;
                    }
                    _ => count += rename(value, pairs),
                }
            }
            count
        }
        _ => 0,
    }
}

fn ask(body: &mut Map<String, Value>, changes: &mut Changes) {
    let options = body.entry("stream_options").or_insert(Value::Null);
    match options {
        Value::Null => *options = json!({"include_usage": true}),
        Value::Object(fields) => match fields.get_mut("include_usage") {
            None => {
                fields.shift_insert(0, "include_usage".to_owned(), json!(true));
            }
            Some(Value::Bool(true)) => return,
            Some(Value::Array(_) | Value::Object(_)) => {
                changes.usage_not_possible = true;
                return;
            }
            Some(value) => *value = json!(true),
        },
        _ => {
            changes.usage_not_possible = true;
            return;
        }
    }
    changes.usage_asked = true;
}

fn hoist(body: &mut Map<String, Value>, changes: &mut Changes) {
    let Some(Value::Array(messages)) = body.get_mut("messages") else { return };
    let (system, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(messages).into_iter().partition(|message| message.is_object() && message["role"] == "system");
    *messages = others;
    if system.is_empty() {
        return;
    }
    changes.hoisted = system.len() as u64;
    let wrap = |text: &Value| json!({"type": "text", "text": text});
    let mut blocks = match body.get("system") {
        Some(text @ Value::String(_)) => vec![wrap(text)],
        Some(Value::Array(blocks)) => blocks.clone(),
        _ => vec![],
    };
    for message in system {
        match &message["content"] {
            text @ Value::String(_) => blocks.push(wrap(text)),
            Value::Array(items) => blocks.extend(items.iter().filter_map(|item| match item {
                Value::String(_) => Some(wrap(item)),
                Value::Object(_) => Some(item.clone()),
                _ => None,
            })),
            _ => {}
        }
    }
    match body.get_mut("system") {
        Some(system) => *system = Value::Array(blocks),
        None => {
            body.shift_insert(0, "system".to_owned(), Value::Array(blocks));
        }
    }
}
