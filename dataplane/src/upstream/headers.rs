//! The headers of the request that a backend sees and of the response that a client sees. What is stripped is
//! [`router_policy::header`]'s to say; here is what is added.

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use router_policy::header::{PassedOn, strip_request, strip_response};

use crate::snapshot::RouteEntry;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// What states something of a body's very bytes, its length apart.
pub(super) const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
];
const DP_RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// Turns a client's headers into those of every try upstream; only `Host` and the rank differ from try to try.
pub(crate) fn for_backend(
    headers: &mut HeaderMap,
    route: &RouteEntry,
    method: &Method,
    client_ip: &HeaderValue,
    request_id: &HeaderValue,
    body_bytes: usize,
) {
    // A client that stated a length gets one stated for it, also of nothing.
    let expects_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
    let states_length = body_bytes != 0 || headers.contains_key(CONTENT_LENGTH) || expects_body;
    let passed_on = PassedOn {
        session_headers: &route.session_headers,
        credentials: route.options.forward_authorization,
        affinity: route.options.backend_managed_affinity,
    };
    strip_request(headers, passed_on);
    if states_length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body_bytes));
    }
    append_forwarded_for(headers, client_ip);
    // A proxy in front that ends TLS knows better.
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    headers.insert(REQUEST_ID, request_id.clone());
}

/// The body is not the one any more of which the client stated a digest.
pub(crate) fn forget_digests(headers: &mut HeaderMap) {
    for name in &DIGESTS {
        headers.remove(name);
    }
}

/// The parts that depend on the backend.
pub(crate) fn for_try(headers: &mut HeaderMap, host: &HeaderValue, dp_rank: Option<u32>) {
    headers.insert(HOST, host.clone());
    if let Some(rank) = dp_rank {
        headers.insert(DP_RANK, HeaderValue::from(rank));
    }
}

fn append_forwarded_for(headers: &mut HeaderMap, client_ip: &HeaderValue) {
    let mut chain = Vec::new();
    for earlier in headers.get_all(&FORWARDED_FOR) {
        chain.extend_from_slice(earlier.as_bytes());
        chain.extend_from_slice(b", ");
    }
    if chain.is_empty() {
        headers.insert(FORWARDED_FOR, client_ip.clone());
        return;
    }
    chain.extend_from_slice(client_ip.as_bytes());
    // Made of header values and commas, so it is one.
    if let Ok(value) = HeaderValue::from_bytes(&chain) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Turns a backend's response headers into the client's. Buffering proxies in front are told to let events through
/// (conventions §1).
pub(crate) fn for_client(headers: &mut HeaderMap) {
    strip_response(headers);
    if is_event_stream(headers) {
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        headers.entry(ACCEL_BUFFERING).or_insert(HeaderValue::from_static("no"));
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().split_at_checked(EVENT_STREAM.len())).is_some_and(
        |(kind, rest)| {
            kind.eq_ignore_ascii_case(EVENT_STREAM)
                && (rest.is_empty() || rest.starts_with(b";") || rest.starts_with(b" "))
        },
    )
}

/// Not compressed.
pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether the body is of this media type, in any case and with any parameters. `application/jsonl` is no `application/json`.
pub(super) fn is_media_type(headers: &HeaderMap, essence: &[u8]) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.split(|c| *c == b';').next().unwrap_or_default().trim_ascii().eq_ignore_ascii_case(essence)
}

/// Whether the media type has this in it, in any case.
pub(super) fn is_kind(headers: &HeaderMap, part: &[u8]) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.windows(part.len()).any(|piece| piece.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_for_grows_by_the_client() {
        let mut headers = HeaderMap::new();
        append_forwarded_for(&mut headers, &HeaderValue::from_static("10.0.0.1"));
        assert_eq!(headers[FORWARDED_FOR], "10.0.0.1");
        append_forwarded_for(&mut headers, &HeaderValue::from_static("10.0.0.2"));
        assert_eq!(headers[FORWARDED_FOR], "10.0.0.1, 10.0.0.2");
    }

    #[test]
    fn only_event_streams_are_marked_and_the_backend_s_own_word_stays() {
        let mut json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for_client(&mut json);
        assert_eq!(json.len(), 1);
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        let mut events = HeaderMap::from_iter([(CONTENT_TYPE, kind.clone())]);
        for_client(&mut events);
        assert_eq!(
            (&events[CACHE_CONTROL], &events[ACCEL_BUFFERING]),
            (&"no-cache".parse().unwrap(), &"no".parse().unwrap())
        );
        let mut own =
            HeaderMap::from_iter([(CONTENT_TYPE, kind), (CACHE_CONTROL, HeaderValue::from_static("private"))]);
        for_client(&mut own);
        assert_eq!(own[CACHE_CONTROL], "private");
    }
}
