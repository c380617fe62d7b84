//! Validated names. Each is made in one place and then trusted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Why a text is not a valid name: what was expected, without repeating the text (it may be a secret in the wrong place).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected}")]
pub struct InvalidId {
    /// What is allowed.
    pub expected: &'static str,
}

/// First path segments that can't be route names: they would hide the default route or a health path.
const RESERVED_ROUTES: [&str; 8] =
    ["v1", "health", "healthz", "readyz", "liveness", "readiness", "metrics", "favicon.ico"];

/// The name of a route, which is also its path prefix: 1–64 of `a-z 0-9 . _ -`, starting with a letter or digit
/// (routing.md §1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteName(Arc<str>);

impl RouteName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let well_formed = (1..=64).contains(&text.len())
            && text.bytes().next().is_some_and(plain)
            && text.bytes().all(|c| plain(c) || matches!(c, b'.' | b'_' | b'-'));
        if !well_formed {
            return Err(InvalidId { expected: "allowed: 1 to 64 of a-z 0-9 . _ -, starting with a letter or digit" });
        }
        if RESERVED_ROUTES.contains(&text) {
            return Err(InvalidId {
                expected: "overlaps a path that the router answers itself (v1, health, healthz, readyz, liveness, \
                           readiness, metrics, favicon.ico); choose another name",
            });
        }
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A backend's identity: its `host:port` (routing.md §2.1). An IPv6 host is written in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(Arc<str>);

impl BackendId {
    /// Checks `host:port`.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        const EXPECTED: InvalidId = InvalidId {
            expected: "allowed: host:port with a port from 1 to 65535, no scheme and no path (an IPv6 host in brackets)",
        };
        let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
        let port_ok = port.parse::<u16>().is_ok_and(|p| p != 0) && port.bytes().all(|c| c.is_ascii_digit());
        let host_ok = if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            inner.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            (1..=253).contains(&host.len())
                && host.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_'))
        };
        if port_ok && host_ok { Ok(Self(text.into())) } else { Err(EXPECTED) }
    }

    /// `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The port.
    pub fn port(&self) -> u16 {
        // `new` has checked that it parses.
        self.0.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
    };
}

text_id!(RouteName);
text_id!(BackendId);

/// What [`is_key_label`] allows, in words.
pub const KEY_LABEL: &str = "allowed: 1 to 64 of a-z A-Z 0-9 . _ - @";

/// Whether a text may be a client key's label.
pub fn is_key_label(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@'))
}

/// As much of a key's SHA-256 as operators are shown, to tell keys apart: 8 hexadecimal digits.
pub fn hash_prefix(sha256: &[u8; 32]) -> String {
    let [a, b, c, d, ..] = *sha256;
    format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// One in-flight request's slot. The upper 24 bits are the control plane's epoch, so that ids are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// How many leases one epoch can grant.
    pub const PER_EPOCH: u64 = 1 << 40;

    /// The `count`-th lease of an epoch.
    pub fn new(epoch: u64, count: u64) -> Self {
        Self((epoch << 40) | (count % Self::PER_EPOCH))
    }
}

/// A session's one-way name: the first 16 bytes of a keyed hash over (key id, session id). See
/// [`crate::session::fingerprint`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// From the wire; `None` unless it is 16 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The first 16 hexadecimal digits, as clients see them (rulings §4).
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(16);
        text
    }

    /// Whether it prints so at its start; digits of either case. Allocates nothing: it is asked of a million in a row.
    pub fn starts_with_hex(self, prefix: &str) -> bool {
        let nibbles = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let mut same = nibbles.zip(prefix.chars()).map(|(nibble, digit)| digit.to_digit(16) == Some(u32::from(nibble)));
        prefix.len() <= 2 * self.0.len() && same.all(|is_same| is_same)
    }

    /// A number that spreads sessions evenly; breaks ties between equally loaded backends.
    pub fn spread(self) -> u64 {
        let (first, _) = self.0.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        u64::from_le_bytes(*first)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_names() {
        for good in ["a", "glm-4.6", "team_a", "0"] {
            assert_eq!(RouteName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "A", "-a", "a/b", "ä", "v1", "healthz", &"a".repeat(65)] {
            assert!(RouteName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn backend_ids() {
        for good in ["127.0.0.1:19001", "gpu-1.internal:80", "[::1]:8000"] {
            assert_eq!(BackendId::new(good).unwrap().to_string(), good);
        }
        for bad in ["", ":1", "host", "host:", "host:0", "host:65536", "host:+1", "http://host:1", "::1:8000", "a b:1"]
        {
            assert!(BackendId::new(bad).is_err(), "{bad}");
        }
        assert_eq!(BackendId::new("127.0.0.1:19001").unwrap().port(), 19001);
    }

    #[test]
    fn key_labels_and_what_is_shown_of_a_hash() {
        for good in ["a", "ci@office", "A-1_b.c", &"a".repeat(64)] {
            assert!(is_key_label(good), "{good}");
        }
        for bad in ["", "two words", "ä", "a/b", &"a".repeat(65)] {
            assert!(!is_key_label(bad), "{bad}");
        }
        assert_eq!(hash_prefix(&[0x0a; 32]), "0a0a0a0a");
    }

    #[test]
    fn lease_ids_of_two_epochs_differ() {
        assert_ne!(LeaseId::new(1, 7), LeaseId::new(2, 7));
        assert_ne!(LeaseId::new(1, 7), LeaseId::new(1, 8));
    }

    #[test]
    fn fingerprints_print_in_hexadecimal() {
        let fingerprint = Fingerprint([0xab; 16]);
        assert_eq!(fingerprint.to_string(), "ab".repeat(16));
        assert_eq!(fingerprint.short(), "ab".repeat(8));
        assert_eq!(Fingerprint::from_slice(&[1; 15]), None);
    }

    #[test]
    fn a_fingerprint_is_found_by_its_first_digits() {
        let fingerprint = Fingerprint([0x0a, 0xb1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xff]);
        let text = fingerprint.to_string();
        for length in 0..=text.len() {
            assert!(fingerprint.starts_with_hex(&text[..length]), "{length}");
        }
        assert!(fingerprint.starts_with_hex("0AB"));
        for other in ["1", "0b", "0ab0", "ab", "0x", "ä", &format!("{text}0"), &"0".repeat(32)] {
            assert!(!fingerprint.starts_with_hex(other), "{other}");
        }
    }
}
