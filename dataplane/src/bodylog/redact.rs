//! What of a request's head is a credential: it is not kept, wherever it stands (payloads.md §6.1).

use std::borrow::Cow;

use http::HeaderMap;
use http::header::HeaderName;
use percent_encoding::percent_decode;

/// Stands in for a value.
const REDACTED: &str = "redacted";
/// Parts of names: whatever has one is a credential.
const PARTS: [&str; 4] = ["authorization", "cookie", "secret", "password"];
/// Ends of names. The names of sessions (`x-session-id` and the like) have none of them.
const ENDS: [&str; 4] = ["api-key", "apikey", "subscription-key", "token"];
/// Names that mean it in a query only.
const IN_QUERY: [&str; 4] = ["key", "auth", "sig", "signature"];
/// Headers in which other proxies repeat the path with its query.
const WITH_QUERY: [&str; 6] =
    ["referer", "x-envoy-original-path", "x-forwarded-uri", "x-original-uri", "x-original-url", "x-rewrite-url"];

/// Whether a name, in lower case and with `-` between its words, is that of a credential.
fn is_secret(name: &str) -> bool {
    PARTS.iter().any(|part| name.contains(part)) || ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a header holds a credential. Names of a [`HeaderMap`] are lower case, however the client wrote them.
fn is_secret_header(name: &HeaderName) -> bool {
    is_secret(&name.as_str().replace('_', "-"))
}

/// Whether a query's name, as it came, is that of a credential.
fn is_secret_parameter(name: &str) -> bool {
    let name = percent_decode(name.as_bytes()).decode_utf8_lossy().to_ascii_lowercase();
    let name = name.trim_matches([' ', '+']).replace('_', "-");
    is_secret(&name) || IN_QUERY.contains(&name.as_str())
}

/// The headers that are kept, with the values that are kept of them.
pub(super) fn headers(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, Cow<'_, [u8]>)> {
    headers.iter().filter(|(name, _)| !is_secret_header(name)).map(|(name, value)| {
        if !WITH_QUERY.contains(&name.as_str()) {
            return (name, Cow::Borrowed(value.as_bytes()));
        }
        let kept = match std::str::from_utf8(value.as_bytes()).map(uri) {
            Ok(Cow::Borrowed(kept)) => Cow::Borrowed(kept.as_bytes()),
            Ok(Cow::Owned(kept)) => Cow::Owned(kept.into_bytes()),
            Err(_) => Cow::Borrowed(REDACTED.as_bytes()),
        };
        (name, kept)
    })
}

/// A path with its query, without the values of credentials. All else stays to the byte.
pub(super) fn uri(uri: &str) -> Cow<'_, str> {
    let Some((path, query)) = uri.split_once('?') else { return Cow::Borrowed(uri) };
    let mut kept = String::with_capacity(uri.len());
    kept.push_str(path);
    let mut is_changed = false;
    for (index, pair) in query.split('&').enumerate() {
        kept.push(if index == 0 { '?' } else { '&' });
        // Some servers part names at `;` too. For the others it belongs to the value, so none of the rest is kept.
        for (index, part) in pair.split(';').enumerate() {
            if index > 0 {
                kept.push(';');
            }
            if let Some((name, _)) = part.split_once('=').filter(|(name, _)| is_secret_parameter(name)) {
                kept.extend([name, "=", REDACTED]);
                is_changed = true;
                break;
            }
            kept.push_str(part);
        }
    }
    if is_changed { Cow::Owned(kept) } else { Cow::Borrowed(uri) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn payloads_6_1_credentials_in_a_query_are_redacted_however_their_names_are_written() {
        for name in [
            "api_key",
            "API-KEY",
            "apikey",
            "key",
            "Key",
            "token",
            "access_token",
            "x-goog-api-key",
            "Authorization",
            "client_secret",
            "%61pi_%6Bey",
            "api%5Fkey",
            "+token",
        ] {
            let given = format!("/v1/x?a=1&{name}=s3cret&b=%2F");
            assert_eq!(uri(&given), format!("/v1/x?a=1&{name}=redacted&b=%2F"));
        }
        for (given, kept) in [
            ("/x?key=a=b?c&key=d", "/x?key=redacted&key=redacted"),
            ("/x?a=1;token=s;b=2&c", "/x?a=1;token=redacted&c"),
            ("/x?token=s;b=2", "/x?token=redacted"),
            ("/x?key=", "/x?key=redacted"),
        ] {
            assert_eq!(uri(given), kept, "{given}");
        }
    }

    #[test]
    fn what_is_no_credential_stays_to_the_byte() {
        for kept in [
            "/v1/x",
            "/v1/x?",
            "/v1/key=1",
            "/x?max_tokens=5&session_id=s&keys=1&monkey=2&token_count=3&q=%zz%C3&&=;a;=&token",
        ] {
            assert!(matches!(uri(kept), Cow::Borrowed(same) if same == kept), "{kept}");
        }
    }

    #[test]
    fn payloads_6_1_headers_with_credentials_are_left_out_and_those_of_sessions_stay() {
        let mut all = HeaderMap::new();
        let secret = [
            "authorization",
            "proxy-authorization",
            "x-forwarded-authorization",
            "cookie",
            "set-cookie",
            "api-key",
            "x-api-key",
            "x-goog-api-key",
            "x-litellm-api-key",
            "x_api_key",
            "ocp-apim-subscription-key",
            "x-auth-token",
            "x-amz-security-token",
        ];
        let kept = [
            "x-session-id",
            "x-session-affinity",
            "x-claude-code-session-id",
            "x-litellm-session-id",
            "idempotency-key",
            "x-max-tokens",
        ];
        for name in secret.iter().chain(&kept) {
            all.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        let left: Vec<&str> = headers(&all).map(|(name, _)| name.as_str()).collect();
        assert_eq!(left, kept);
    }

    #[test]
    fn headers_that_repeat_the_path_lose_what_the_path_loses() {
        let mut all = HeaderMap::new();
        for name in ["referer", "x-original-uri", "x-other"] {
            all.insert(HeaderName::from_static(name), HeaderValue::from_static("http://h/x?token=s"));
        }
        let kept: Vec<_> = headers(&all).map(|(_, value)| String::from_utf8(value.into_owned()).unwrap()).collect();
        assert_eq!(kept, ["http://h/x?token=redacted", "http://h/x?token=redacted", "http://h/x?token=s"]);
        all.insert("referer", HeaderValue::from_bytes(b"/\xff?token=s").unwrap());
        assert_eq!(headers(&all).next().unwrap().1, &b"redacted"[..]);
    }
}
