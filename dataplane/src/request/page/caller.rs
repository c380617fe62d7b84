//! Who asks for a page. Pages need no key, so what they may do hangs on who is there in person: a person or a program on this
//! machine, not somebody that a proxy or a browser speaks for.

use std::net::IpAddr;

use http::header::{FORWARDED, HOST, ORIGIN, VIA};
use http::{HeaderMap, HeaderName, Method, Uri};

/// What a proxy on this machine, or a page in a browser on it, tells of itself.
const ON_BEHALF: [HeaderName; 7] = [
    FORWARDED,
    ORIGIN,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Where a page is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Meant for operators.
    Admin,
    /// What clients reach, perhaps through a proxy on this machine that says nothing of itself.
    Traffic,
}

/// What the caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Nobody speaks through its connection for somebody else, as far as can be told.
    pub(crate) is_local: bool,
    /// It may change what the page changes: local, on the admin port, by POST, and to a name that means this machine, so that a
    /// link or a picture of some web page does nothing.
    pub(crate) may_change: bool,
}

impl Caller {
    pub(crate) fn of(port: Port, peer: IpAddr, method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let is_direct = ON_BEHALF.iter().all(|name| !headers.contains_key(name));
        let is_asked_for = headers.get(FETCH_SITE).is_none_or(|site| site == "none");
        let is_local = peer.to_canonical().is_loopback() && is_direct && is_asked_for;
        let is_meant = port == Port::Admin && *method == Method::POST && names_this_machine(uri, headers);
        Self { is_local, may_change: is_local && is_meant }
    }
}

/// A name of some web page can be made to lead here; its owner can't make it an address.
fn names_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = uri.authority().map(http::uri::Authority::as_str).or(host) else { return false };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|c| c.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const HERE: &str = "127.0.0.1:8090";

    fn caller(port: Port, peer: &str, method: &Method, headers: &[(&'static str, &'static str)]) -> (bool, bool) {
        let pairs =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers: HeaderMap = pairs.collect();
        let caller = Caller::of(port, peer.parse().unwrap(), method, &Uri::from_static("/chat/_ttft_toggle"), &headers);
        (caller.is_local, caller.may_change)
    }

    #[test]
    fn only_who_is_there_in_person_is_local() {
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.9"] {
            assert_eq!(caller(Port::Admin, peer, &Method::POST, &[("host", HERE)]), (true, true), "{peer}");
        }
        assert_eq!(caller(Port::Admin, "10.0.0.1", &Method::POST, &[("host", HERE)]), (false, false));
        for (name, value) in [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "localhost"),
            ("forwarded", "for=10.0.0.1"),
            ("via", "1.1 proxy"),
            ("x-real-ip", "10.0.0.1"),
            ("origin", "http://evil.example"),
            ("sec-fetch-site", "cross-site"),
            // By a name that was made to lead here.
            ("sec-fetch-site", "same-origin"),
        ] {
            let headers = [("host", HERE), (name, value)];
            assert_eq!(caller(Port::Admin, "127.0.0.1", &Method::POST, &headers), (false, false), "{name}");
        }
        let typed_in = [("host", HERE), ("sec-fetch-site", "none")];
        assert_eq!(caller(Port::Admin, "127.0.0.1", &Method::GET, &typed_in), (true, false), "an address typed in");
    }

    #[test]
    fn changes_are_made_by_post_on_the_admin_port_of_this_machine_by_its_address() {
        for host in [HERE, "localhost", "LocalHost:8090", "[::1]:8090", "127.8.0.1"] {
            assert!(caller(Port::Admin, "127.0.0.1", &Method::POST, &[("host", host)]).1, "{host}");
        }
        for host in ["evil.example:8090", "localhost.evil.example", "10.0.0.1:8090", "127.0.0.1.evil.example", ""] {
            assert_eq!(caller(Port::Admin, "127.0.0.1", &Method::POST, &[("host", host)]), (true, false), "{host}");
        }
        assert!(!caller(Port::Admin, "127.0.0.1", &Method::POST, &[]).1, "no name at all");
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT] {
            assert!(!caller(Port::Admin, "127.0.0.1", &method, &[("host", HERE)]).1, "{method}");
        }
        assert!(!caller(Port::Traffic, "127.0.0.1", &Method::POST, &[("host", HERE)]).1, "a proxy may be in front");
    }
}
