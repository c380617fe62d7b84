//! The keys of the key store file (gateway.md §6): its active records, each with an id that never changes. The format is
//! [`router_policy::gateway_file::key_store`].

pub mod look;

use std::fmt;

use router_policy::gateway_file::key_store;
use router_policy::ids::hash_prefix;
use sha2::{Digest, Sha256};

/// An active key of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct FileKey {
    /// Made from the hash, so that it is the same after a restart, on every control plane, and wherever the record stands:
    /// sessions are tied to it. It is a hash of the hash, so that ids in logs tell nothing of it.
    pub id: String,
    /// Its label, or its id.
    pub name: String,
    /// SHA-256 of the secret. Never shown as a whole.
    pub sha256: [u8; 32],
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileKey")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("sha256_prefix", &hash_prefix(&self.sha256))
            .finish()
    }
}

/// Reads the active keys; every complaint at once.
pub fn parse(bytes: &[u8]) -> Result<Vec<FileKey>, Vec<String>> {
    let records = key_store::parse(bytes)?;
    Ok(records.into_iter().filter(|record| record.is_active).map(FileKey::from).collect())
}

impl From<key_store::Record> for FileKey {
    fn from(record: key_store::Record) -> Self {
        let id = id_of(&record.sha256);
        let name = record.label.unwrap_or_else(|| id.clone());
        Self { id, name, sha256: record.sha256 }
    }
}

/// See [`FileKey::id`].
fn id_of(sha256: &[u8; 32]) -> String {
    let digest = Sha256::digest(sha256);
    let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("file_{number:016x}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn read(json: &Json) -> Result<Vec<FileKey>, Vec<String>> {
        parse(json.to_string().as_bytes())
    }

    #[test]
    fn active_records_are_keys() {
        let (one, two, off) = ("0a".repeat(32), "0B".repeat(32), "0c".repeat(32));
        let keys = read(&json!({"version": 1, "made_by": "hand", "records": [
            {"sha256": one, "active": true, "name": "ci@office", "created": 5},
            {"sha256": off, "active": false},
            {"sha256": two, "active": true, "name": "not a label"},
        ]}))
        .unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!((keys[0].name.as_str(), keys[0].sha256), ("ci@office", [10; 32]));
        assert_eq!((&keys[1].name, keys[1].sha256), (&keys[1].id, [11; 32]));
        assert!(read(&json!({"version": 1, "records": []})).unwrap().is_empty());
    }

    #[test]
    fn an_id_is_made_from_the_hash_alone_and_does_not_show_it() {
        let one = |active: bool, hash: &str| json!({"sha256": hash, "active": active});
        let (a, b) = ("ab".repeat(32), "cd".repeat(32));
        let first = read(&json!({"version": 1, "records": [one(true, &a), one(true, &b)]})).unwrap();
        let second = read(&json!({"version": 1, "records": [one(true, &b), one(true, &a.to_uppercase())]})).unwrap();
        assert_eq!((&first[0], &first[1]), (&second[1], &second[0]));
        // A released id never changes: sessions are tied to it.
        assert_eq!(first[0].id, "file_9a2db2e23f1504cd");
        assert_ne!(first[0].id, first[1].id);
        assert!(!a.contains(&first[0].id["file_".len()..]));
    }

    #[test]
    fn the_hash_is_not_shown_as_a_whole() {
        let keys = read(&json!({"version": 1, "records": [{"sha256": "5d".repeat(32), "active": true}]})).unwrap();
        let shown = format!("{keys:?}");
        assert!(shown.contains("5d5d5d5d") && !shown.contains("5d5d5d5d5d") && !shown.contains("93, 93"), "{shown}");
    }

    #[test]
    fn a_secret_in_the_place_of_a_label_is_not_shown() {
        let hash = Sha256::digest(b"sk-oops").iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let record = json!({"sha256": hash, "active": true, "name": "sk-oops", "label": hash});
        let keys = read(&json!({"version": 1, "records": [record]})).unwrap();
        assert_eq!(keys[0].name, keys[0].id);
    }
}
