//! A frame made into one line of the full log, and into the row of its details (payloads.md §7.2).

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use indexmap::IndexMap;
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use super::details::{self, Details};
use super::extract::{Extracted, quoted};
use super::json::{Members, one_line};
use crate::bodylog::frame::Contents;
use crate::bodylog::zone::stamp;

/// Members that the collector writes itself; what a sender put there is dropped.
const OWN: [&str; 7] = ["source_addr", "req_body", "req_body_b64", "resp_body", "resp_body_b64", "resp_meta", "ts_end"];
/// Longest time that a request can have taken, in seconds: 30 days. A longer one is a mistake.
const LONGEST: f64 = 30.0 * 86_400.0;
/// Most tokens that one request is believed to have.
const MOST_TOKENS: u64 = 1_000_000_000;

/// Members of meta that are read here. All others are kept unread.
pub(super) const META: &[&str] = &[
    "chunk_count",
    "first_chunk_t",
    "forwarded_to",
    "key_id",
    "last_chunk_t",
    "method",
    "mode",
    "peer",
    "refused",
    "request_id",
    "resp_bytes",
    "route",
    "rt",
    "session_src",
    "status",
    "ts",
    "uri",
];

/// What is kept of one request.
#[derive(Debug)]
pub(crate) struct Record {
    /// The line of the full log, with its line end.
    pub(crate) line: Vec<u8>,
    /// The row without bodies.
    pub(crate) details: Details,
    /// When the request ended; `received` for one that does not say it.
    pub(crate) end: Timestamp,
}

impl Record {
    /// Makes one of a frame that came from `source` at `received`; `None` when its meta is no JSON object.
    pub(crate) fn new(frame: &Contents<'_>, source: IpAddr, received: Timestamp, zone: &TimeZone) -> Option<Self> {
        let all: IndexMap<String, &RawValue> = serde_json::from_slice(frame.meta).ok()?;
        let meta = Members::read(frame.meta, META)?;
        let status = meta.number("status").map_or(0, whole).try_into().unwrap_or(0_u16);
        let request = Body::new(frame.request);
        let answer = (status < 400).then(|| Extracted::read(frame.response)).filter(Extracted::is_answer);
        let response = match &answer {
            Some(answer) => Body::Text(&answer.text),
            None => Body::new(frame.response),
        };
        let (end, ts_end) = end(&meta, received, zone);

        let mut line = Line::default();
        for (name, value) in all.iter().filter(|(name, _)| !OWN.contains(&name.as_str())) {
            line.member(name, &one_line(value.get()));
        }
        line.member("source_addr", &quoted(&source.to_string()));
        let req_bytes = line.body("req_body", "req_body_b64", &request);
        let stored = line.body("resp_body", "resp_body_b64", &response);
        if let Some(answer) = &answer {
            line.member("resp_meta", &answer.meta());
        }
        line.member("ts_end", &quoted(&ts_end));

        let answer = answer.as_ref();
        let mut details = Details {
            ts: meta.text("ts").unwrap_or_default(),
            ts_end,
            source_addr: source.to_string(),
            status,
            stream: request.text().and_then(details::is_stream),
            backend: details::backend(meta.text("forwarded_to").as_deref(), meta.text("peer").as_deref()),
            model: answer.and_then(Extracted::model).unwrap_or_default(),
            finish_reason: answer.and_then(Extracted::finish_reason).unwrap_or_default(),
            frt: seconds(&meta, "first_chunk_t"),
            lct: seconds(&meta, "last_chunk_t"),
            rt: seconds(&meta, "rt"),
            chunk_count: meta.number("chunk_count").map_or(0, whole),
            req_bytes,
            resp_bytes: meta.number("resp_bytes").map_or(stored, whole),
            stored_resp_bytes: stored,
            ..Details::default()
        };
        for (name, field) in [
            ("request_id", &mut details.request_id),
            ("uri", &mut details.uri),
            ("method", &mut details.method),
            ("peer", &mut details.peer),
            ("forwarded_to", &mut details.forwarded_to),
            ("mode", &mut details.mode),
            ("session_src", &mut details.session_src),
            ("route", &mut details.route),
            ("key_id", &mut details.key_id),
            ("refused", &mut details.refused),
        ] {
            *field = meta.text(name).unwrap_or_default();
        }
        if details.model.is_empty() {
            details.model_is_asked = true;
            let asked = Members::read(frame.request, &["model"]);
            details.model = asked.and_then(|asked| asked.text("model")).unwrap_or_default();
        }
        details.take_usage(answer.and_then(Extracted::usage).as_deref());
        details.shorten();
        Some(Self { line: line.end(), details, end })
    }
}

/// When a request ended, in the offset that its sender writes.
fn end(meta: &Members<'_>, received: Timestamp, zone: &TimeZone) -> (Timestamp, String) {
    let ts = meta.text("ts").unwrap_or_default();
    let took = SignedDuration::try_from_secs_f64(seconds(meta, "rt")).unwrap_or_default();
    let started: Option<Timestamp> = ts.parse().ok();
    let Some(end) = started.and_then(|started| started.checked_add(took).ok()) else {
        return (received, stamp(received, zone));
    };
    let offset = Pieces::parse(&ts).ok().and_then(|pieces| pieces.to_numeric_offset());
    let zone = offset.map_or(TimeZone::UTC, TimeZone::fixed);
    (end, stamp(end, &zone))
}

fn seconds(meta: &Members<'_>, name: &str) -> f64 {
    meta.number(name).unwrap_or(0.0).clamp(0.0, LONGEST)
}

/// A count. What is below 0 or has a fraction is cut; what no request can have counts as 0.
pub(super) fn whole(number: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    if (0.0..1e15).contains(&number) { number as u64 } else { 0 }
}

/// A number of tokens.
pub(super) fn tokens(number: f64) -> u64 {
    whole(number).min(MOST_TOKENS)
}

/// A body as the log keeps it.
enum Body<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Body<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::Text)
    }

    fn text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }
}

/// One line of JSON in the making.
#[derive(Default)]
struct Line(Vec<u8>);

impl Line {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.extend_from_slice(quoted(name).as_bytes());
        self.0.push(b':');
    }

    fn member(&mut self, name: &str, json: &str) {
        self.name(name);
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Writes a body and returns the length of what is stored, in bytes.
    fn body(&mut self, name: &str, is_base64: &str, body: &Body<'_>) -> u64 {
        self.name(name);
        let length = match body {
            Body::Text(text) => {
                // A text can always be written as JSON, and to memory.
                let _ = serde_json::to_writer(&mut self.0, text);
                text.len()
            }
            Body::Bytes(bytes) => {
                let text = STANDARD.encode(bytes);
                self.0.push(b'"');
                self.0.extend_from_slice(text.as_bytes());
                self.0.push(b'"');
                self.member(is_base64, "true");
                text.len()
            }
        };
        u64::try_from(length).unwrap_or(u64::MAX)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"}\n");
        self.0
    }
}

#[cfg(test)]
mod tests;
