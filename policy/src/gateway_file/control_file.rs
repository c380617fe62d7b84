//! The control file (gateway.md §9): `{"enabled_ports": [19001, 19002]}`. Only listed backends are admitted.
//!
//! Where backends of the route share a port, an entry may be `"host:port"` and then means that one alone; a bare port means
//! every backend with it. What else stands in the object is kept when the file is written.

use std::fmt;

use serde_json::{Map, Value as Json};

use super::{read_json, unless_complaints};
use crate::ids::BackendId;
use crate::option::kind::json_kind;

/// Largest file.
pub const MAX_BYTES: u64 = 1 << 20;

const FIELD: &str = "enabled_ports";
const ALLOWED: &str = "allowed: ports from 1 to 65535, or \"host:port\"";

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Every backend with this port.
    Port(u16),
    /// This one alone.
    Backend(BackendId),
}

impl Entry {
    /// Whether it speaks of a backend.
    pub fn means(&self, backend: &BackendId) -> bool {
        match self {
            Self::Port(port) => *port == backend.port(),
            Self::Backend(id) => id == backend,
        }
    }

    fn read(json: &Json) -> Result<Self, String> {
        match json {
            Json::Number(number) => {
                let port = number.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
                port.map(Self::Port).ok_or_else(|| format!("port expected, got {number}; {ALLOWED}"))
            }
            Json::String(text) => BackendId::new(text)
                .map(Self::Backend)
                .map_err(|_| format!("host:port expected, got another string; {ALLOWED}")),
            other => Err(format!("port expected, got {}; {ALLOWED}", json_kind(other))),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => fmt::Display::fmt(port, f),
            Self::Backend(id) => fmt::Display::fmt(id, f),
        }
    }
}

/// A valid file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// None twice.
    enabled: Vec<Entry>,
    others: Map<String, Json>,
}

impl Content {
    /// Reads a file's text; every complaint at once.
    pub fn parse(bytes: &[u8]) -> Result<Self, Vec<String>> {
        let json = read_json(bytes)?;
        let Json::Object(mut others) = json else {
            return Err(vec![format!("object expected, got {}; allowed: {{\"{FIELD}\": [...]}}", json_kind(&json))]);
        };
        let list = match others.remove(FIELD) {
            Some(Json::Array(list)) => list,
            Some(other) => return Err(vec![format!("{FIELD}: list expected, got {}; {ALLOWED}", json_kind(&other))]),
            None => return Err(vec![format!("{FIELD}: missing; {ALLOWED}")]),
        };
        let (mut enabled, mut complaints) = (Vec::with_capacity(list.len()), Vec::new());
        for (at, json) in list.iter().enumerate() {
            match Entry::read(json) {
                Ok(entry) if enabled.contains(&entry) => {}
                Ok(entry) => enabled.push(entry),
                Err(problem) => complaints.push(format!("{FIELD}[{at}]: {problem}")),
            }
        }
        unless_complaints(Self { enabled, others }, complaints)
    }

    /// What it lists, in its order.
    pub fn enabled(&self) -> &[Entry] {
        &self.enabled
    }

    /// The entries that mean none of these backends.
    pub fn unmatched<'a>(&'a self, backends: &'a [BackendId]) -> impl Iterator<Item = &'a Entry> {
        self.enabled.iter().filter(|entry| !backends.iter().any(|backend| entry.means(backend)))
    }

    /// The file's text.
    pub fn print(&self) -> String {
        let list = self.enabled.iter().map(|entry| match entry {
            Entry::Port(port) => Json::from(*port),
            Entry::Backend(id) => Json::from(id.as_str()),
        });
        let mut object = self.others.clone();
        object.insert(FIELD.to_owned(), list.collect());
        format!("{}\n", Json::Object(object))
    }

    /// Whether it admits a backend.
    pub fn lists(&self, backend: &BackendId) -> bool {
        self.enabled.iter().any(|entry| entry.means(backend))
    }

    /// Admits a backend; `all` are those of the route. The bare port is written where that says the same.
    pub fn enable(&mut self, backend: &BackendId, all: &[BackendId]) {
        if self.lists(backend) {
            return;
        }
        let mut sharers = sharers(backend, all);
        if sharers.all(|other| self.lists(other)) {
            self.enabled.retain(|entry| !matches!(entry, Entry::Backend(id) if id.port() == backend.port()));
            self.enabled.push(Entry::Port(backend.port()));
        } else {
            self.enabled.push(Entry::Backend(backend.clone()));
        }
    }

    /// Admits a backend no more. Others that share its port stay as they are.
    pub fn disable(&mut self, backend: &BackendId, all: &[BackendId]) {
        let had_port = self.enabled.contains(&Entry::Port(backend.port()));
        let stay: Vec<Entry> = if had_port {
            sharers(backend, all)
                .map(|other| Entry::Backend(other.clone()))
                .filter(|e| !self.enabled.contains(e))
                .collect()
        } else {
            Vec::new()
        };
        self.enabled.retain(|entry| !entry.means(backend));
        self.enabled.extend(stay);
    }

    /// A backend has left the route: its entry goes. `left` are those that stay; a port that one of them has stays listed.
    pub fn forget(&mut self, backend: &BackendId, left: &[BackendId]) {
        if sharers(backend, left).next().is_some() {
            self.enabled.retain(|entry| *entry != Entry::Backend(backend.clone()));
        } else {
            self.enabled.retain(|entry| !entry.means(backend));
        }
    }
}

fn sharers<'a>(backend: &'a BackendId, all: &'a [BackendId]) -> impl Iterator<Item = &'a BackendId> {
    all.iter().filter(move |other| *other != backend && other.port() == backend.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> BackendId {
        BackendId::new(text).unwrap()
    }

    fn listed(text: &str) -> Content {
        Content::parse(text.as_bytes()).unwrap()
    }

    fn enabled(content: &Content) -> String {
        content.print().trim().to_owned()
    }

    #[test]
    fn it_lists_ports_and_single_backends() {
        let content = listed(r#"{"enabled_ports": [19002, "a:19001", 19002]}"#);
        assert_eq!(content.enabled(), [Entry::Port(19002), Entry::Backend(id("a:19001"))]);
        assert!(content.lists(&id("b:19002")) && content.lists(&id("a:19001")) && !content.lists(&id("b:19001")));
        let backends = [id("b:19001"), id("b:19002")];
        let unmatched: Vec<String> = content.unmatched(&backends).map(Entry::to_string).collect();
        assert_eq!(unmatched, ["a:19001"]);
        assert!(listed(r#"{"enabled_ports": []}"#).enabled().is_empty());
    }

    #[test]
    fn every_complaint_names_its_field_and_what_is_allowed() {
        const ENTRY: &str = "allowed: ports from 1 to 65535, or \"host:port\"";
        for (text, expected) in [
            ("", vec!["not JSON: line 1, column 0".to_owned()]),
            (r#"{"enabled_ports": [19001"#, vec!["not JSON: line 1, column 24".to_owned()]),
            ("[19001]", vec!["object expected, got list; allowed: {\"enabled_ports\": [...]}".to_owned()]),
            ("{}", vec![format!("enabled_ports: missing; {ENTRY}")]),
            (r#"{"enabled_ports": 19001}"#, vec![format!("enabled_ports: list expected, got number; {ENTRY}")]),
            (
                r#"{"enabled_ports": [1, 0, 65536, -1, 1.5, true, "19001", null]}"#,
                [
                    "[1]: port expected, got 0",
                    "[2]: port expected, got 65536",
                    "[3]: port expected, got -1",
                    "[4]: port expected, got 1.5",
                    "[5]: port expected, got boolean",
                    "[6]: host:port expected, got another string",
                    "[7]: port expected, got null",
                ]
                .map(|problem| format!("enabled_ports{problem}; {ENTRY}"))
                .to_vec(),
            ),
        ] {
            assert_eq!(Content::parse(text.as_bytes()).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn edits_keep_what_they_do_not_mean() {
        let all = [id("a:1"), id("a:2"), id("a:3")];
        let mut content = listed(r#"{"by": "hand", "enabled_ports": [1, 9, 2]}"#);
        content.disable(&all[0], &all);
        assert_eq!(enabled(&content), r#"{"by":"hand","enabled_ports":[9,2]}"#);
        content.enable(&all[2], &all);
        content.enable(&all[2], &all);
        assert_eq!(enabled(&content), r#"{"by":"hand","enabled_ports":[9,2,3]}"#);
        content.forget(&all[1], &[id("a:1"), id("a:3")]);
        assert_eq!(enabled(&content), r#"{"by":"hand","enabled_ports":[9,3]}"#);
        assert_eq!(listed(&content.print()), content);
    }

    #[test]
    fn backends_that_share_a_port_are_drained_one_by_one() {
        let all = [id("a:8000"), id("b:8000"), id("c:8000"), id("a:1")];
        let mut content = listed(r#"{"enabled_ports": [8000, 1]}"#);
        content.disable(&all[1], &all);
        assert_eq!(enabled(&content), r#"{"enabled_ports":[1,"a:8000","c:8000"]}"#);
        assert!(!content.lists(&all[1]) && content.lists(&all[0]) && content.lists(&all[2]) && content.lists(&all[3]));
        content.disable(&all[0], &all);
        content.enable(&all[1], &all);
        assert_eq!(enabled(&content), r#"{"enabled_ports":[1,"c:8000","b:8000"]}"#);
        content.enable(&all[0], &all);
        assert_eq!(enabled(&content), r#"{"enabled_ports":[1,8000]}"#);
        content.forget(&all[0], &all[1..]);
        assert_eq!(enabled(&content), r#"{"enabled_ports":[1,8000]}"#);
    }
}
