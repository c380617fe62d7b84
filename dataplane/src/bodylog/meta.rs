//! What a record says beside the bodies, as a JSON object (payloads.md §6.1). Absent values are left out.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderMap, HeaderName};
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::frame::MAX_META;
use super::record::Finished;
use super::{redact, zone};

/// What is left of a text in a meta object that is too long, in bytes.
const CUT: usize = 1 << 10;
const URI_CUT: usize = 8 << 10;

/// A request's headers in one buffer.
#[derive(Debug, Default)]
pub(super) struct Headers {
    /// Each with the end of its value in `values`.
    names: Vec<(HeaderName, usize)>,
    values: Vec<u8>,
}

impl Headers {
    pub(super) fn without_secrets(headers: &HeaderMap) -> Self {
        let kept: Vec<_> = redact::headers(headers).collect();
        let mut copy = Self {
            names: Vec::with_capacity(kept.len()),
            values: Vec::with_capacity(kept.iter().map(|(_, value)| value.len()).sum()),
        };
        for (name, value) in kept {
            copy.values.extend_from_slice(&value);
            copy.names.push((name.clone(), copy.values.len()));
        }
        copy
    }

    /// In bytes.
    pub(super) fn cost(&self) -> usize {
        self.values.capacity() + self.names.capacity() * size_of::<(HeaderName, usize)>()
    }

    /// A header that came more than once is a list.
    fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        let mut start = 0;
        for (name, end) in &self.names {
            let value = Value::String(text_of(self.values.get(start..*end).unwrap_or_default()));
            start = *end;
            match object.get_mut(name.as_str()) {
                None => drop(object.insert(name.as_str().to_owned(), value)),
                Some(Value::Array(values)) => values.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
            }
        }
        object
    }
}

fn text_of(value: &[u8]) -> String {
    std::str::from_utf8(value).map_or_else(|_| format!("base64:{}", BASE64.encode(value)), str::to_owned)
}

/// The object as text, short enough for a frame.
pub(super) fn text(record: &Finished, zone: &TimeZone) -> Vec<u8> {
    let facts = &record.facts;
    let mut meta = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            meta.insert(name.to_owned(), value);
        }
    };
    let peer = facts.peer.as_ref().map(|(backend, failed)| match failed {
        0 => backend.to_string(),
        failed => format!("{backend} (retry#{failed})"),
    });
    put("ts", Some(zone::stamp(facts.at, zone).into()));
    put("route", Some(facts.route.as_str().into()));
    put("request_id", Some(facts.request_id.as_str().into()));
    put("client_ip", Some(facts.client_ip.as_str().into()));
    put("method", Some(facts.method.as_str().into()));
    put("uri", Some(facts.uri.as_str().into()));
    put("req_headers", Some(facts.headers.to_json().into()));
    put("req_body_truncated", Some(facts.request_truncated.into()));
    put("peer", peer.map(Value::from));
    put("forwarded_to", facts.forwarded_to.as_deref().map(Value::from));
    put("session_id", facts.session_id.as_deref().map(Value::from));
    put("session_src", Some(String::from_utf8_lossy(facts.session_source.as_bytes()).into()));
    let mode = facts.mode.map(|mode| match facts.hidden_status {
        None => mode.word().to_owned(),
        Some(status) => format!("{}|4xx_to_501(orig={status})", mode.word()),
    });
    put("mode", mode.map(Value::from));
    put("key_id", facts.key_id.as_deref().map(Value::from));
    put("refused", facts.refused.as_deref().map(Value::from));
    put("status", facts.status.map(Value::from));
    put("resp_bytes", Some(record.response.total().into()));
    put("resp_body_truncated", Some(record.response.is_truncated().into()));
    put("first_chunk_t", facts.first_chunk.map(seconds));
    put("last_chunk_t", facts.last_chunk.map(seconds));
    put("chunk_count", Some(record.response.chunks().into()));
    put("rt", Some(seconds(facts.took)));
    fitted(Value::Object(meta))
}

/// To the millisecond.
fn seconds(time: Duration) -> Value {
    let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    json!(f64::from(ms) / 1000.0)
}

/// Cut until it fits: headers first, the largest first, then texts.
fn fitted(mut meta: Value) -> Vec<u8> {
    let text = written(&meta);
    if text.len() <= MAX_META {
        return text;
    }
    if let Some(meta) = meta.as_object_mut() {
        meta.insert("req_headers_trimmed".to_owned(), true.into());
    }
    let mut over = written(&meta).len() - MAX_META;
    if let Some(Value::Object(headers)) = meta.get_mut("req_headers") {
        let mut sizes: Vec<(usize, String)> = headers
            .iter()
            // With two quotes and a colon; the comma may stay for the last one.
            .map(|(name, value)| (name.len() + written(value).len() + 3, name.clone()))
            .collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        for (size, name) in sizes {
            if over == 0 {
                break;
            }
            headers.remove(&name);
            over = over.saturating_sub(size);
        }
    }
    if over > 0
        && let Some(meta) = meta.as_object_mut()
    {
        for (name, value) in meta {
            if let Value::String(text) = value {
                let end = text.floor_char_boundary(if name == "uri" { URI_CUT } else { CUT });
                text.truncate(end);
            }
        }
    }
    written(&meta)
}

fn written(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
