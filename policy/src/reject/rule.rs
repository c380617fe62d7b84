//! Rules as a route document states them (payloads.md §4.1, §4.4).
//!
//! A new document is read strictly: everything that is wrong is named, and with anything wrong there are no rules. One that is
//! stored already is read as the session router reads it: what can be used is used, and the rest is named all the same.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value as Json};

use super::evaluate::Compiled;
use super::node::{Node, Reader};
use super::{InvalidRule, MatchSyntax};
use crate::option::kind::json_kind;

/// Statuses of refusals.
const STATUSES: std::ops::RangeInclusive<u64> = 400..=599;
/// Characters of a rule's name.
const MAX_NAME: usize = 64;
/// Characters of a rule's message.
const MAX_MESSAGE: usize = 1024;
/// What a rule may have beside its condition.
const OWN_FIELDS: [&str; 3] = ["name", "status", "message"];

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub(super) name: String,
    pub(super) status: Option<u16>,
    pub(super) message: Option<String>,
    pub(super) node: Node,
    /// As written, or as it was understood when that differs.
    written: Json,
}

impl Rule {
    /// Its name: its own, or `rule` and its place in the list, from 1.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The HTTP status that it states.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Its condition as the status page tells it (payloads.md §9): `field op value`, `ALL(x & y)`, `ANY(x | y)`.
    pub fn condition(&self) -> String {
        self.node.to_string()
    }
}

/// Rules as written, valid but for their patterns, whose syntax is another option's.
#[derive(Debug, Clone, Default)]
pub struct RuleList {
    /// Shared by all copies.
    rules: Arc<Vec<Rule>>,
    /// Made once for all copies of this list, as options are read again and again: with regular expressions, with Lua patterns.
    compiled: Arc<[OnceLock<Compiled>; 2]>,
}

impl PartialEq for RuleList {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl RuleList {
    /// Reads the rules of a new document.
    ///
    /// # Errors
    /// Everything that is wrong, in order of place. Then nothing of the list is used.
    pub fn parse(json: &Json) -> Result<Self, Vec<InvalidRule>> {
        let (rules, problems) = Self::parse_stored(json);
        if problems.is_empty() { Ok(rules) } else { Err(problems) }
    }

    /// Reads the rules of a stored document: a bad one is left out alone, a bad status or name is as if it were not there.
    pub fn parse_stored(json: &Json) -> (Self, Vec<InvalidRule>) {
        let mut reader = Reader::default();
        let mut rules = Vec::new();
        match json {
            Json::Null => {}
            Json::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    rules.extend(read_rule(&mut reader, index, item));
                }
            }
            other => reader.note("", format!("list of rules expected, got {}", json_kind(other))),
        }
        (Self { rules: Arc::new(rules), compiled: Arc::default() }, reader.problems)
    }

    /// Takes out the rules with a pattern that is none, for a stored document, and says which.
    pub fn keep_valid(&mut self, syntax: MatchSyntax) -> Vec<InvalidRule> {
        let problems = self.compiled(syntax).problems.clone();
        if !problems.is_empty() {
            let mut index = 0;
            let rules = Arc::make_mut(&mut self.rules);
            rules.retain(|_| {
                let place = format!("[{index}]");
                index += 1;
                !problems.iter().any(|problem| is_within(&problem.node, &place))
            });
            for rule in rules {
                rule.written = rule.understood();
            }
            self.compiled = Arc::default();
        }
        problems
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is most likely a slip of the pen although it can be meant: names close to a measure's, places in lists. In order of
    /// place.
    pub fn doubts(&self) -> Vec<InvalidRule> {
        let mut doubts = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            rule.node.doubts(&format!("[{index}]"), &mut doubts);
        }
        doubts
    }

    /// As written; what [`Self::parse`] reads as these rules.
    pub fn to_json(&self) -> Json {
        self.rules.iter().map(|rule| rule.written.clone()).collect()
    }

    pub(super) fn compiled(&self, syntax: MatchSyntax) -> &Compiled {
        let [regex, lua] = &*self.compiled;
        let slot = if syntax == MatchSyntax::Lua { lua } else { regex };
        slot.get_or_init(|| Compiled::new(&self.rules, syntax))
    }
}

/// Whether a place is this rule or lies in it.
fn is_within(node: &str, rule: &str) -> bool {
    node.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Rule {
    /// What [`RuleList::parse`] reads as this rule at any place of a list.
    fn understood(&self) -> Json {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), Json::from(self.name.as_str()));
        fields.extend(self.node.to_fields());
        fields.extend(self.status.map(|status| ("status".to_owned(), Json::from(status))));
        fields.extend(self.message.as_deref().map(|message| ("message".to_owned(), Json::from(message))));
        Json::Object(fields)
    }
}

fn read_rule(reader: &mut Reader, index: usize, item: &Json) -> Option<Rule> {
    let at = format!("[{index}]");
    let Json::Object(fields) = item else {
        reader.note(at, format!("rule expected, an object, got {}", json_kind(item)));
        return None;
    };
    let before = reader.problems.len();
    let node = reader.node(&at, fields, &OWN_FIELDS, 1);
    let name = read_text(reader, &at, fields, "name", MAX_NAME).unwrap_or_else(|| format!("rule{}", index + 1));
    let message = read_text(reader, &at, fields, "message", MAX_MESSAGE);
    let status = read_status(reader, &at, fields);
    let mut rule = Rule { name, status, message, node: node?, written: Json::Null };
    // A rule left out before this one would change its place, and with it its name.
    let is_as_written = before == 0 && reader.problems.is_empty();
    rule.written = if is_as_written { item.clone() } else { rule.understood() };
    Some(rule)
}

fn read_text(reader: &mut Reader, at: &str, fields: &Map<String, Json>, name: &str, longest: usize) -> Option<String> {
    let problem = match fields.get(name)? {
        Json::Null => return None,
        Json::String(text) => {
            let length = text.chars().count();
            if (1..=longest).contains(&length) && !text.chars().any(char::is_control) {
                return Some(text.clone());
            }
            format!("{length} characters; allowed: 1..={longest}, no control characters")
        }
        other => format!("string expected, got {}", json_kind(other)),
    };
    reader.note(format!("{at}.{name}"), problem);
    None
}

fn read_status(reader: &mut Reader, at: &str, fields: &Map<String, Json>) -> Option<u16> {
    let (least, most) = (STATUSES.start(), STATUSES.end());
    let problem = match fields.get("status")? {
        Json::Null => return None,
        Json::Number(number) => match number.as_u64().filter(|status| STATUSES.contains(status)) {
            Some(status) => return u16::try_from(status).ok(),
            None => format!("{number} is no status of a refusal; allowed: {least}..={most}"),
        },
        other => format!("number expected, got {}; allowed: {least}..={most}", json_kind(other)),
    };
    reader.note(format!("{at}.status"), problem);
    None
}
