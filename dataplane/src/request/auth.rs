//! The key check: `Authorization: Bearer`, or `x-api-key` for Anthropic clients; its SHA-256 is looked up in the snapshot
//! (gateway.md §6, rulings §1). The secret is not kept.

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use router_policy::option::AuthMode;
use sha2::{Digest, Sha256};

use super::error::Error;
use crate::snapshot::Snapshot;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The id of the client's key; `None` when the route needs none.
pub(crate) fn check(
    mode: AuthMode,
    snapshot: &Snapshot,
    headers: &HeaderMap,
    is_loopback: bool,
) -> Result<Option<Arc<str>>, Error> {
    let is_open = match mode {
        AuthMode::Off => true,
        AuthMode::Required => false,
        AuthMode::OpenIfUnconfigured => !snapshot.has_keys(),
        AuthMode::Auto => !snapshot.has_keys() && is_loopback,
    };
    if is_open {
        return Ok(None);
    }
    let secret = bearer(headers).or_else(|| headers.get(API_KEY).map(http::HeaderValue::as_bytes));
    let hash: [u8; 32] = Sha256::digest(secret.ok_or(Error::Unauthorized)?).into();
    snapshot.key_id(&hash).cloned().map(Some).ok_or(Error::Unauthorized)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, rest) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use AuthMode::{Auto, Off, OpenIfUnconfigured, Required};
    use http::HeaderValue;
    use router_proto::v1;

    fn with_key(secret: &str) -> Snapshot {
        let sha256 = Sha256::digest(secret).to_vec().into();
        let keys = vec![v1::Key { id: "k1".into(), name: "n".into(), sha256 }];
        Snapshot::default().apply(&v1::Snapshot { full: true, keys, ..Default::default() }, &Metrics::new())
    }

    fn header(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn modes() {
        let none = Snapshot::default();
        let some = with_key("secret");
        let no_header = HeaderMap::new();
        let rows = [
            (Auto, &none, true, true),
            (Auto, &none, false, false),
            (Auto, &some, true, false),
            (Required, &none, true, false),
            (OpenIfUnconfigured, &none, false, true),
            (OpenIfUnconfigured, &some, true, false),
            (Off, &some, false, true),
        ];
        for (mode, snapshot, is_loopback, is_open) in rows {
            assert_eq!(check(mode, snapshot, &no_header, is_loopback).is_ok(), is_open, "{mode:?} {is_loopback}");
        }
    }

    #[test]
    fn where_a_key_may_stand() {
        let snapshot = with_key("secret");
        for (name, value, is_valid) in [
            (AUTHORIZATION, "Bearer secret", true),
            (AUTHORIZATION, "bearer  secret", true),
            (AUTHORIZATION, "Bearer wrong", false),
            (AUTHORIZATION, "secret", false),
            (AUTHORIZATION, "Bearer ", false),
            (API_KEY, "secret", true),
            (API_KEY, "", false),
        ] {
            let checked = check(AuthMode::Required, &snapshot, &header(name, value), true);
            assert_eq!(checked.is_ok(), is_valid, "{value}");
            assert!(checked.is_err() || checked.unwrap().as_deref() == Some("k1"));
        }
    }
}
