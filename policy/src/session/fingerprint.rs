//! The keyed hash that stands for a session everywhere outside the dataplane (rulings §2).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::ids::Fingerprint;

/// In the length of the key's id.
const MODEL_FOLLOWS: u64 = 1 << 63;

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

    /// The name of `session_id` under a client key. The same id under two keys is two sessions (gateway.md §2), and with two
    /// models too: `model` is given on routes that have a pool for each, where no backend may serve both. An empty one has
    /// no pool and counts as none.
    pub fn fingerprint_for(&self, key_id: &str, session_id: &[u8], model: Option<&str>) -> Fingerprint {
        let mut mac = self.mac.clone();
        let model = model.filter(|model| !model.is_empty());
        // The lengths keep ("ab", "c") and ("a", "bc") apart; no key is long enough for the bit that says that a model follows.
        let with_model = if model.is_some() { MODEL_FOLLOWS } else { 0 };
        mac.update(&(key_id.len() as u64 | with_model).to_le_bytes());
        mac.update(key_id.as_bytes());
        if let Some(model) = model {
            mac.update(&(model.len() as u64).to_le_bytes());
            mac.update(model.as_bytes());
        }
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
        let name = here.fingerprint_for("k1", b"s", None);
        assert_eq!(name, here.fingerprint_for("k1", b"s", None));
        assert_ne!(name, here.fingerprint_for("k2", b"s", None));
        assert_ne!(name, here.fingerprint_for("k1", b"t", None));
        assert_ne!(name, there.fingerprint_for("k1", b"s", None));
        assert_ne!(here.fingerprint_for("ab", b"c", None), here.fingerprint_for("a", b"bc", None));
        assert!(Fingerprinter::new(&[]).is_none());
    }

    #[test]
    fn a_name_without_a_model_is_the_one_that_stored_bindings_have() {
        let name = Fingerprinter::new(&[1; 32]).unwrap().fingerprint_for("k1", b"s", None);
        assert_eq!(name.to_string(), "497bdae8f3b5bd5439471eda2cdcc68a");
    }

    #[test]
    fn one_name_for_each_model() {
        let by = Fingerprinter::new(&[1; 32]).unwrap();
        let name = by.fingerprint_for("k", b"s", Some("m"));
        assert_eq!(name, by.fingerprint_for("k", b"s", Some("m")));
        assert_eq!(by.fingerprint_for("k", b"s", Some("")), by.fingerprint_for("k", b"s", None));
        // Whatever is read as part of what stands beside it, and a session that tries to look like one with a model.
        let forged = [&1_u64.to_le_bytes()[..], b"ms"].concat();
        for (key, id, model) in [
            ("k", &b"s"[..], None),
            ("k", b"s", Some("n")),
            ("km", b"s", None),
            ("k", b"", Some("ms")),
            ("k", b"ms", None),
            ("k", &forged, None),
            ("", b"s", Some("km")),
        ] {
            assert_ne!(name, by.fingerprint_for(key, id, model), "{key} {id:?} {model:?}");
        }
    }
}
