//! Backends on a command line: `HOST:PORT`, what else is stated of them, and ports of this machine. Shared by `route add` and
//! `up`.

use clap::Args;
use router_policy::ids::BackendId;
use router_policy::route::validate::parse_backend;
use serde_json::{Map, Value as Json, json};

/// What may be stated after the address. All but the last are fields of a document's backend.
const PARTS: &str = "name, max_concurrency, health_path, context_limit, dp_size, priority, model";

/// `--backend` and `--backend-port`.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BackendList {
    /// A backend's address. Repeat for several. More may be stated after commas: priority (its tier, the larger is preferred),
    /// model (repeat for several), `max_concurrency`, name, `health_path`, `context_limit`, `dp_size`; for instance
    /// `10.0.0.1:8000,priority=10,model=m1`.
    #[arg(long = "backend", value_name = "HOST:PORT[,PART=VALUE]...", value_parser = backend)]
    stated: Vec<Backend>,
    /// A backend on 127.0.0.1. Repeat for several.
    #[arg(long = "backend-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
}

impl BackendList {
    /// All of them.
    pub(crate) fn backends(&self) -> Vec<Backend> {
        self.stated.iter().cloned().chain(self.ports.iter().map(|port| Backend::local(*port))).collect()
    }
}

/// A backend and what is stated of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    /// `host:port`.
    pub(crate) address: String,
    /// Fields of a document, without the address.
    pub(crate) fields: Map<String, Json>,
}

impl Backend {
    /// One of this machine.
    pub(crate) fn local(port: u16) -> Self {
        Self::at(format!("127.0.0.1:{port}"))
    }

    /// One of which nothing else is stated.
    pub(crate) fn at(address: String) -> Self {
        Self { address, fields: Map::new() }
    }

    /// As a document has it; what is stated goes over what is `known` of it.
    pub(crate) fn document(&self, known: Option<&Json>) -> Json {
        let known = known.filter(|known| known.is_object());
        if self.fields.is_empty() {
            return known.cloned().unwrap_or_else(|| json!(self.address));
        }
        let mut fields = known.and_then(Json::as_object).cloned().unwrap_or_default();
        fields.insert("address".to_owned(), json!(self.address));
        fields.extend(self.fields.clone());
        Json::Object(fields)
    }
}

/// Reads `HOST:PORT[,PART=VALUE]...`. A complaint names the part.
fn backend(text: &str) -> Result<Backend, String> {
    let mut parts = text.split(',');
    let address = parts.next().unwrap_or_default();
    BackendId::new(address).map_err(|error| error.to_string())?;
    let mut backend = Backend::at(address.to_owned());
    let mut models: Vec<&str> = Vec::new();
    for part in parts {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("part '{part}': PART=VALUE expected; allowed: {PARTS}"))?;
        // The flags of `backend add` are written with dashes.
        let name = name.trim().replace('-', "_");
        if name == "model" {
            models.push(value);
        } else if !PARTS.split(", ").any(|known| known == name) {
            return Err(format!("part '{part}': unknown; allowed: {PARTS}"));
        } else if backend.fields.insert(name, json!(value)).is_some() {
            return Err(format!("part '{part}': stated twice"));
        }
    }
    if !models.is_empty() {
        backend.fields.insert("models".to_owned(), json!(models));
    }
    let complaints = parse_backend("", &backend.document(None)).err().unwrap_or_default();
    let complaint = |one: &router_policy::route::Complaint| {
        let field = one.field.trim_start_matches('.');
        format!("part {}: {}", if field == "models" { "model" } else { field }, one.problem)
    };
    match complaints.0.as_slice() {
        [] => Ok(backend),
        all => Err(all.iter().map(complaint).collect::<Vec<_>>().join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_parts() {
        assert_eq!(backend("gpu:80").unwrap(), Backend::at("gpu:80".to_owned()));
        assert_eq!(backend("gpu:80").unwrap().document(None), json!("gpu:80"));
        let full = "[::1]:80,priority=-0.5,model=m1,model=a=b,max-concurrency=8,name=one,health_path=/h,context_limit=9,dp_size=2";
        assert_eq!(
            backend(full).unwrap().document(None),
            json!({"address": "[::1]:80", "priority": "-0.5", "models": ["m1", "a=b"], "max_concurrency": "8",
                "name": "one", "health_path": "/h", "context_limit": "9", "dp_size": "2"})
        );
    }

    #[test]
    fn what_is_stated_goes_over_what_is_known() {
        let known = json!({"address": "gpu:80", "name": "one", "priority": 1});
        assert_eq!(backend("gpu:80").unwrap().document(Some(&known)), known);
        assert_eq!(
            backend("gpu:80,priority=2").unwrap().document(Some(&known)),
            json!({"address": "gpu:80", "name": "one", "priority": "2"})
        );
    }

    #[test]
    fn a_complaint_names_the_part() {
        let rows = [
            ("gpu", "allowed: host:port"),
            ("gpu:80,", "part '': PART=VALUE expected; allowed: name, max_concurrency"),
            ("gpu:80,m1", "part 'm1': PART=VALUE expected"),
            ("gpu:80,tier=1", "part 'tier=1': unknown; allowed: name, max_concurrency"),
            ("gpu:80,models=m1", "part 'models=m1': unknown; allowed: "),
            ("gpu:80,priority=high", "part priority: number expected"),
            ("gpu:80,priority=1,priority=2", "part 'priority=2': stated twice"),
            ("gpu:80,max_concurrency=0", "part max_concurrency: integer expected, got string '0'; allowed: 1..=100000"),
            ("gpu:80,model=", "part model: a model's name has 1 to 256 characters"),
            (
                "gpu:80,name=a b,dp_size=x",
                "part dp_size: integer expected, got string 'x'; allowed: 1..=4096; part name: ",
            ),
        ];
        for (text, expected) in rows {
            let problem = backend(text).unwrap_err();
            assert!(problem.starts_with(expected), "{text}: {problem}");
        }
    }
}
