//! A request that is read for a page as if it were to be served: `_route_inspect` and `_cch_test` (payloads.md §9). Nothing is
//! asked of it that limits requests, neither key nor slot, so few are read at a time.

use std::collections::HashMap;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use md5::{Digest, Md5};
use router_policy::body::transform::Changes;
use router_policy::payload_count::PayloadCount;
use router_policy::session::extract::Api;
use serde_json::{Value as Json, json};

use super::{Page, key_of, refuse};
use crate::coordinate::Ask;
use crate::request::body::{Intake, check_stated_length};
use crate::request::error_response::{self, Shape};
use crate::request::handle::Proxy;
use crate::request::{payload, session};
use crate::snapshot::{RouteEntry, Snapshot};

/// What the request is read as; `path` in the query says otherwise.
const PATH: &str = "/v1/chat/completions";

/// The most of a body that is told back, in bytes.
const SHOWN_MAX: usize = 1 << 20;

/// What there is to say of it.
pub(super) struct Inspected {
    /// What its backend would be asked for.
    pub(super) ask: Ask,
    pub(super) session_id: Option<Vec<u8>>,
    /// As in `X-Routed-Source`.
    pub(super) source: String,
    pub(super) changes: Changes,
    /// As the client sent it, which is what the body log captures.
    sent: Bytes,
    /// As the backend would get it.
    edited: Option<Bytes>,
}

/// Whether what is done to it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// As of any request (payloads.md §9).
    Counted,
    /// It is a trial.
    Uncounted,
}

impl Inspected {
    pub(super) async fn read<B>(
        page: &Page<'_>,
        proxy: &Proxy,
        (route, snapshot): (&RouteEntry, &Snapshot),
        request: Request<B>,
        query: &HashMap<String, String>,
        counting: Counting,
    ) -> Result<Self, Response<Full<Bytes>>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let fail = |error| error_response::render(&error, Shape::OpenAi);
        let (head, body) = request.into_parts();
        let limit = route.options.max_body_size.min(proxy.config.max_body_size);
        check_stated_length(&head.headers, limit).map_err(fail)?;
        let context_window =
            router_policy::header::context_window(&head.headers).map_err(|error| fail(error.into()))?;
        let Ok(_turn) = proxy.inspections.try_acquire() else {
            return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, page, "too many requests are inspected now"));
        };
        let sent = Intake::new(body, limit, proxy.config.body_timeout).finish().await.map_err(fail)?;
        let key_id = key_of(proxy, route, snapshot, &head.headers);
        let turn = session::turn_of(route, &head.headers);
        let path = query.get("path").map_or(PATH, String::as_str);
        let reader = session::Reader { route, snapshot, key_id: &key_id, turn: turn.as_ref(), api: Api::of_path(path) };
        let (mut identity, mut session_id) = reader.identify_and_tell(&head.headers, &sent);
        let (mut edited, mut changes) = (None, Changes::default());
        if identity.is_json {
            (edited, changes) = payload::edit(route, path, &sent);
            if counting == Counting::Counted {
                route.metrics.payload.add(PayloadCount::Parsed, 1);
                payload::count(route, &changes);
            }
        }
        if let Some(edited) = &edited {
            (identity, session_id) = reader.identify_and_tell(&head.headers, edited);
        }
        let source = identity.session.as_ref().and_then(|session| session.source.to_str().ok()).unwrap_or("none");
        Ok(Self {
            session_id,
            source: source.to_owned(),
            ask: Ask {
                fingerprint: identity.session.as_ref().and_then(|session| session.fingerprint),
                model: identity.model,
                placement: identity.placement,
                turn: turn.as_ref().map_or(0, |turn| turn.turn),
                body_bytes: edited.as_ref().unwrap_or(&sent).len() as u64,
                stream: identity.stream,
                context_tokens: context_window.unwrap_or(0),
                ..Ask::new(route.name.clone(), &key_id, route.options.queue_timeout)
            },
            changes,
            sent,
            edited,
        })
    }

    /// `_cch_test`: what would be sent to a backend, beside what was sent.
    pub(super) fn trial(&self, is_full: bool) -> Json {
        let after = self.edited.as_ref().unwrap_or(&self.sent);
        let mut page = json!({
            "route": self.ask.route.as_str(),
            "cch_stripped": self.changes.cch_stripped,
            "source": self.source,
            "body_len": after.len(),
            "body_md5": md5_hex(after),
            "bodylog_len": self.sent.len(),
            "bodylog_md5": md5_hex(&self.sent),
            "bodylog_differs": *after != self.sent,
        });
        if let Some(fields) = page.as_object_mut() {
            let text = |bytes: &[u8]| Json::from(String::from_utf8_lossy(bytes));
            fields.extend(self.session_id.as_deref().map(|id| ("session_id".to_owned(), text(id))));
            if is_full {
                let shown = after.get(..SHOWN_MAX).unwrap_or(after);
                fields.insert("body_after".to_owned(), text(shown));
                if shown.len() < after.len() {
                    let note = format!("body_after is the first {SHOWN_MAX} bytes of {}", after.len());
                    fields.insert("note".to_owned(), Json::from(note));
                }
            }
        }
        page
    }
}

fn md5_hex(bytes: &[u8]) -> String {
    let digest: [u8; 16] = Md5::digest(bytes).into();
    format!("{:032x}", u128::from_be_bytes(digest))
}

#[cfg(test)]
mod tests {
    use router_policy::ids::RouteName;

    use super::*;

    fn trial(edited: Option<&'static str>, session_id: Option<&[u8]>, is_full: bool) -> Json {
        let inspected = Inspected {
            ask: Ask::new(RouteName::new("chat").unwrap(), "", std::time::Duration::ZERO),
            session_id: session_id.map(<[u8]>::to_vec),
            source: "none".to_owned(),
            changes: Changes { cch_stripped: edited.is_some(), ..Changes::default() },
            sent: Bytes::from_static(b"abc"),
            edited: edited.map(Bytes::from),
        };
        inspected.trial(is_full)
    }

    #[test]
    fn payloads_9_a_trial_tells_both_bodies() {
        const ABC: &str = "900150983cd24fb0d6963f7d28e17f72";
        assert_eq!(
            trial(None, None, false),
            json!({"route": "chat", "cch_stripped": false, "source": "none", "body_len": 3, "body_md5": ABC,
                "bodylog_len": 3, "bodylog_md5": ABC, "bodylog_differs": false})
        );
        assert_eq!(
            trial(Some("a"), Some(b"s\xff"), true),
            json!({"route": "chat", "cch_stripped": true, "source": "none", "body_len": 1,
                "body_md5": "0cc175b9c0f1b6a831c399e269772661", "bodylog_len": 3, "bodylog_md5": ABC,
                "bodylog_differs": true, "session_id": "s\u{fffd}", "body_after": "a"})
        );
        let long = "x".repeat(SHOWN_MAX + 1).leak();
        let told = trial(Some(long), None, true);
        assert_eq!(told["body_after"].as_str().unwrap().len(), SHOWN_MAX);
        assert_eq!(told["note"], "body_after is the first 1048576 bytes of 1048577");
        let whole = trial(Some(&long[1..]), None, true);
        assert_eq!((whole["body_after"].as_str().unwrap().len(), whole.get("note")), (SHOWN_MAX, None));
        assert_eq!(md5_hex(b""), "d41d8cd98f00b204e9800998ecf8427e");
    }
}
