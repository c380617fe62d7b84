//! A route's rules, ready to be asked (payloads.md §4.3, §4.5).

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use memchr::memmem::Finder;
use regex::bytes::Regex;
use serde_json::Value as Json;

use super::field::{Field, Found, Plan};
use super::node::{Leaf, Node, Op};
use super::number::Number;
use super::rule::{Rule, RuleList};
use super::{InvalidRule, MatchSyntax, pattern};

/// A route's rules, ready to be asked. Cheap to copy.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    syntax: MatchSyntax,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    plan: Plan,
    rules: Vec<Ready>,
}

/// A rule and its condition, ready.
#[derive(Debug)]
struct Ready {
    rule: Rule,
    condition: Condition,
}

/// A condition, ready.
#[derive(Debug)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// Of the field in this slot.
    Leaf(usize, Check),
}

/// What is asked of a field. Only equal kinds compare: nothing is made into something else.
#[derive(Debug)]
pub(super) enum Check {
    /// In one of these orders to the number.
    Order(Number<'static>, &'static [Ordering]),
    /// One of these values, or none of them.
    OneOf(Values, bool),
    Match(Regex),
    Contains(Box<Finder<'static>>),
    Prefix(Vec<u8>),
    /// There, or not there.
    Exists(bool),
}

/// Scalars to be found in.
#[derive(Debug, Default)]
pub(super) struct Values {
    texts: HashSet<Vec<u8>>,
    /// Bytes of the longest text.
    longest: usize,
    /// In order.
    numbers: Vec<Number<'static>>,
    has_true: bool,
    has_false: bool,
    has_null: bool,
}

/// The rule that a request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Its name.
    pub rule: &'a str,
    /// Its own status.
    pub status: Option<u16>,
    /// Its own message.
    pub message: Option<&'a str>,
}

/// A body that rules can't be asked about: it is no JSON object or list in UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is no JSON object or list in UTF-8")]
pub struct Unreadable;

/// What became of a list of rules.
#[derive(Debug)]
pub(super) struct Compiled {
    /// Those that can be.
    pub(super) set: RuleSet,
    /// Patterns that are none.
    pub(super) problems: Vec<InvalidRule>,
}

impl Compiled {
    pub(super) fn new(rules: &[Rule], syntax: MatchSyntax) -> Self {
        let (mut inner, mut problems) = (Inner::default(), Vec::new());
        for (index, rule) in rules.iter().enumerate() {
            let mut builder = Builder { plan: &mut inner.plan, syntax, problems: &mut problems };
            if let Some(condition) = builder.condition(&rule.node, &format!("[{index}]")) {
                inner.rules.push(Ready { rule: rule.clone(), condition });
            }
        }
        Self { set: RuleSet { syntax, inner: Arc::new(inner) }, problems }
    }
}

/// Rules are the same when they were written the same.
impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        let rules = |set: &Self| set.inner.rules.len();
        let same = |(mine, theirs): (&Ready, &Ready)| mine.rule == theirs.rule;
        self.syntax == other.syntax
            && rules(self) == rules(other)
            && self.inner.rules.iter().zip(&other.inner.rules).all(same)
    }
}

impl RuleSet {
    /// Makes rules ready.
    ///
    /// # Errors
    /// Each pattern that is none in this syntax, in order of place.
    pub fn compile(rules: &RuleList, syntax: MatchSyntax) -> Result<Self, Vec<InvalidRule>> {
        let compiled = rules.compiled(syntax);
        if compiled.problems.is_empty() { Ok(compiled.set.clone()) } else { Err(compiled.problems.clone()) }
    }

    /// Makes ready what can be, and leaves out the rest.
    pub fn of_valid(rules: &RuleList, syntax: MatchSyntax) -> Self {
        rules.compiled(syntax).set.clone()
    }

    /// What the patterns are.
    pub fn syntax(&self) -> MatchSyntax {
        self.syntax
    }

    /// Whether it is a copy of the other, or the other of it.
    pub fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.inner.rules.is_empty()
    }

    /// The rules, in order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.inner.rules.iter().map(|ready| &ready.rule)
    }

    /// The first rule that a body meets. One that is no JSON object or list in UTF-8 meets none; a list has no fields.
    ///
    /// Takes time linear in the body, once for the fields of all rules, and then for each condition what it reads of its own
    /// field.
    pub fn judge(&self, body: &[u8]) -> Option<Verdict<'_>> {
        self.try_judge(body).ok().flatten()
    }

    /// The same, telling a body that no rule is met by from one that can't be read.
    ///
    /// # Errors
    /// The body is no JSON object or list in UTF-8. A byte order mark before it is passed over.
    pub fn try_judge(&self, body: &[u8]) -> Result<Option<Verdict<'_>>, Unreadable> {
        if self.is_empty() {
            return Ok(None);
        }
        let found = self.inner.plan.find(body).ok_or(Unreadable)?;
        Ok(self.inner.rules.iter().find(|ready| ready.condition.is_met(&found)).map(|met| met.rule.verdict()))
    }

    pub(super) fn found<'b>(&self, body: &'b [u8]) -> Option<Vec<Found<'b>>> {
        self.inner.plan.find(body)
    }

    pub(super) fn conditions(&self) -> impl Iterator<Item = (&Rule, &Condition)> {
        self.inner.rules.iter().map(|ready| (&ready.rule, &ready.condition))
    }
}

impl Rule {
    pub(super) fn verdict(&self) -> Verdict<'_> {
        Verdict { rule: &self.name, status: self.status, message: self.message.as_deref() }
    }
}

impl Condition {
    pub(super) fn is_met(&self, found: &[Found<'_>]) -> bool {
        match self {
            Condition::All(all) => all.iter().all(|one| one.is_met(found)),
            Condition::Any(any) => any.iter().any(|one| one.is_met(found)),
            Condition::Leaf(slot, check) => check.is_met(found.get(*slot).unwrap_or(&Found::Absent)),
        }
    }
}

impl Check {
    fn is_met(&self, found: &Found<'_>) -> bool {
        match (self, found) {
            (Check::Exists(is_there), found) => *is_there != matches!(found, Found::Absent),
            (Check::OneOf(values, is_in), found) => *is_in == values.contain(found),
            (Check::Order(limit, orders), Found::Number(number, _)) => orders.contains(&number.compare(limit)),
            (Check::Match(regex), Found::Text(text)) => regex.is_match(text.bytes()),
            (Check::Contains(part), Found::Text(text)) => part.find(text.bytes()).is_some(),
            (Check::Prefix(start), Found::Text(text)) => text.bytes().starts_with(start),
            _ => false,
        }
    }
}

impl Values {
    fn of(items: &[Json]) -> Self {
        let mut values = Self::default();
        for item in items {
            match item {
                Json::String(text) => {
                    values.longest = values.longest.max(text.len());
                    values.texts.insert(text.clone().into_bytes());
                }
                Json::Number(number) => values.numbers.push(owned(number)),
                Json::Bool(true) => values.has_true = true,
                Json::Bool(false) => values.has_false = true,
                Json::Null => values.has_null = true,
                // Refused when the rule was read.
                Json::Array(_) | Json::Object(_) => {}
            }
        }
        values.numbers.sort_by(Number::compare);
        values
    }

    fn contain(&self, found: &Found<'_>) -> bool {
        match found {
            Found::Absent | Found::Structure(_) => false,
            Found::Null => self.has_null,
            Found::Bool(flag) => {
                if *flag {
                    self.has_true
                } else {
                    self.has_false
                }
            }
            Found::Number(number, _) => self.numbers.binary_search_by(|one| one.compare(number)).is_ok(),
            // A long text is not hashed for nothing.
            Found::Text(text) => {
                !self.texts.is_empty() && text.bytes().len() <= self.longest && self.texts.contains(text.bytes())
            }
        }
    }
}

/// Makes conditions ready; `None` when a pattern is none, which is noted.
struct Builder<'c> {
    plan: &'c mut Plan,
    syntax: MatchSyntax,
    problems: &'c mut Vec<InvalidRule>,
}

impl Builder<'_> {
    fn condition(&mut self, node: &Node, at: &str) -> Option<Condition> {
        Some(match node {
            Node::All(nodes) => Condition::All(self.group(nodes, at, "all")?),
            Node::Any(nodes) => Condition::Any(self.group(nodes, at, "any")?),
            Node::Leaf(leaf) => {
                let check = self.check(leaf, at)?;
                let (field, _) = Field::parse(&leaf.field).ok()?;
                Condition::Leaf(self.plan.slot(&field), check)
            }
        })
    }

    fn group(&mut self, nodes: &[Node], at: &str, name: &str) -> Option<Vec<Condition>> {
        let each = (0..).zip(nodes).map(|(index, node)| self.condition(node, &format!("{at}.{name}[{index}]")));
        // All are read, so that each bad pattern is noted.
        let conditions: Vec<Option<Condition>> = each.collect();
        conditions.into_iter().collect()
    }

    fn check(&mut self, leaf: &Leaf, at: &str) -> Option<Check> {
        let number = || leaf.value.as_number().map(owned);
        Some(match leaf.op {
            Op::Gt => Check::Order(number()?, &[Ordering::Greater]),
            Op::Ge => Check::Order(number()?, &[Ordering::Greater, Ordering::Equal]),
            Op::Lt => Check::Order(number()?, &[Ordering::Less]),
            Op::Le => Check::Order(number()?, &[Ordering::Less, Ordering::Equal]),
            Op::Eq | Op::Ne => Check::OneOf(Values::of(std::slice::from_ref(&leaf.value)), leaf.op == Op::Eq),
            Op::In | Op::Nin => Check::OneOf(Values::of(leaf.value.as_array()?), leaf.op == Op::In),
            Op::Match => match pattern::compile(leaf.value.as_str()?, self.syntax) {
                Ok(regex) => Check::Match(regex),
                Err(problem) => {
                    self.problems.push(InvalidRule { node: format!("{at}.value"), problem });
                    return None;
                }
            },
            Op::Contains => Check::Contains(Box::new(Finder::new(leaf.value.as_str()?).into_owned())),
            Op::Prefix => Check::Prefix(leaf.value.as_str()?.as_bytes().to_vec()),
            Op::Exists => Check::Exists(true),
            Op::Absent => Check::Exists(false),
        })
    }
}

fn owned(number: &serde_json::Number) -> Number<'static> {
    Number::read(&number.to_string()).into_owned()
}
