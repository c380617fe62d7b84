//! The key store (gateway.md §6): `{"version": 1, "records": [{"sha256": "<64 hex digits>", "active": true}]}`.
//!
//! Fields that are not known are passed over. A record's `name` (or `label`) is its label when it is a valid one and gives
//! nothing away. No complaint repeats a hash.

use std::collections::HashMap;
use std::fmt;

use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};

use super::{read_json, unless_complaints};
use crate::ids::{hash_prefix, is_key_label};
use crate::option::kind::json_kind;

/// Largest file: about 100 000 records.
pub const MAX_BYTES: u64 = 16 << 20;

const FILE: &str = "allowed: {\"version\": 1, \"records\": [...]}";
const VERSION: &str = "allowed: 1";
const RECORDS: &str = "allowed: a list of records";
const RECORD: &str = "allowed: {\"sha256\": HASH, \"active\": true or false}";
const HASH: &str = "allowed: the SHA-256 of the key as 64 hexadecimal digits";
const ACTIVE: &str = "allowed: true, false";

/// One key of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// SHA-256 of the secret. Never shown as a whole.
    pub sha256: [u8; 32],
    /// Whether it is valid now.
    pub is_active: bool,
    /// Its `name` or `label`, where that can be a key's label: neither the secret nor its hash, for labels are shown.
    pub label: Option<String>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("sha256_prefix", &hash_prefix(&self.sha256))
            .field("is_active", &self.is_active)
            .field("label", &self.label)
            .finish()
    }
}

/// Reads the records in the order of the file, no hash twice; else every complaint at once.
pub fn parse(bytes: &[u8]) -> Result<Vec<Record>, Vec<String>> {
    let json = read_json(bytes)?;
    let Json::Object(top) = &json else {
        return Err(vec![format!("object expected, got {}; {FILE}", json_kind(&json))]);
    };
    let mut complaints = Vec::new();
    match top.get("version") {
        Some(version) if version.as_u64() == Some(1) => {}
        Some(Json::Number(number)) => complaints.push(format!("version: {number} is not known; {VERSION}")),
        Some(other) => complaints.push(format!("version: integer expected, got {}; {VERSION}", json_kind(other))),
        None => complaints.push(format!("version: missing; {VERSION}")),
    }
    let mut found = Vec::new();
    match top.get("records") {
        Some(Json::Array(records)) => {
            let mut seen = HashMap::new();
            for (at, record) in records.iter().enumerate() {
                found.extend(read_record(at, record, &mut seen, &mut complaints));
            }
        }
        Some(other) => complaints.push(format!("records: list expected, got {}; {RECORDS}", json_kind(other))),
        None => complaints.push(format!("records: missing; {RECORDS}")),
    }
    unless_complaints(found, complaints)
}

/// `seen` are the hashes of the records before it.
fn read_record(
    at: usize,
    record: &Json,
    seen: &mut HashMap<[u8; 32], usize>,
    complaints: &mut Vec<String>,
) -> Option<Record> {
    let mut field = |name: &str, problem: String| complaints.push(format!("records[{at}]{name}: {problem}"));
    let Json::Object(fields) = record else {
        field("", format!("object expected, got {}; {RECORD}", json_kind(record)));
        return None;
    };
    let sha256 = read_hash(fields.get("sha256")).map_err(|problem| field(".sha256", problem)).ok();
    if let Some(first) = sha256.and_then(|hash| seen.insert(hash, at)) {
        field(".sha256", format!("the same as records[{first}].sha256; list each key once"));
    }
    let is_active = read_active(fields.get("active")).map_err(|problem| field(".active", problem)).ok();
    let (sha256, is_active) = (sha256?, is_active?);
    Some(Record { sha256, is_active, label: label(fields, &sha256) })
}

fn read_hash(json: Option<&Json>) -> Result<[u8; 32], String> {
    match json {
        Some(Json::String(text)) => unhex(text).ok_or_else(|| {
            let found = if text.len() == 64 { "other characters".to_owned() } else { format!("{} bytes", text.len()) };
            format!("64 digits expected, got a string with {found}; {HASH}")
        }),
        Some(other) => Err(format!("string expected, got {}; {HASH}", json_kind(other))),
        None => Err(format!("missing; {HASH}")),
    }
}

fn read_active(json: Option<&Json>) -> Result<bool, String> {
    match json {
        Some(Json::Bool(is_active)) => Ok(*is_active),
        Some(other) => Err(format!("boolean expected, got {}; {ACTIVE}", json_kind(other))),
        None => Err(format!("missing; {ACTIVE}")),
    }
}

fn label(fields: &Map<String, Json>, sha256: &[u8; 32]) -> Option<String> {
    let texts = ["name", "label"].into_iter().filter_map(|field| fields.get(field)?.as_str());
    texts.into_iter().find(|text| is_key_label(text) && !reveals(text, sha256)).map(str::to_owned)
}

/// Whether a label is the secret or its hash.
fn reveals(label: &str, sha256: &[u8; 32]) -> bool {
    Sha256::digest(label.as_bytes()).as_slice() == sha256 || unhex(label).as_ref() == Some(sha256)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: &Json) -> Result<Vec<Record>, Vec<String>> {
        parse(json.to_string().as_bytes())
    }

    #[test]
    fn a_good_file_gives_its_records_in_order() {
        let (one, two, off) = ("0a".repeat(32), "0B".repeat(32), "0c".repeat(32));
        let records = read(&json!({"version": 1, "made_by": "hand", "records": [
            {"sha256": one, "active": true, "name": "ci@office", "created": 5},
            {"sha256": off, "active": false, "name": "two words", "label": "laptop"},
            {"sha256": two, "active": true, "name": "not a label"},
        ]}))
        .unwrap();
        let record = |byte, is_active, label: Option<&str>| Record {
            sha256: [byte; 32],
            is_active,
            label: label.map(str::to_owned),
        };
        assert_eq!(
            records,
            [record(10, true, Some("ci@office")), record(12, false, Some("laptop")), record(11, true, None)]
        );
        assert!(read(&json!({"version": 1, "records": []})).unwrap().is_empty());
        assert!(!format!("{:?}", records[0]).contains("0a0a0a0a0"), "not shown as a whole");
    }

    #[test]
    fn neither_the_secret_nor_its_hash_becomes_a_label() {
        let hash =
            Sha256::digest(b"sk-the-secret").iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let label_of = |name: &str, label: &str| {
            let record = json!({"sha256": hash, "active": true, "name": name, "label": label});
            read(&json!({"version": 1, "records": [record]})).unwrap().remove(0).label
        };
        assert_eq!(label_of("sk-the-secret", &hash), None);
        assert_eq!(label_of(&hash.to_uppercase(), "sk-the-secret"), None);
        assert_eq!(label_of("sk-the-secret", "laptop").as_deref(), Some("laptop"));
        assert_eq!(label_of("sk-another", "laptop").as_deref(), Some("sk-another"), "the control");
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
            ("[]", "object expected, got list; allowed: {\"version\": 1"),
            ("{}", "version: missing"),
            ("{\"version\": \"1\", \"records\": []}", "version: integer expected, got string; allowed: 1"),
            ("{\"version\": 1}", "records: missing"),
            ("{\"version\": 1, \"records\": {}}", "records: list expected, got object; allowed: a list"),
        ] {
            let complaints = parse(text.as_bytes()).unwrap_err();
            assert!(complaints[0].starts_with(start), "{complaints:?}");
        }
        assert_eq!(parse(b"{}").unwrap_err().len(), 2);
        let complaints = read(&json!({"version": 1, "records": vec![0; 1000]})).unwrap_err();
        assert_eq!((complaints.len(), complaints[20].as_str()), (21, "and 980 more"));
    }
}
