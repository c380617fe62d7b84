//! The control file (gateway.md §9): `{"enabled_ports": [19001, 19002]}`. Only listed backends are admitted; an empty list,
//! a missing file and one that is not valid admit nobody.
//!
//! Where backends of the route share a port, an entry may be `"host:port"` and then means that one alone; a bare port means
//! every backend with it. What else stands in the object is kept when the file is written.

use router_policy::ids::BackendId;
use serde_json::{Map, Value as Json};

use super::bounded_read::ReadProblem;
use super::key_store::kind;

/// Largest file.
pub const MAX_BYTES: u64 = 1 << 20;
/// Entries shown in one note.
const MAX_SHOWN: usize = 8;
const FIELD: &str = "enabled_ports";
const ALLOWED: &str = "allowed: ports from 1 to 65535, or \"host:port\"";

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Port(u16),
    Backend(BackendId),
}

impl Entry {
    fn means(&self, backend: &BackendId) -> bool {
        match self {
            Self::Port(port) => *port == backend.port(),
            Self::Backend(id) => id == backend,
        }
    }
}

/// A valid file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    enabled: Vec<Entry>,
    others: Map<String, Json>,
}

/// What a reading of the file gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// There is no file.
    Missing,
    /// It can't be read or is not valid, in words.
    Bad(String),
    /// It is valid.
    Listed(Content),
}

impl Reading {
    /// From what the file system gave.
    pub fn new(read: Result<Vec<u8>, ReadProblem>) -> Self {
        match read {
            Ok(bytes) => match Content::parse(&bytes) {
                Ok(content) => Self::Listed(content),
                Err(problem) => Self::Bad(problem),
            },
            Err(ReadProblem::Missing) => Self::Missing,
            Err(ReadProblem::Bad(problem)) => Self::Bad(problem),
        }
    }

    /// Why a backend is drained; `None` when it is admitted.
    pub fn why_drained(&self, backend: &BackendId) -> Option<String> {
        let closed = |what: &str| Some(format!("the control file {what}: admission is closed"));
        match self {
            Self::Missing => closed("is missing"),
            Self::Bad(_) => closed("is not valid"),
            Self::Listed(content) if content.enabled.is_empty() => closed("lists no port"),
            Self::Listed(content) if content.lists(backend) => None,
            Self::Listed(_) => Some("not in enabled_ports of the control file".to_owned()),
        }
    }

    /// What is wrong with the file as a whole, and what that means.
    pub fn problem(&self) -> Option<String> {
        let problem = match self {
            Self::Missing => "missing",
            Self::Bad(problem) => problem,
            Self::Listed(content) if content.enabled.is_empty() => "no port is enabled",
            Self::Listed(_) => return None,
        };
        Some(format!(
            "{problem}: admission is closed, running streams go on; write {{\"enabled_ports\": [PORT, ...]}} or run `routerctl undrain`"
        ))
    }

    /// The entries that mean no backend, as a note; empty when there are none.
    pub fn note(&self, backends: &[BackendId]) -> String {
        let Self::Listed(content) = self else { return String::new() };
        let unknown: Vec<String> = content
            .enabled
            .iter()
            .filter(|entry| !backends.iter().any(|backend| entry.means(backend)))
            .map(|entry| match entry {
                Entry::Port(port) => port.to_string(),
                Entry::Backend(id) => id.to_string(),
            })
            .collect();
        let more = unknown.len().saturating_sub(MAX_SHOWN);
        let shown = unknown.get(..MAX_SHOWN).unwrap_or(&unknown).join(", ");
        match (unknown.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!("enabled_ports: no backend for {shown}; passed over"),
            (false, more) => format!("enabled_ports: no backend for {shown} and {more} more; passed over"),
        }
    }
}

impl Content {
    /// Reads a file's text.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let json: Json = serde_json::from_slice(bytes)
            .map_err(|error| format!("not JSON (line {}, column {})", error.line(), error.column()))?;
        let Json::Object(mut others) = json else {
            return Err(format!("an object expected, got {}", kind(&json)));
        };
        let list = match others.remove(FIELD) {
            Some(Json::Array(list)) => list,
            Some(other) => return Err(format!("{FIELD}: array expected, got {}; {ALLOWED}", kind(&other))),
            None => return Err(format!("{FIELD}: missing; {ALLOWED}")),
        };
        let mut enabled = Vec::with_capacity(list.len());
        for (at, json) in list.iter().enumerate() {
            let entry = match json {
                Json::Number(number) => {
                    let port = number.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
                    port.map(Entry::Port).ok_or_else(|| format!("{FIELD}[{at}]: not a port; {ALLOWED}"))
                }
                Json::String(text) => BackendId::new(text)
                    .map(Entry::Backend)
                    .map_err(|_| format!("{FIELD}[{at}]: not a host:port; {ALLOWED}")),
                other => Err(format!("{FIELD}[{at}]: port expected, got {}; {ALLOWED}", kind(other))),
            }?;
            if !enabled.contains(&entry) {
                enabled.push(entry);
            }
        }
        Ok(Self { enabled, others })
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
    fn only_listed_backends_are_admitted() {
        let reading = Reading::new(Ok(br#"{"enabled_ports": [19001, 19002, 19001]}"#.to_vec()));
        assert_eq!(reading.why_drained(&id("127.0.0.1:19001")), None);
        assert_eq!(reading.why_drained(&id("127.0.0.1:19003")).unwrap(), "not in enabled_ports of the control file");
        assert_eq!(reading.problem(), None);
        assert_eq!(reading.note(&[id("a:19001")]), "enabled_ports: no backend for 19002; passed over");
        assert_eq!(reading.note(&[id("a:19001"), id("a:19002")]), "");
    }

    #[test]
    fn whatever_says_nothing_closes_admission_and_says_why() {
        for (text, problem) in [
            ("", "not JSON (line 1, column 0)"),
            (r#"{"enabled_ports": [19001"#, "not JSON (line 1, column 24)"),
            ("[19001]", "an object expected, got array"),
            ("{}", "enabled_ports: missing; allowed: ports"),
            (r#"{"enabled_ports": 19001}"#, "enabled_ports: array expected, got number"),
            (r#"{"enabled_ports": [1, 0]}"#, "enabled_ports[1]: not a port"),
            (r#"{"enabled_ports": [65536]}"#, "enabled_ports[0]: not a port"),
            (r#"{"enabled_ports": [-1]}"#, "enabled_ports[0]: not a port"),
            (r#"{"enabled_ports": [true]}"#, "enabled_ports[0]: port expected, got boolean"),
            (r#"{"enabled_ports": ["19001"]}"#, "enabled_ports[0]: not a host:port"),
            (r#"{"enabled_ports": []}"#, "no port is enabled"),
        ] {
            let reading = Reading::new(Ok(text.as_bytes().to_vec()));
            assert!(reading.problem().unwrap().starts_with(problem), "{text}: {reading:?}");
            assert!(reading.why_drained(&id("a:1")).unwrap().ends_with("admission is closed"), "{text}");
        }
        let missing = Reading::new(Err(ReadProblem::Missing));
        assert_eq!(missing.why_drained(&id("a:1")).unwrap(), "the control file is missing: admission is closed");
        assert!(missing.problem().unwrap().starts_with("missing: admission is closed"));
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
