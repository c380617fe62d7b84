//! Whose turn a request is: what is read of the body, the session id, its fingerprint. The id itself goes no further than
//! this module.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use router_policy::body::peek::Peek;
use router_policy::ids::Fingerprint;

use crate::snapshot::{RouteEntry, Snapshot};

/// Longest model name that the control plane is told, in bytes. What is longer names no model, and must not fill a message
/// of the link, which carries the operations of all requests.
const LONGEST_MODEL: usize = 256;

/// What the body and headers say.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    pub(crate) session: Option<Session>,
    /// The body's `model`; empty when it has none that could be one.
    pub(crate) model: String,
    /// Whether the body asks for a stream.
    pub(crate) stream: bool,
    /// Session ids that were passed over for their length.
    pub(crate) too_long: u32,
}

/// A session, by its one-way name.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) fingerprint: Fingerprint,
    /// `X-Routed-Source`
    pub(crate) source: HeaderValue,
}

/// Reads what is needed. A body that is no JSON object is no error: the engine will say what it thinks of it.
pub(crate) fn identify(
    route: &RouteEntry,
    snapshot: &Snapshot,
    headers: &HeaderMap,
    body: &[u8],
    key_id: &str,
) -> Identity {
    let peek = may_be_json(headers, body).then(|| Peek::read(body)).flatten();
    let search = route.options.session_sources.search(headers, peek.as_ref());
    let session = snapshot.fingerprinter.as_ref().zip(search.found).and_then(|(fingerprinter, found)| {
        Some(Session {
            fingerprint: fingerprinter.fingerprint(key_id, &found.id),
            source: HeaderValue::from_str(found.source).ok()?,
        })
    });
    let model = peek.and_then(|peek| peek.model_name()).filter(|name| name.len() <= LONGEST_MODEL);
    Identity {
        session,
        model: model.unwrap_or_default().into_owned(),
        stream: peek.is_some_and(|peek| peek.wants_stream()),
        too_long: search.too_long,
    }
}

/// Saves the look into uploads that can't be JSON.
fn may_be_json(headers: &HeaderMap, body: &[u8]) -> bool {
    let is_named = headers.get(CONTENT_TYPE).is_none_or(|kind| {
        let kind = kind.as_bytes();
        // `application/json`, `application/vnd.api+json`; curl's default for `-d` is often left in place.
        kind.windows(4).any(|part| part.eq_ignore_ascii_case(b"json"))
            || kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    });
    is_named && body.trim_ascii_start().first() == Some(&b'{')
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
        let mut headers = HeaderMap::new();
        let broken = br#"{"user": "u", "#;
        assert!(identify(route, &snapshot, &headers, broken, "").session.is_none());
        let whole = br#"{"user": "u", "model": "m", "stream": true}"#;
        let identity = identify(route, &snapshot, &headers, whole, "");
        assert_eq!(identity.session.unwrap().source, "body.user");
        assert_eq!((identity.model.as_str(), identity.stream), ("m", true));
        let huge = format!(r#"{{"model": "{}"}}"#, "m".repeat(5 << 20));
        assert_eq!(
            identify(route, &snapshot, &headers, huge.as_bytes(), "").model,
            "",
            "no operation grows with a body"
        );
        headers.insert("x-session-id", HeaderValue::from_static("s"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("multipart/form-data"));
        assert_eq!(identify(route, &snapshot, &headers, broken, "").session.unwrap().source, "header.x-session-id");
    }
}
