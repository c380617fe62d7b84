//! Request ids: the client's own when it is sane, else one made here (conventions §1).

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::upstream::headers::REQUEST_ID;

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
const LONGEST: usize = 128;

/// Makes ids that are unique over replicas and restarts: the start of the replica's id, and a count.
#[derive(Debug)]
pub(crate) struct RequestIds {
    prefix: String,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new(replica_id: &str) -> Self {
        let prefix = replica_id.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        Self { prefix, next: AtomicU64::new(1) }
    }

    /// The id of a request.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(REQUEST_ID).or_else(|| headers.get(CORRELATION_ID));
        if let Some(given) = given.filter(|given| is_sane(given)) {
            return given.clone();
        }
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        // Letters, digits and a dash always make a header value.
        HeaderValue::from_str(&format!("{}-{count:x}", self.prefix)).unwrap_or(HeaderValue::from_static("-"))
    }
}

/// Short, and nothing that could break out of a log line.
fn is_sane(value: &HeaderValue) -> bool {
    let plain =
        |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=' | b'@');
    (1..=LONGEST).contains(&value.len()) && value.as_bytes().iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sane_ids_are_kept_others_replaced() {
        let ids = RequestIds::new("0123-4567-89ab-cdef-xyz");
        let of = |name: &'static str, value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            ids.of(&HeaderMap::from_iter([(HeaderName::from_static(name), value)]))
        };
        assert_eq!(of("x-request-id", "req_1"), "req_1");
        assert_eq!(of("x-correlation-id", "c-1"), "c-1");
        for bad in ["", "a b", "x\"y", &"a".repeat(129)] {
            assert!(of("x-request-id", bad).to_str().unwrap().starts_with("0123456789abcdef-"), "{bad}");
        }
        assert_ne!(of("x-request-id", ""), of("x-request-id", ""));
    }
}
