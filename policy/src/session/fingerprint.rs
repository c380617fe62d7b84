//! The keyed hash that stands for a session everywhere outside the dataplane (rulings §2).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ids::Fingerprint;

/// Makes fingerprints. Its key comes from the control plane, so that all replicas agree and two installations can't be
/// correlated.
#[derive(Clone)]
pub struct Fingerprinter {
    mac: Hmac<Sha256>,
}

impl Fingerprinter {
    /// With this key; `None` for an empty key.
    pub fn new(key: &[u8]) -> Option<Self> {
        if key.is_empty() {
            return None;
        }
        // HMAC takes keys of every length.
        Hmac::new_from_slice(key).ok().map(|mac| Self { mac })
    }

    /// The name of `session_id` under a client key. The same id under two keys is two sessions (gateway.md §2).
    pub fn fingerprint(&self, key_id: &str, session_id: &[u8]) -> Fingerprint {
        let mut mac = self.mac.clone();
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        mac.update(&(key_id.len() as u64).to_le_bytes());
        mac.update(key_id.as_bytes());
        mac.update(session_id);
        let digest = mac.finalize().into_bytes();
        let mut short = [0; 16];
        for (to, from) in short.iter_mut().zip(digest) {
            *to = from;
        }
        Fingerprint(short)
    }
}

impl std::fmt::Debug for Fingerprinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fingerprinter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_2_isolated_by_key_session_and_installation() {
        let here = Fingerprinter::new(&[1; 32]).unwrap();
        let there = Fingerprinter::new(&[2; 32]).unwrap();
        let name = here.fingerprint("k1", b"s");
        assert_eq!(name, here.fingerprint("k1", b"s"));
        assert_ne!(name, here.fingerprint("k2", b"s"));
        assert_ne!(name, here.fingerprint("k1", b"t"));
        assert_ne!(name, there.fingerprint("k1", b"s"));
        assert_ne!(here.fingerprint("ab", b"c"), here.fingerprint("a", b"bc"));
        assert!(Fingerprinter::new(&[]).is_none());
    }
}
