//! Requests as they came in, kept for tests that ask what clients really send: the last few, bounded in number and size.

use std::collections::VecDeque;

use bytes::Bytes;
use http::request;
use serde_json::{Value, json};

/// All kept bodies together.
const MAX_BYTES: usize = 64 << 20;

/// The last requests, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Records {
    kept: VecDeque<Record>,
    bytes: usize,
}

#[derive(Debug)]
struct Record {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Records {
    /// Keeps one more, and of all no more than `most`.
    pub(crate) fn add(&mut self, head: &request::Parts, body: &Bytes, most: usize) {
        let headers = head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        self.bytes += body.len();
        self.kept.push_back(Record {
            method: head.method.to_string(),
            path: head.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str).to_owned(),
            headers: headers.collect(),
            body: body.clone(),
        });
        while self.kept.len() > most || self.bytes > MAX_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.body.len();
        }
    }

    /// As a JSON list. `body` is exact when the request's was UTF-8, else it is left out.
    pub(crate) fn to_json(&self) -> Value {
        self.kept
            .iter()
            .map(|record| {
                let Record { method, path, headers, body } = record;
                let mut shown = json!({"method": method, "path": path, "headers": headers, "body_bytes": body.len()});
                if let (Ok(text), Some(fields)) = (std::str::from_utf8(body), shown.as_object_mut()) {
                    fields.insert("body".to_owned(), Value::from(text));
                }
                shown
            })
            .collect()
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str) -> request::Parts {
        http::Request::post(path).header("x-a", "1").body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_last_ones_are_kept_whole() {
        let mut records = Records::default();
        for number in 0..4 {
            records.add(&head(&format!("/v1/{number}?q")), &Bytes::from(format!("{{\"n\": {number}}}")), 2);
        }
        let shown = records.to_json();
        assert_eq!(shown.as_array().unwrap().len(), 2);
        assert_eq!(shown[0]["path"], "/v1/2?q");
        assert_eq!(shown[1]["body"], "{\"n\": 3}");
        assert_eq!(shown[1]["headers"][0], json!(["x-a", "1"]));
        records.clear();
        assert_eq!(records.to_json(), json!([]));
    }

    #[test]
    fn large_ones_push_older_ones_out_and_bytes_that_are_no_text_are_only_counted() {
        let mut records = Records::default();
        records.add(&head("/v1/old"), &Bytes::from_static(b"{}"), 9);
        records.add(&head("/v1/large"), &Bytes::from(vec![0xff; MAX_BYTES]), 9);
        let shown = records.to_json();
        assert_eq!((shown[0]["path"].as_str(), shown[0]["body_bytes"].as_u64()), (Some("/v1/large"), Some(64 << 20)));
        assert!(shown[0].get("body").is_none() && shown.get(1).is_none());
    }
}
