//! One condition of a rule, and its operators (payloads.md §4.1, §4.3, §4.4).

use std::fmt;

use serde_json::{Map, Value as Json};

use super::InvalidRule;
use super::field::{self, Field};
use crate::option::kind::json_kind;

/// Conditions in conditions.
pub(super) const MAX_DEPTH: usize = 32;
/// Conditions in all rules of a route together.
pub(super) const MAX_NODES: usize = 1000;
/// Patterns in all rules of a route together: each takes memory, and reads its field from the start.
const MAX_PATTERNS: usize = 200;
/// Values of `in` and `nin`.
const MAX_VALUES: usize = 10_000;
/// Bytes of a text in a rule.
pub(super) const MAX_TEXT: usize = 4096;
/// The fields of a condition.
const KNOWN: [&str; 5] = ["field", "op", "value", "all", "any"];
/// Characters of what a message repeats.
const SHOWN: usize = 40;

/// What a condition asks of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the operator of that name, docs/reject-rules.md")]
pub enum Op {
    Gt,
    Ge,
    Lt,
    Le,
    Eq,
    Ne,
    In,
    Nin,
    Match,
    Contains,
    Prefix,
    Exists,
    Absent,
}

impl Op {
    /// Every operator with its name.
    const NAMES: [(&str, Op); 13] = [
        ("gt", Op::Gt),
        ("ge", Op::Ge),
        ("lt", Op::Lt),
        ("le", Op::Le),
        ("eq", Op::Eq),
        ("ne", Op::Ne),
        ("in", Op::In),
        ("nin", Op::Nin),
        ("match", Op::Match),
        ("contains", Op::Contains),
        ("prefix", Op::Prefix),
        ("exists", Op::Exists),
        ("absent", Op::Absent),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }

    /// Whether it compares with nothing.
    pub fn is_unary(self) -> bool {
        matches!(self, Op::Exists | Op::Absent)
    }

    /// The kind of value that it compares with, if this is none of it. With such a value it could never be true, or never
    /// false.
    fn expects(self, value: &Json) -> Option<&'static str> {
        let (is_it, expected) = match self {
            Op::Gt | Op::Ge | Op::Lt | Op::Le => (value.is_number(), "number"),
            Op::Match | Op::Contains | Op::Prefix => (value.is_string(), "string"),
            Op::In | Op::Nin => (value.is_array(), "list"),
            Op::Eq | Op::Ne => {
                (value.is_string() || value.is_number() || value.is_boolean(), "string, number or boolean")
            }
            Op::Exists | Op::Absent => return None,
        };
        (!is_it).then_some(expected)
    }
}

/// A condition as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Leaf(Leaf),
}

/// A condition on one field.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaf {
    pub(super) field: String,
    pub(super) op: Op,
    /// Null where the operator takes none.
    pub(super) value: Json,
}

impl Node {
    /// As a document states it.
    pub(super) fn to_fields(&self) -> Map<String, Json> {
        let list = |nodes: &[Node]| nodes.iter().map(|node| Json::Object(node.to_fields())).collect::<Json>();
        let mut fields = Map::new();
        match self {
            Node::All(nodes) => drop(fields.insert("all".to_owned(), list(nodes))),
            Node::Any(nodes) => drop(fields.insert("any".to_owned(), list(nodes))),
            Node::Leaf(leaf) => {
                fields.insert("field".to_owned(), Json::from(leaf.field.as_str()));
                fields.insert("op".to_owned(), Json::from(leaf.op.name()));
                if !leaf.op.is_unary() {
                    fields.insert("value".to_owned(), leaf.value.clone());
                }
            }
        }
        fields
    }
}

impl Node {
    /// Adds what is odd about its fields, each with its place.
    pub(super) fn doubts(&self, at: &str, doubts: &mut Vec<InvalidRule>) {
        let (word, nodes) = match self {
            Node::Leaf(leaf) => {
                let doubt = field::doubt(&leaf.field);
                doubts.extend(doubt.map(|problem| InvalidRule { node: format!("{at}.field"), problem }));
                return;
            }
            Node::All(nodes) => ("all", nodes),
            Node::Any(nodes) => ("any", nodes),
        };
        for (index, node) in nodes.iter().enumerate() {
            node.doubts(&format!("{at}.{word}[{index}]"), doubts);
        }
    }
}

/// The status page's form (payloads.md §9): `field op value`, `ALL(x & y)`, `ANY(x | y)`.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, sign, nodes) = match self {
            Node::Leaf(leaf) => {
                write!(f, "{} {}", leaf.field, leaf.op.name())?;
                return if leaf.op.is_unary() { Ok(()) } else { write!(f, " {}", Shown(&leaf.value)) };
            }
            Node::All(nodes) => ("ALL", " & ", nodes),
            Node::Any(nodes) => ("ANY", " | ", nodes),
        };
        write!(f, "{word}(")?;
        for (index, node) in nodes.iter().enumerate() {
            write!(f, "{}{node}", if index == 0 { "" } else { sign })?;
        }
        f.write_str(")")
    }
}

/// A value of a rule: texts bare, lists as `[a,b]`.
struct Shown<'a>(&'a Json);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Json::String(text) => f.write_str(text),
            Json::Array(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { "," }, Shown(item))?;
                }
                f.write_str("]")
            }
            other => write!(f, "{other}"),
        }
    }
}

/// Reads conditions and notes everything that is wrong with them. What returns `None` can't be used; what only should not be
/// so is noted, and read as the session router reads it.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) problems: Vec<InvalidRule>,
    nodes: usize,
    patterns: usize,
}

impl Reader {
    pub(super) fn note(&mut self, at: impl Into<String>, problem: impl Into<String>) {
        self.problems.push(InvalidRule { node: at.into(), problem: problem.into() });
    }

    /// Reads the condition that these fields state. `more` are fields that may stand beside it.
    pub(super) fn node(&mut self, at: &str, fields: &Map<String, Json>, more: &[&str], depth: usize) -> Option<Node> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            self.note(at, format!("conditions nested too deep; allowed: {MAX_DEPTH} levels"));
            return None;
        }
        if self.nodes > MAX_NODES {
            // Said once: all that follow are too many as well.
            if self.nodes == MAX_NODES + 1 {
                self.note(at, format!("too many conditions; allowed: {MAX_NODES} in all rules of a route"));
            }
            return None;
        }
        for key in fields.keys().filter(|key| !KNOWN.iter().chain(more).any(|known| known == key)) {
            let known = KNOWN.iter().chain(more).copied().collect::<Vec<_>>().join(", ");
            self.note(format!("{at}.{}", short(key)), format!("unknown field; allowed: {known}"));
        }
        let group = ["all", "any"].into_iter().find_map(|name| Some((name, fields.get(name)?)));
        let Some((name, list)) = group else { return self.leaf(at, fields) };
        for other in ["any", "field", "op", "value"].into_iter().filter(|other| *other != name) {
            if fields.contains_key(other) {
                self.note(format!("{at}.{other}"), format!("no place beside `{name}`: one condition has one of them"));
            }
        }
        let nodes = self.group(&format!("{at}.{name}"), list, depth)?;
        Some(if name == "all" { Node::All(nodes) } else { Node::Any(nodes) })
    }

    fn group(&mut self, at: &str, list: &Json, depth: usize) -> Option<Vec<Node>> {
        let Json::Array(items) = list else {
            self.note(at, format!("list of conditions expected, got {}", json_kind(list)));
            return None;
        };
        if items.is_empty() {
            self.note(at, "empty list; allowed: one condition or more");
            return None;
        }
        let mut nodes = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = format!("{at}[{index}]");
            if let Json::Object(fields) = item {
                nodes.extend(self.node(&place, fields, &[], depth + 1));
            } else {
                self.note(place, format!("condition expected, an object, got {}", json_kind(item)));
            }
            if self.nodes > MAX_NODES {
                return None;
            }
        }
        // One that can't be used spoils the rule; the others were read for their own mistakes.
        (nodes.len() == items.len()).then_some(nodes)
    }

    fn leaf(&mut self, at: &str, fields: &Map<String, Json>) -> Option<Node> {
        let field = self.field(at, fields);
        let op = self.op(at, fields);
        let value = self.value(at, op?, fields.get("value"));
        Some(Node::Leaf(Leaf { field: field?, op: op?, value: value? }))
    }

    fn field(&mut self, at: &str, fields: &Map<String, Json>) -> Option<String> {
        let place = format!("{at}.field");
        let Some(json) = fields.get("field") else {
            // Neither this nor a list of conditions: say what a condition is.
            self.note(place, "missing; a condition has a field and an op, or `all`, or `any`");
            return None;
        };
        let text = self.text(&place, json)?;
        match Field::parse(text) {
            Ok((field, problem)) => {
                if let Some(problem) = problem {
                    self.note(place, problem);
                }
                Some(field.to_string())
            }
            Err(problem) => {
                self.note(place, problem);
                None
            }
        }
    }

    fn op(&mut self, at: &str, fields: &Map<String, Json>) -> Option<Op> {
        let place = format!("{at}.op");
        let names = || Op::NAMES.map(|(name, _)| name).join(", ");
        match fields.get("op") {
            None => self.note(place, format!("missing; allowed: {}", names())),
            Some(Json::String(text)) => match Op::NAMES.iter().find(|(name, _)| name == text) {
                Some((_, op)) => return Some(*op),
                None => self.note(place, format!("unknown operator '{}'; allowed: {}", short(text), names())),
            },
            Some(other) => {
                self.note(place, format!("word expected, got {}; allowed: {}", json_kind(other), names()));
            }
        }
        None
    }

    fn value(&mut self, at: &str, op: Op, json: Option<&Json>) -> Option<Json> {
        let place = format!("{at}.value");
        let name = op.name();
        if op.is_unary() {
            if json.is_some() {
                self.note(place, format!("{name} takes no value"));
            }
            return Some(Json::Null);
        }
        let Some(json) = json else {
            self.note(place, format!("missing; {name} compares with one"));
            return None;
        };
        if let Some(expected) = op.expects(json) {
            self.note(place, format!("{expected} expected by {name}, got {}", json_kind(json)));
            return None;
        }
        self.patterns += usize::from(op == Op::Match);
        if self.patterns > MAX_PATTERNS {
            self.note(place, format!("too many patterns; allowed: {MAX_PATTERNS} in all rules of a route"));
            return None;
        }
        match json {
            Json::String(text) if text.len() > MAX_TEXT => {
                self.note(place, format!("{} bytes; allowed: {MAX_TEXT}", text.len()));
                None
            }
            Json::Array(items) => self.list(&place, items).then(|| json.clone()),
            _ => Some(json.clone()),
        }
    }

    fn list(&mut self, at: &str, items: &[Json]) -> bool {
        if items.len() > MAX_VALUES {
            self.note(at, format!("{} values; allowed: {MAX_VALUES}", items.len()));
            return false;
        }
        let mut is_good = true;
        for (index, item) in items.iter().enumerate() {
            match item {
                Json::Array(_) | Json::Object(_) => {
                    let kind = json_kind(item);
                    self.note(
                        format!("{at}[{index}]"),
                        format!("string, number, boolean or null expected, got {kind}"),
                    );
                    is_good = false;
                }
                Json::String(text) if text.len() > MAX_TEXT => {
                    self.note(format!("{at}[{index}]"), format!("{} bytes; allowed: {MAX_TEXT}", text.len()));
                    is_good = false;
                }
                _ => {}
            }
        }
        is_good
    }

    /// A text that is not empty.
    fn text<'j>(&mut self, at: &str, json: &'j Json) -> Option<&'j str> {
        match json {
            Json::String(text) if text.is_empty() => self.note(at, "empty"),
            Json::String(text) => return Some(text),
            other => self.note(at, format!("string expected, got {}", json_kind(other))),
        }
        None
    }
}

/// What a message can repeat of a document: some characters on one line.
pub(super) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}
