//! Whose turn a request is: what is read of the body, the session id, its fingerprint, and where it belongs by its hash. The
//! id itself goes no further than [`super`].

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};
use router_policy::body::peek::{Peek, without_bom};
use router_policy::flow::{TurnHeader, parse_turn_header};
use router_policy::header::SESSION_TURN;
use router_policy::ids::Fingerprint;
use router_policy::option::Affinity;
use router_policy::session::extract::Api;
use router_policy::session::{Found, hash};
use serde_json::value::RawValue;

use crate::coordinate::Placement;
use crate::snapshot::{RouteEntry, Snapshot};

/// Longest model name that the control plane is told, in bytes. What is longer names no model, and must not fill a message
/// of the link, which carries the operations of all requests.
const LONGEST_MODEL: usize = 256;

/// What the body and headers say.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) session: Option<Session>,
    pub(crate) placement: Placement,
    /// The body's `model`; empty when it has none that could be one.
    pub(crate) model: String,
    /// Whether the body asks for a stream.
    pub(crate) stream: bool,
    /// Session ids that were passed over for their length.
    pub(crate) too_long: u32,
    /// The body is a JSON object or list.
    pub(crate) is_json: bool,
}

/// A session, by its one-way name.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// `None` where sessions make no difference (`affinity: off`).
    pub(crate) fingerprint: Option<Fingerprint>,
    /// `X-Routed-Source`
    pub(crate) source: HeaderValue,
}

/// What the session priority header says; `None` where turns are not ranked, and where it can't be used.
pub(crate) fn turn_of(route: &RouteEntry, headers: &HeaderMap) -> Option<TurnHeader> {
    if !route.ranks_turns {
        return None;
    }
    let mut values = headers.get_all(SESSION_TURN).iter();
    let text = std::str::from_utf8(values.next()?.as_bytes()).ok()?;
    // A header sent twice names no session (routing.md §4).
    values.next().is_none().then(|| parse_turn_header(text)).flatten()
}

/// What identities are read with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) route: &'a RouteEntry,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) key_id: &'a str,
    pub(crate) turn: Option<&'a TurnHeader>,
    pub(crate) api: Api,
}

impl Reader<'_> {
    /// Reads what is needed. A body that is no JSON object is no error: the engine will say what it thinks of it.
    pub(crate) fn identify(&self, headers: &HeaderMap, body: &[u8]) -> Identity {
        self.read(headers, body, |_| ()).0
    }

    /// The same, and the id as text, for the debugging pages and the body log alone.
    pub(super) fn identify_and_tell(&self, headers: &HeaderMap, body: &[u8]) -> (Identity, Option<Vec<u8>>) {
        self.read(headers, body, <[u8]>::to_vec)
    }

    fn read<T>(&self, headers: &HeaderMap, body: &[u8], see: impl FnOnce(&[u8]) -> T) -> (Identity, Option<T>) {
        // Whatever its content type says: engines read JSON under any.
        let body = without_bom(body);
        let first = body.trim_ascii_start().first();
        let peek = (first == Some(&b'{')).then(|| Peek::read(body)).flatten();
        // A list is JSON without fields (payloads.md §2.2).
        let is_list = first == Some(&b'[') && serde_json::from_slice::<&RawValue>(body).is_ok();
        let given = self
            .turn
            .map(|turn| Found { id: Cow::Borrowed(turn.session_id.as_bytes()), source: "header.x-phanrouter-session" });
        let search = self.route.options.session_sources.search_with(headers, peek.as_ref(), given, self.api);
        let model = peek.and_then(|peek| peek.model_name()).unwrap_or_default();
        let model = model_name(model);
        let id = search.found.as_ref().map(|found| found.id.as_ref());
        let identity = Identity {
            session: search.found.as_ref().and_then(|found| self.session(found, &model)),
            placement: id.map(|id| placement(self.route, id, &model)).unwrap_or_default(),
            model,
            stream: peek.is_some_and(|peek| peek.wants_stream()),
            too_long: search.too_long,
            is_json: is_list || peek.is_some(),
        };
        (identity, id.map(see))
    }

    fn session(&self, found: &Found<'_>, model: &str) -> Option<Session> {
        if self.route.options.affinity == Affinity::Off {
            return Some(Session { fingerprint: None, source: HeaderValue::from_static("affinity_off") });
        }
        let fingerprint = fingerprint(self.route, self.snapshot, self.key_id, &found.id, model)?;
        Some(Session { fingerprint: Some(fingerprint), source: HeaderValue::from_str(found.source).ok()? })
    }
}

/// What the control plane calls a session. With a pool per model a session has one binding in each: one for all would move
/// whenever its client takes turns with two models.
pub(super) fn fingerprint(
    route: &RouteEntry,
    snapshot: &Snapshot,
    key_id: &str,
    id: &[u8],
    model: &str,
) -> Option<Fingerprint> {
    let model = route.models.is_some().then_some(model);
    Some(snapshot.fingerprinter.as_ref()?.fingerprint_for(key_id, id, model))
}

/// Where a session belongs by its id, on routes where that decides.
pub(super) fn placement(route: &RouteEntry, id: &[u8], model: &str) -> Placement {
    match route.options.affinity {
        Affinity::Binding | Affinity::Off => Placement::Unstated,
        Affinity::Hash => Placement::Crc32(hash::crc32(id)),
        Affinity::Rendezvous => {
            let addresses = route.pool(model).map(|backend| backend.address.as_ref());
            Placement::Ranked(hash::ranking(id, addresses).map(str::to_owned).collect())
        }
    }
}

/// The model as the control plane is told it: empty when it can be none.
pub(super) fn model_name(name: Cow<'_, str>) -> String {
    if name.len() <= LONGEST_MODEL { name.into_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use router_proto::v1;

    fn snapshot() -> Snapshot {
        let message = v1::Snapshot {
            full: true,
            routes: vec![v1::Route { name: "r".into(), ..Default::default() }],
            settings: Some(v1::Settings { fingerprint_key: vec![1; 32].into() }),
            ..Default::default()
        };
        Snapshot::default().apply(&message, &Metrics::new())
    }

    #[test]
    fn malformed_json_has_no_body_session_but_keeps_the_header_s() {
        let snapshot = snapshot();
        let route = snapshot.route("r").unwrap();
        let reader = Reader { route, snapshot: &snapshot, key_id: "", turn: None, api: Api::Other };
        let mut headers = HeaderMap::new();
        let broken = br#"{"user": "u", "#;
        assert!(reader.identify(&headers, broken).session.is_none());
        let whole = br#"{"user": "u", "model": "m", "stream": true}"#;
        let identity = reader.identify(&headers, whole);
        assert_eq!(identity.session.unwrap().source, "body.user");
        assert_eq!((identity.model.as_str(), identity.stream, identity.is_json), ("m", true, true));
        for (body, is_json) in
            [(" [1, {}]", true), ("\u{feff}[]", true), ("[1", false), ("1", false), ("", false), ("{} {}", false)]
        {
            assert_eq!(reader.identify(&headers, body.as_bytes()).is_json, is_json, "{body}");
        }
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        assert_eq!(reader.identify(&headers, whole).session.unwrap().source, "body.user", "whatever it is called");
        let huge = format!(r#"{{"model": "{}"}}"#, "m".repeat(5 << 20));
        assert_eq!(reader.identify(&headers, huge.as_bytes()).model, "", "no operation grows with a body");
        headers.insert("x-session-id", HeaderValue::from_static("s"));
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("multipart/form-data"));
        assert_eq!(reader.identify(&headers, broken).session.unwrap().source, "header.x-session-id");
    }
}
