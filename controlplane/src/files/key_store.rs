//! The key store file (gateway.md §6): `{"version": 1, "records": [{"sha256": "<64 hex digits>", "active": true}]}`.
//!
//! Fields that are not known are passed over. A record's `name` (or `label`) is shown for its key when it is a valid label.
//! No complaint repeats a hash: what stands there may be a secret in the wrong place.

use std::collections::HashMap;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// Largest file: about 100 000 records.
pub const MAX_BYTES: u64 = 16 << 20;
/// Complaints that are worth reading at once.
const MAX_COMPLAINTS: usize = 20;

/// An active key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileKey {
    /// Made from the hash, so that it is the same after a restart, on every control plane, and wherever the record stands:
    /// sessions are tied to it. It is a hash of the hash, so that ids in logs tell nothing of it.
    pub id: String,
    /// Its label, or its id.
    pub name: String,
    /// SHA-256 of the secret.
    pub sha256: [u8; 32],
}

/// Whether a text may be a key's label.
pub fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@'))
}

/// Reads the active keys; every complaint at once, each `field: what is wrong; what is allowed`.
pub fn parse(bytes: &[u8]) -> Result<Vec<FileKey>, Vec<String>> {
    let json: Json = serde_json::from_slice(bytes)
        .map_err(|error| vec![format!("not JSON: line {}, column {}", error.line(), error.column())])?;
    let Some(object) = json.as_object() else {
        return Err(vec![format!("an object expected, got {}", kind(&json))]);
    };
    let mut complaints = Vec::new();
    match object.get("version") {
        Some(version) if version.as_u64() == Some(1) => {}
        Some(Json::Number(number)) => complaints.push(format!("version: {number} is not known; allowed: 1")),
        Some(other) => complaints.push(format!("version: integer expected, got {}; allowed: 1", kind(other))),
        None => complaints.push("version: missing; allowed: 1".to_owned()),
    }
    let mut keys = Vec::new();
    match object.get("records") {
        Some(Json::Array(records)) => {
            let mut seen = HashMap::new();
            for (at, record) in records.iter().enumerate() {
                keys.extend(read_record(at, record, &mut seen, &mut complaints));
            }
        }
        Some(other) => complaints.push(format!("records: array expected, got {}", kind(other))),
        None => complaints.push("records: missing; allowed: an array of records".to_owned()),
    }
    if complaints.is_empty() {
        return Ok(keys);
    }
    let more = complaints.len().saturating_sub(MAX_COMPLAINTS);
    complaints.truncate(MAX_COMPLAINTS);
    if more > 0 {
        complaints.push(format!("and {more} more"));
    }
    Err(complaints)
}

fn read_record(
    at: usize,
    record: &Json,
    seen: &mut HashMap<[u8; 32], usize>,
    complaints: &mut Vec<String>,
) -> Option<FileKey> {
    const HASH: &str = "allowed: the SHA-256 of the key as 64 hexadecimal digits";
    let Some(object) = record.as_object() else {
        complaints.push(format!("records[{at}]: object expected, got {}", kind(record)));
        return None;
    };
    let sha256 = match object.get("sha256") {
        Some(Json::String(text)) => {
            let hash = unhex(text);
            if hash.is_none() {
                let found =
                    if text.len() == 64 { "other characters".to_owned() } else { format!("{} bytes", text.len()) };
                complaints.push(format!("records[{at}].sha256: 64 digits expected, got a string with {found}; {HASH}"));
            }
            hash
        }
        Some(other) => {
            complaints.push(format!("records[{at}].sha256: string expected, got {}; {HASH}", kind(other)));
            None
        }
        None => {
            complaints.push(format!("records[{at}].sha256: missing; {HASH}"));
            None
        }
    };
    if let Some(hash) = sha256
        && let Some(first) = seen.insert(hash, at)
    {
        complaints.push(format!("records[{at}].sha256: the same as records[{first}].sha256; list each key once"));
    }
    let is_active = match object.get("active") {
        Some(Json::Bool(is_active)) => *is_active,
        Some(other) => {
            complaints
                .push(format!("records[{at}].active: boolean expected, got {}; allowed: true, false", kind(other)));
            false
        }
        None => {
            complaints.push(format!("records[{at}].active: missing; allowed: true, false"));
            false
        }
    };
    let sha256 = sha256.filter(|_| is_active)?;
    let id = id_of(&sha256);
    let labels = ["name", "label"].iter().filter_map(|field| object.get(*field)?.as_str());
    let name = labels.into_iter().find(|text| is_label(text)).unwrap_or(&id).to_owned();
    Some(FileKey { id, name, sha256 })
}

/// See [`FileKey::id`].
fn id_of(sha256: &[u8; 32]) -> String {
    let digest = Sha256::digest(sha256);
    let number = digest.iter().take(8).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
    format!("file_{number:016x}")
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = char::from(*digit).to_digit(16)?;
            *byte = (*byte << 4) | u8::try_from(value).ok()?;
        }
    }
    Some(bytes)
}

pub(super) fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn every_complaint_comes_at_once_and_none_repeats_what_stands_there() {
        let good = "ab".repeat(32);
        let secret = "sk-this-is-a-secret-in-the-wrong-place";
        let complaints = read(&json!({"version": 2, "records": [
            {"sha256": good, "active": true},
            {"sha256": secret, "active": "yes"},
            {"active": 1},
            {"sha256": good.to_uppercase(), "active": false},
            {"sha256": "zz".repeat(32), "active": true},
            {"sha256": 7},
            secret,
        ]}))
        .unwrap_err();
        let starts = [
            "version: 2 is not known; allowed: 1",
            "records[1].sha256: 64 digits expected, got a string with 38 bytes; allowed:",
            "records[1].active: boolean expected, got string; allowed: true, false",
            "records[2].sha256: missing; allowed:",
            "records[2].active: boolean expected, got number",
            "records[3].sha256: the same as records[0].sha256",
            "records[4].sha256: 64 digits expected, got a string with other characters",
            "records[5].sha256: string expected, got number",
            "records[5].active: missing",
            "records[6]: object expected, got string",
        ];
        assert_eq!(complaints.len(), starts.len(), "{complaints:#?}");
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
            assert!(!complaint.contains("secret-in") && !complaint.to_lowercase().contains("abab"), "{complaint}");
        }
    }

    #[test]
    fn other_shapes_are_refused_and_complaints_are_bounded() {
        for (text, start) in [
            ("", "not JSON: line 1"),
            ("{\"version\": 1, \"records\": [", "not JSON: line 1"),
            ("[]", "an object expected, got array"),
            ("{}", "version: missing"),
            ("{\"version\": \"1\", \"records\": []}", "version: integer expected, got string"),
            ("{\"version\": 1}", "records: missing"),
            ("{\"version\": 1, \"records\": {}}", "records: array expected, got object"),
        ] {
            let complaints = parse(text.as_bytes()).unwrap_err();
            assert!(complaints[0].starts_with(start), "{complaints:?}");
        }
        let complaints = read(&json!({"version": 1, "records": vec![0; 1000]})).unwrap_err();
        assert_eq!((complaints.len(), complaints[20].as_str()), (21, "and 980 more"));
    }
}
