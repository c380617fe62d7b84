//! What a reading of the control file (gateway.md §9) means: only listed backends are admitted; an empty list, a missing
//! file and one that is not valid admit nobody. The format is [`router_policy::gateway_file::control_file`].

use router_policy::gateway_file::control_file::{Content, Entry};
use router_policy::ids::BackendId;

use super::bounded_read::ReadProblem;

/// Entries shown in one note.
const MAX_SHOWN: usize = 8;

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
                Err(problems) => Self::Bad(problems.join("; ")),
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
            Self::Listed(content) if content.enabled().is_empty() => closed("lists no port"),
            Self::Listed(content) if content.lists(backend) => None,
            Self::Listed(_) => Some("not in enabled_ports of the control file".to_owned()),
        }
    }

    /// What is wrong with the file as a whole, and what that means.
    pub fn problem(&self) -> Option<String> {
        let write = "write {\"enabled_ports\": [PORT, ...]} or run `routerctl undrain`";
        let (problem, advice) = match self {
            Self::Missing => ("missing", write),
            Self::Bad(problem) => (problem.as_str(), "fix it, or remove it and run `routerctl undrain`"),
            Self::Listed(content) if content.enabled().is_empty() => ("no port is enabled", write),
            Self::Listed(_) => return None,
        };
        Some(format!("{problem}: admission is closed, running streams go on; {advice}"))
    }

    /// The entries that mean no backend, as a note; empty when there are none.
    pub fn note(&self, backends: &[BackendId]) -> String {
        let Self::Listed(content) = self else { return String::new() };
        let unknown: Vec<String> = content.unmatched(backends).map(Entry::to_string).collect();
        let more = unknown.len().saturating_sub(MAX_SHOWN);
        let shown = unknown.get(..MAX_SHOWN).unwrap_or(&unknown).join(", ");
        match (unknown.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!("enabled_ports: no backend for {shown}; passed over"),
            (false, more) => format!("enabled_ports: no backend for {shown} and {more} more; passed over"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> BackendId {
        BackendId::new(text).unwrap()
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
            ("", "not JSON: line 1, column 0"),
            (r#"{"enabled_ports": [19001"#, "not JSON: line 1, column 24"),
            ("[19001]", "object expected, got list"),
            ("{}", "enabled_ports: missing; allowed: ports"),
            (r#"{"enabled_ports": 19001}"#, "enabled_ports: list expected, got number"),
            (r#"{"enabled_ports": [1, 0, 65536]}"#, "enabled_ports[1]: port expected, got 0; allowed"),
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
}
