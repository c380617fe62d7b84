//! Which route a path belongs to, and what of the path goes to the backend.

use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use http::uri::PathAndQuery;

use super::error::Error;
use crate::snapshot::{RouteEntry, Snapshot};

/// A path taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed<'a> {
    /// `None`: the default route.
    pub(crate) route: Option<&'a str>,
    /// From `/v1/` on.
    pub(crate) inner: &'a str,
}

/// `/v1/...` or `/<route>/v1/...`; nothing else is a route's.
pub(crate) fn parse(path: &str) -> Result<Parsed<'_>, Error> {
    if has_dot_segment(path) {
        return Err(Error::BadPath);
    }
    if path.starts_with("/v1/") {
        return Ok(Parsed { route: None, inner: path });
    }
    let (route, rest) = path.strip_prefix('/').and_then(|rest| rest.split_once('/')).ok_or(Error::NoRoute)?;
    let inner = path.get(route.len() + 1..).filter(|_| rest.starts_with("v1/")).ok_or(Error::NoRoute)?;
    Ok(Parsed { route: Some(route), inner })
}

impl Parsed<'_> {
    pub(crate) fn find(&self, snapshot: &Snapshot) -> Result<Arc<RouteEntry>, Error> {
        match self.route {
            Some(name) => snapshot.route(name).cloned().ok_or(Error::NoRoute),
            None => snapshot.default_route().cloned().ok_or(Error::NoDefaultRoute),
        }
    }

    /// The URI for the backend: path and query as they came, byte for byte, without the prefix.
    pub(crate) fn upstream_uri(&self, uri: &Uri) -> Result<Uri, Error> {
        let whole = uri.path_and_query().ok_or(Error::BadPath)?;
        let Some(route) = self.route else { return Ok(Uri::from(whole.clone())) };
        let tail = whole.as_str().get(route.len() + 1..).ok_or(Error::BadPath)?;
        let tail = PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(tail.as_bytes()));
        tail.map(Uri::from).map_err(|_| Error::BadPath)
    }
}

/// Whether any segment is `.` or `..`, also when dots or slashes are percent-encoded or slashes lean the other way: what a
/// backend might resolve to a path that its route doesn't give.
fn has_dot_segment(path: &str) -> bool {
    // Bytes of the segment so far when it is nothing but dots.
    let mut dots = Some(0_usize);
    let mut rest = path.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let (byte, after) = match (first, more) {
            (b'%', [b'2', b'e' | b'E', after @ ..]) => (b'.', after),
            (b'%', [b'2', b'f' | b'F', after @ ..] | [b'5', b'c' | b'C', after @ ..]) | (b'\\', after) => (b'/', after),
            (byte, after) => (*byte, after),
        };
        rest = after;
        match byte {
            b'/' if matches!(dots, Some(1 | 2)) => return true,
            b'/' => dots = Some(0),
            b'.' => dots = dots.map(|count| count + 1),
            _ => dots = None,
        }
    }
    matches!(dots, Some(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let row = |path| parse(path).map(|parsed| (parsed.route, parsed.inner));
        assert_eq!(row("/v1/chat/completions"), Ok((None, "/v1/chat/completions")));
        assert_eq!(row("/glm-4.6/v1/models"), Ok((Some("glm-4.6"), "/v1/models")));
        assert_eq!(row("/a/v1/v1/x"), Ok((Some("a"), "/v1/v1/x")));
        assert_eq!(row("/v1/"), Ok((None, "/v1/")));
        for path in ["/", "", "/v1", "/a", "/a/", "/a/v1", "/a/b/v1/x", "/a/v2/x", "//v1/x/"] {
            assert!(matches!(row(path), Err(Error::NoRoute) | Ok((Some(""), _))), "{path}");
        }
    }

    #[test]
    fn dot_segments_are_refused_however_they_are_written() {
        for bad in [
            "/v1/../x",
            "/v1/.",
            "/v1/..",
            "/a/v1/%2e%2E/x",
            "/v1/.%2e/",
            "/v1/x%2f..%2fy",
            "/v1/x\\..\\y",
            "/v1/%5c../y",
        ] {
            assert_eq!(parse(bad), Err(Error::BadPath), "{bad}");
        }
        for good in ["/v1/a.b", "/v1/...", "/v1/..a", "/v1/a..", "/v1/%2e%2e%2e", "/v1/x%20y", "/v1//x", "/v1/%2"] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn path_and_query_go_on_as_they_came() {
        let uri: Uri = "/a/v1/x%20y//z?q=%2F..&b".parse().unwrap();
        let parsed = parse(uri.path()).unwrap();
        assert_eq!(parsed.upstream_uri(&uri).unwrap().to_string(), "/v1/x%20y//z?q=%2F..&b");
        let uri: Uri = "http://host/v1/x?y".parse().unwrap();
        assert_eq!(parse(uri.path()).unwrap().upstream_uri(&uri).unwrap().to_string(), "/v1/x?y");
    }
}
