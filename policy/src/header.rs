//! Which headers cross the router, in each direction (design.md §7, gateway.md §8, rulings §4).

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// What the client says about the session's backend is the router's to say.
const ROUTING: [HeaderName; 3] = [
    HeaderName::from_static("x-data-parallel-rank"),
    HeaderName::from_static("x-model-context-window"),
    HeaderName::from_static("x-deepinfer-cache-namespace"),
];

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The prefix of the headers that tell clients how they were routed.
pub const ROUTED_PREFIX: &str = "x-routed-";

/// Headers that end at each hop (RFC 9110 §7.6.1); those that `Connection` names come on top.
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// Takes out of a client's request what a backend must not see. `Host` and `Content-Length` go too: the caller states them
/// for the body that it sends.
pub fn strip_request<'a>(
    headers: &mut HeaderMap,
    session_headers: impl Iterator<Item = &'a HeaderName>,
    forward_authorization: bool,
) {
    strip_hop_by_hop(headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    if !forward_authorization {
        headers.remove(AUTHORIZATION);
        headers.remove(API_KEY);
    }
    for name in &ROUTING {
        headers.remove(name);
    }
    for name in session_headers {
        headers.remove(name);
    }
    strip_routed(headers);
}

/// Takes out of a backend's response what a client must not see. `Content-Length` stays: the body is passed on as it is.
/// Beside a `Transfer-Encoding` it is not the body's length (RFC 9112 §6.3) and would cut the body short.
pub fn strip_response(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    strip_hop_by_hop(headers);
    strip_routed(headers);
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            // A client that names an end-to-end header the proxy depends on must not make it vanish unseen.
            .filter(|name| *name != CONTENT_LENGTH && *name != HOST)
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn strip_routed(headers: &mut HeaderMap) {
    let routed: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(ROUTED_PREFIX)).cloned().collect();
    for name in routed {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_request_loses_credentials_hop_by_hop_and_routing_headers() {
        let mut headers = map(&[
            ("host", "router"),
            ("authorization", "Bearer x"),
            ("x-api-key", "x"),
            ("connection", "keep-alive, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("x-session-id", "s"),
            ("x-data-parallel-rank", "3"),
            ("x-routed-peer", "p"),
            ("content-type", "application/json"),
            ("traceparent", "00-1"),
            ("accept", "a"),
            ("accept", "b"),
        ]);
        let session = HeaderName::from_static("x-session-id");
        let mut open = headers.clone();
        strip_request(&mut headers, std::iter::once(&session), false);
        assert_eq!(names(&headers), ["accept", "content-type", "traceparent"]);
        assert_eq!(headers.get_all("accept").iter().count(), 2);
        strip_request(&mut open, std::iter::empty(), true);
        assert_eq!(
            names(&open),
            ["accept", "authorization", "content-type", "traceparent", "x-api-key", "x-session-id"]
        );
    }

    #[test]
    fn a_response_keeps_its_length_and_loses_the_backend_s_own_routing() {
        let mut headers = map(&[
            ("content-length", "5"),
            ("connection", "close, content-length"),
            ("x-routed-peer", "inner"),
            ("x-request-id", "r"),
        ]);
        strip_response(&mut headers);
        assert_eq!(names(&headers), ["content-length", "x-request-id"]);
        let mut chunked = map(&[("content-length", "2"), ("transfer-encoding", "chunked"), ("x-request-id", "r")]);
        strip_response(&mut chunked);
        assert_eq!(names(&chunked), ["x-request-id"]);
    }
}
