//! Which headers cross the router, in each direction (design.md §7, gateway.md §8, rulings §4).

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

mod context_window;

pub use context_window::{CONTEXT_WINDOW, InvalidContextWindow, Seen, context_window};

/// What the client says about the session's backend is the router's to say.
const ROUTING: [HeaderName; 2] = [HeaderName::from_static("x-data-parallel-rank"), CONTEXT_WINDOW];

/// Names the part of an engine's cache that the session lives in; for engines that schedule their own ranks.
const CACHE_NAMESPACE: HeaderName = HeaderName::from_static("x-deepinfer-cache-namespace");

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Session turn priority: whose turn it is, and which (limits.md §9.1). Means nothing where the route does not rank turns.
pub const SESSION_TURN: HeaderName = HeaderName::from_static("x-phanrouter-session");

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

/// What a route's backends may see beyond what every backend sees.
#[derive(Debug, Clone, Copy)]
pub struct PassedOn<'a> {
    /// Headers that name a session.
    pub session_headers: &'a [HeaderName],
    /// `forward_authorization`: the client's credentials.
    pub credentials: bool,
    /// `backend_managed_affinity`: the session headers and the cache namespace (gateway.md §8).
    pub affinity: bool,
}

/// Takes out of a client's request what a backend must not see. `Host` and `Content-Length` go too: the caller states them
/// for the body that it sends.
pub fn strip_request(headers: &mut HeaderMap, passed_on: PassedOn<'_>) {
    strip_hop_by_hop(headers);
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    if !passed_on.credentials {
        headers.remove(AUTHORIZATION);
        headers.remove(API_KEY);
    }
    if !passed_on.affinity {
        headers.remove(CACHE_NAMESPACE);
        for name in passed_on.session_headers {
            headers.remove(name);
        }
    }
    // Last: a route may name any header as a session's, and these are never passed on.
    for name in &ROUTING {
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
        let session_headers = [HeaderName::from_static("x-session-id")];
        let closed = PassedOn { session_headers: &session_headers, credentials: false, affinity: false };
        let mut open = headers.clone();
        strip_request(&mut headers, closed);
        assert_eq!(names(&headers), ["accept", "content-type", "traceparent"]);
        assert_eq!(headers.get_all("accept").iter().count(), 2);
        strip_request(&mut open, PassedOn { session_headers: &[], credentials: true, affinity: false });
        assert_eq!(
            names(&open),
            ["accept", "authorization", "content-type", "traceparent", "x-api-key", "x-session-id"]
        );
    }

    #[test]
    fn gateway_8_affinity_headers_stay_for_engines_that_manage_it_and_a_rank_never_does() {
        let headers = map(&[
            ("authorization", "Bearer x"),
            ("x-session-id", "s"),
            ("x-smg-routing-key", "k"),
            ("x-deepinfer-cache-namespace", "n"),
            ("x-data-parallel-rank", "3"),
            ("x-model-context-window", "9"),
        ]);
        let session_headers =
            ["x-session-id", "x-smg-routing-key", "x-data-parallel-rank"].map(HeaderName::from_static);
        for (affinity, left) in
            [(false, &[][..]), (true, &["x-deepinfer-cache-namespace", "x-session-id", "x-smg-routing-key"][..])]
        {
            let mut headers = headers.clone();
            strip_request(&mut headers, PassedOn { session_headers: &session_headers, credentials: false, affinity });
            assert_eq!(names(&headers), left, "{affinity}");
        }
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
