//! `Host`: exactly one in HTTP/1.1 (RFC 9112 §3.2). Two readers of one connection may understand a request without that
//! differently, so it is no request.

use http::header::HOST;
use http::{HeaderMap, Version};

use super::error::Error;

/// HTTP/2 has `:authority` in its place; HTTP/1.0 knew none.
pub(crate) fn check(version: Version, headers: &HeaderMap) -> Result<(), Error> {
    let count = headers.get_all(HOST).iter().count();
    let is_good = match version {
        Version::HTTP_11 => count == 1,
        Version::HTTP_09 | Version::HTTP_10 => count <= 1,
        _ => true,
    };
    if is_good { Ok(()) } else { Err(Error::BadHost) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn rfc_9112_3_2() {
        let mut headers = HeaderMap::new();
        let good = |headers: &HeaderMap| {
            [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2].map(|version| check(version, headers).is_ok())
        };
        assert_eq!(good(&headers), [true, false, true]);
        headers.append(HOST, HeaderValue::from_static("a"));
        assert_eq!(good(&headers), [true, true, true]);
        headers.append(HOST, HeaderValue::from_static("a"));
        assert_eq!(good(&headers), [false, false, true]);
    }
}
