//! What each condition of each rule finds in a body: for operators who write rules. Holds parts of the body, so it is for the
//! operator's own terminal alone.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::evaluate::{Condition, RuleSet, Verdict};
use super::field::Found;
use super::node::{Leaf, Node, Op};

/// What the rules make of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation<'a> {
    /// The first rule that is met.
    pub verdict: Option<Verdict<'a>>,
    /// Every rule, also those that are not asked because one before them is met.
    pub rules: Vec<RuleResult<'a>>,
}

/// What a rule makes of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleResult<'a> {
    /// The rule's name.
    pub name: &'a str,
    /// Its condition.
    pub condition: NodeResult<'a>,
}

/// What a condition makes of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeResult<'a> {
    /// Whether it holds.
    pub is_met: bool,
    /// What it is.
    pub test: Test<'a>,
}

/// A condition, with what it saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Test<'a> {
    /// All of these must hold.
    All(Vec<NodeResult<'a>>),
    /// One of these must hold.
    Any(Vec<NodeResult<'a>>),
    /// A field is compared.
    Field {
        /// The field.
        field: &'a str,
        /// How.
        op: Op,
        /// With what; null where the operator takes nothing.
        value: &'a Json,
        /// The field's value as JSON, as the body has it; `None` when it is absent.
        seen: Option<Cow<'a, str>>,
    },
}

impl RuleSet {
    /// What each rule makes of a body; `None` when it is no JSON object or list in UTF-8, so that no rule is asked.
    pub fn explain<'a>(&'a self, body: &'a [u8]) -> Option<Explanation<'a>> {
        let found = self.found(body)?;
        let met = self.conditions().find(|(_, condition)| condition.is_met(&found));
        let result = |(rule, condition): (&'a super::Rule, &'a Condition)| {
            Some(RuleResult { name: rule.name(), condition: explain(&rule.node, condition, &found)? })
        };
        Some(Explanation {
            verdict: met.map(|(rule, _)| rule.verdict()),
            rules: self.conditions().filter_map(result).collect(),
        })
    }
}

/// The condition was made of the node, so they have the same shape.
fn explain<'a>(node: &'a Node, condition: &Condition, found: &[Found<'a>]) -> Option<NodeResult<'a>> {
    let group = |nodes: &'a [Node], conditions: &[Condition]| -> Option<Vec<NodeResult<'a>>> {
        nodes.iter().zip(conditions).map(|(node, condition)| explain(node, condition, found)).collect()
    };
    let test = match (node, condition) {
        (Node::All(nodes), Condition::All(conditions)) => Test::All(group(nodes, conditions)?),
        (Node::Any(nodes), Condition::Any(conditions)) => Test::Any(group(nodes, conditions)?),
        (Node::Leaf(Leaf { field, op, value }), Condition::Leaf(slot, _)) => {
            Test::Field { field, op: *op, value, seen: found.get(*slot).and_then(Found::json) }
        }
        _ => return None,
    };
    Some(NodeResult { is_met: condition.is_met(found), test })
}
