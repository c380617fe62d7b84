//! Route documents from files: YAML or JSON, with the line of every field, so that a complaint can be found.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;

use router_policy::route::validate::doubts;
use router_policy::route::{Complaints, parse_document};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json, json};
use serde_saphyr::Spanned;

use crate::args::Assignment;
use crate::failure::{Failure, Kind};

/// Larger files are refused: no route document is that long.
const MAX_BYTES: u64 = 16 << 20;

/// A document and where its fields stand.
#[derive(Debug)]
pub(crate) struct Document {
    /// The file's name.
    source: String,
    /// What it says.
    pub(crate) json: Json,
    /// Line and column by field path, as complaints name it.
    places: BTreeMap<String, (u64, u64)>,
}

impl Document {
    /// Reads a file, or stdin for `-`.
    pub(crate) fn read(file: &str) -> Result<Self, Failure> {
        let source = if file == "-" { "stdin" } else { file };
        let complain = |problem: &str| Failure::new(Kind::Document, format!("{source}: {problem}"));
        let mut text = String::new();
        let read = if file == "-" {
            std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)
        } else {
            let opened = std::fs::File::open(file);
            opened.and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        };
        let length = read.map_err(|error| complain(&error.to_string()))?;
        if length as u64 > MAX_BYTES {
            return Err(complain("larger than 16 MiB"));
        }
        Self::parse(source, &text)
    }

    /// Reads a text. JSON is YAML too, and is read as such for its lines; a `.json` file must be JSON all the same.
    pub(crate) fn parse(source: &str, text: &str) -> Result<Self, Failure> {
        let is_json = std::path::Path::new(source).extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
        let json = is_json.then(|| serde_json::from_str::<Json>(text));
        if let Some(Err(error)) = json {
            let problem = error.to_string();
            let problem = problem.split(" at line ").next().unwrap_or_default();
            let message = format!("{source}:{}:{}: {problem}", error.line(), error.column());
            return Err(Failure::new(Kind::Document, message));
        }
        let node = match serde_saphyr::from_str::<Spanned<Node>>(text) {
            Ok(node) => node,
            Err(error) => return Err(Failure::new(Kind::Document, yaml_complaint(source, &error))),
        };
        let mut places = BTreeMap::new();
        note_places(&node, &mut places);
        Ok(Self { source: source.to_owned(), json: node.value.json(), places })
    }

    /// Checks it with the validator that the control plane uses too. What is odd and no mistake for sure comes back, a line
    /// each.
    pub(crate) fn check(&self) -> Result<Vec<String>, Failure> {
        let routes =
            parse_document(&self.json).map_err(|complaints| Failure::new(Kind::Document, self.place(&complaints)))?;
        Ok(routes.iter().flat_map(|route| self.lines(&doubts(route))).collect())
    }

    /// Each complaint with its file and line in front.
    pub(crate) fn place(&self, complaints: &Complaints) -> String {
        self.lines(complaints).join("\n")
    }

    /// The same, not joined.
    pub(crate) fn lines(&self, complaints: &Complaints) -> Vec<String> {
        let line = |complaint: &router_policy::route::Complaint| {
            format!("{}: {}: {}", self.label(&complaint.field), complaint.field, complaint.problem)
        };
        complaints.0.iter().map(line).collect()
    }

    /// `file:line:column` of a field, or of the nearest thing around it.
    fn label(&self, field: &str) -> String {
        let mut path = field;
        loop {
            if let Some((line, column)) = self.places.get(path) {
                return format!("{}:{line}:{column}", self.source);
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return self.source.clone(),
            }
        }
    }
}

/// Puts the file and line in front of complaints that the control plane made.
pub(crate) fn locate(document: &Document, failure: &Failure) -> Failure {
    let line = |line: &str| {
        let field = line.split_once(": ").map_or("", |(field, _)| field);
        let is_field = document.places.keys().any(|path| field == path || field.starts_with(&format!("{path}.")));
        if is_field { format!("{}: {line}", document.label(field)) } else { line.to_owned() }
    };
    let message = failure.message.lines().map(line).collect::<Vec<_>>().join("\n");
    Failure { kind: failure.kind, message }
}

/// Options of a command line as a document states them.
pub(crate) fn options_json(options: &[Assignment]) -> Json {
    options.iter().map(|one| (one.option.clone(), json!(one.value))).collect::<Map<_, _>>().into()
}

fn yaml_complaint(source: &str, error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    match error.location() {
        Some(place) => format!("{source}:{}:{}: {}", place.line(), place.column(), without_place(first)),
        None => format!("{source}: {first}"),
    }
}

/// Takes the place off the end of a message, or off its start: it stands in front already.
fn without_place(message: &str) -> &str {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let message = match message.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") => rest,
        _ => message,
    };
    // The library's advice to programmers.
    message.split(", set ").next().unwrap_or(message)
}

/// Walks the document as the validator names its fields.
fn note_places(document: &Spanned<Node>, places: &mut BTreeMap<String, (u64, u64)>) {
    let Node::Map(fields) = &document.value else {
        // Rules alone.
        return note_within("", document, places);
    };
    note_rules("", fields, places);
    let routes = fields.iter().find(|(key, _)| key.value == "routes");
    note_fields("", fields, places);
    match routes.map(|(_, node)| &node.value) {
        None => {
            note_route("route", document, places);
            // What only the whole route shows is told by its name.
            if let Some(name) = document.value.text_at("name") {
                note_route(&format!("routes.{name}"), document, places);
            }
        }
        Some(Node::List(routes)) => {
            for (index, route) in routes.iter().enumerate() {
                note_route(&format!("routes[{index}]"), route, places);
                if let Some(name) = route.value.text_at("name") {
                    note_route(&format!("routes.{name}"), route, places);
                }
            }
        }
        Some(_) => {}
    }
}

fn note_route(path: &str, route: &Spanned<Node>, places: &mut BTreeMap<String, (u64, u64)>) {
    note(path, route, places);
    let Node::Map(fields) = &route.value else { return };
    note_fields(&format!("{path}."), fields, places);
    for (key, node) in fields {
        match (key.value.as_str(), &node.value) {
            ("options", Node::Map(options)) => {
                note_fields(&format!("{path}.options."), options, places);
                note_rules(&format!("{path}.options."), options, places);
            }
            (list @ ("backends" | "peers"), Node::List(backends)) => {
                note_backends(&format!("{path}.{list}"), backends, places);
            }
            (map @ ("backends_by_model" | "peers_by_model"), Node::Map(pools)) => {
                note_fields(&format!("{path}.{map}."), pools, places);
                for (model, pool) in pools {
                    if let Node::List(backends) = &pool.value {
                        note_backends(&format!("{path}.{map}.{}", model.value), backends, places);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Rules hold rules: every place in them is noted.
fn note_rules(prefix: &str, fields: &[Field], places: &mut BTreeMap<String, (u64, u64)>) {
    for (key, node) in fields.iter().filter(|(key, _)| key.value == "reject_rules") {
        note_within(&format!("{prefix}{}", key.value), node, places);
    }
}

fn note_within(path: &str, node: &Spanned<Node>, places: &mut BTreeMap<String, (u64, u64)>) {
    match &node.value {
        Node::Plain(_) => {}
        Node::List(items) => {
            for (index, item) in items.iter().enumerate() {
                let place = format!("{path}[{index}]");
                note(&place, item, places);
                note_within(&place, item, places);
            }
        }
        Node::Map(fields) => {
            note_fields(&format!("{path}."), fields, places);
            for (key, node) in fields {
                note_within(&format!("{path}.{}", key.value), node, places);
            }
        }
    }
}

fn note_backends(path: &str, backends: &[Spanned<Node>], places: &mut BTreeMap<String, (u64, u64)>) {
    for (index, backend) in backends.iter().enumerate() {
        note_backend(&format!("{path}[{index}]"), backend, places);
        if let Some(address) = backend.value.text_at("address") {
            note_backend(&format!("{path}[{address}]"), backend, places);
        }
    }
}

fn note_backend(path: &str, backend: &Spanned<Node>, places: &mut BTreeMap<String, (u64, u64)>) {
    note(path, backend, places);
    if let Node::Map(fields) = &backend.value {
        note_fields(&format!("{path}."), fields, places);
    }
}

fn note_fields(prefix: &str, fields: &[Field], places: &mut BTreeMap<String, (u64, u64)>) {
    for (key, _) in fields {
        places.insert(format!("{prefix}{}", key.value), (key.referenced.line(), key.referenced.column()));
    }
}

/// The later of two things with one name wins: it is the duplicate.
fn note(path: &str, node: &Spanned<Node>, places: &mut BTreeMap<String, (u64, u64)>) {
    places.insert(path.to_owned(), (node.referenced.line(), node.referenced.column()));
}

type Field = (Spanned<String>, Spanned<Node>);

/// A document with places.
#[derive(Debug)]
enum Node {
    Plain(Json),
    List(Vec<Spanned<Node>>),
    Map(Vec<Field>),
}

impl Node {
    fn json(&self) -> Json {
        match self {
            Self::Plain(json) => json.clone(),
            Self::List(items) => items.iter().map(|item| item.value.json()).collect(),
            Self::Map(fields) => {
                fields.iter().map(|(key, node)| (key.value.clone(), node.value.json())).collect::<Map<_, _>>().into()
            }
        }
    }

    /// The text of a field, or the text itself: a backend may be its address alone.
    fn text_at(&self, key: &str) -> Option<&str> {
        match self {
            Self::Plain(json) => json.as_str(),
            Self::List(_) => None,
            Self::Map(fields) => match &fields.iter().find(|(name, _)| name.value == key)?.1.value {
                Self::Plain(json) => json.as_str(),
                _ => None,
            },
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has too")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Plain(json!(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Plain(json!(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Plain(json!(number)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Plain(json!(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Plain(json!(text)))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Json::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Plain(Json::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(field) = fields.next_entry()? {
            map.push(field);
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests;
