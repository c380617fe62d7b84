//! The session gateway's files (gateway.md §6, §9), read once and strictly: a complaint names its flag, its file and the
//! field, and repeats nothing of a key store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use router_policy::option::kind::json_kind;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

/// Larger files are refused.
const MAX_BYTES: u64 = 16 << 20;

/// Longest label of a key.
const MAX_LABEL: usize = 64;

/// One key of a key store.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// SHA-256 of the secret. Never printed as a whole.
    pub(super) sha256: [u8; 32],
    /// Whether it is valid now.
    pub(super) is_active: bool,
    /// Its `name` or `label`, where that can be a key's label here.
    pub(super) label: Option<String>,
}

impl Record {
    /// As much of the hash as `key list` shows.
    pub(super) fn prefix(&self) -> String {
        self.sha256.iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }
}

/// Reads a key store: `{"version": 1, "records": [{"sha256": HEX, "active": BOOLEAN}]}`, private to its owner.
pub(super) fn key_store(path: &Path) -> Result<Vec<Record>, Vec<String>> {
    read(path, true).and_then(|json| records(&json)).map_err(|problems| named("--key-store", path, problems))
}

/// Reads a control file: `{"enabled_ports": [PORT]}`.
pub(super) fn control_file(path: &Path) -> Result<BTreeSet<u16>, Vec<String>> {
    read(path, false).and_then(|json| ports(&json)).map_err(|problems| named("--control-file", path, problems))
}

fn named(flag: &str, path: &Path, problems: Vec<String>) -> Vec<String> {
    problems.into_iter().map(|problem| format!("{flag} {}: {problem}", path.display())).collect()
}

fn read(path: &Path, is_private: bool) -> Result<Json, Vec<String>> {
    let io = |error: std::io::Error| vec![error.to_string()];
    let file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.mode() & 0o777;
    if is_private && mode & 0o077 != 0 {
        return Err(vec![format!("open to other users (mode {mode:03o}); chmod 600 it")]);
    }
    let mut text = String::new();
    let length = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if length as u64 > MAX_BYTES {
        return Err(vec!["larger than 16 MiB".to_owned()]);
    }
    // Its messages say where and what was expected, not what was there.
    serde_json::from_str(&text).map_err(|error| vec![format!("not JSON: {error}")])
}

fn records(json: &Json) -> Result<Vec<Record>, Vec<String>> {
    let Json::Object(top) = json else { return Err(vec![format!("object expected, got {}", json_kind(json))]) };
    let mut problems = Vec::new();
    match top.get("version") {
        Some(version) if version.as_u64() == Some(1) => {}
        None => problems.push("version: missing; allowed: 1".to_owned()),
        Some(_) => problems.push("version: unknown; allowed: 1".to_owned()),
    }
    let items = match top.get("records") {
        Some(Json::Array(items)) => items.as_slice(),
        other => {
            problems.push(format!("records: list expected, got {}", other.map_or("nothing", json_kind)));
            &[]
        }
    };
    let mut seen: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match record(item) {
            Ok(record) => {
                if let Some(first) = seen.insert(record.sha256, index) {
                    problems.push(format!("records[{index}].sha256: stands in records[{first}] too"));
                }
                found.push(record);
            }
            Err(fields) => problems.extend(fields.into_iter().map(|field| format!("records[{index}]{field}"))),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Reads a record; problems start with the field, dot first.
fn record(item: &Json) -> Result<Record, Vec<String>> {
    let Json::Object(fields) = item else { return Err(vec![format!(": object expected, got {}", json_kind(item))]) };
    let sha256 = fields.get("sha256").and_then(Json::as_str).and_then(hash);
    let is_active = fields.get("active").and_then(Json::as_bool);
    let mut problems = Vec::new();
    if sha256.is_none() {
        problems.push(".sha256: 64 hexadecimal digits expected".to_owned());
    }
    if is_active.is_none() {
        let got = fields.get("active").map_or("nothing", json_kind);
        problems.push(format!(".active: boolean expected, got {got}"));
    }
    let (Some(sha256), Some(is_active)) = (sha256, is_active) else { return Err(problems) };
    let label = ["name", "label"].iter().filter_map(|key| fields.get(*key)?.as_str());
    let label = label.into_iter().find(|text| is_label(text) && !reveals(text, &sha256)).map(str::to_owned);
    Ok(Record { sha256, is_active, label })
}

fn hash(text: &str) -> Option<[u8; 32]> {
    // All ASCII: each pair is a piece of its own.
    if text.len() != 64 || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// What the control plane takes as a key's label.
fn is_label(text: &str) -> bool {
    (1..=MAX_LABEL).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-' | b'@'))
}

/// A label that is the secret or its hash: labels are shown.
fn reveals(label: &str, sha256: &[u8; 32]) -> bool {
    Sha256::digest(label.as_bytes()).as_slice() == sha256 || hash(label).as_ref() == Some(sha256)
}

fn ports(json: &Json) -> Result<BTreeSet<u16>, Vec<String>> {
    let Some(Json::Array(items)) = json.get("enabled_ports") else {
        return Err(vec!["enabled_ports: list of ports expected".to_owned()]);
    };
    let mut problems = Vec::new();
    let mut found = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        match item.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0) {
            Some(port) => {
                found.insert(port);
            }
            None => problems.push(format!("enabled_ports[{index}]: port expected; allowed: 1..=65535")),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record_json(fill: &str, active: bool) -> Json {
        json!({"sha256": fill.repeat(64), "active": active})
    }

    #[test]
    fn a_good_key_store() {
        let secret =
            Sha256::digest(b"sk-the-secret").iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let store = json!({"version": 1, "records": [
            {"sha256": "A".repeat(64), "active": true, "name": "ci", "created": 17},
            {"sha256": "b".repeat(64), "active": false, "name": "two words", "label": "laptop"},
            {"sha256": secret, "active": true, "name": "sk-the-secret", "label": secret},
        ]});
        let found = records(&store).unwrap_or_else(|problems| panic!("{problems:?}"));
        let labels: Vec<_> = found.iter().map(|one| (one.prefix(), one.is_active, one.label.as_deref())).collect();
        assert_eq!(labels[0], ("aaaaaaaa".to_owned(), true, Some("ci")));
        assert_eq!(labels[1], ("bbbbbbbb".to_owned(), false, Some("laptop")));
        assert_eq!((labels[2].1, labels[2].2), (true, None), "neither the secret nor its hash becomes a label");
    }

    #[test]
    fn a_bad_key_store_is_told_whole_and_repeats_nothing() {
        let store = json!({"version": 2, "records": [
            record_json("a", true), {"sha256": "sk-oops", "active": "yes"}, 7, {"active": true}, record_json("a", false),
        ]});
        let problems = records(&store).err().unwrap();
        assert_eq!(
            problems,
            [
                "version: unknown; allowed: 1",
                "records[1].sha256: 64 hexadecimal digits expected",
                "records[1].active: boolean expected, got string",
                "records[2]: object expected, got number",
                "records[3].sha256: 64 hexadecimal digits expected",
                "records[4].sha256: stands in records[0] too",
            ]
        );
        assert_eq!(
            records(&json!({})).err().unwrap(),
            ["version: missing; allowed: 1", "records: list expected, got nothing"]
        );
    }

    #[test]
    fn a_control_file_lists_ports() {
        assert_eq!(ports(&json!({"enabled_ports": [19002, 19001]})).unwrap(), BTreeSet::from([19001, 19002]));
        assert!(ports(&json!({"enabled_ports": []})).unwrap().is_empty());
        assert_eq!(ports(&json!({})).unwrap_err(), ["enabled_ports: list of ports expected"]);
        assert_eq!(
            ports(&json!({"enabled_ports": [0, "19001", 19001]})).unwrap_err(),
            [
                "enabled_ports[0]: port expected; allowed: 1..=65535",
                "enabled_ports[1]: port expected; allowed: 1..=65535"
            ]
        );
    }

    #[test]
    fn a_key_store_is_private_and_every_complaint_names_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let missing = key_store(&path).err().unwrap();
        assert!(missing[0].starts_with(&format!("--key-store {}: No such file", path.display())), "{missing:?}");
        std::fs::write(&path, "{\"version\": 1,\n \"records\": [}").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        assert!(key_store(&path).err().unwrap()[0].ends_with("open to other users (mode 640); chmod 600 it"));
        mode(0o600);
        assert!(key_store(&path).err().unwrap()[0].contains("not JSON: expected value at line 2"));
        assert!(control_file(&path).unwrap_err()[0].starts_with("--control-file "));
    }
}
