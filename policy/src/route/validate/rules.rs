//! Reject rules against the option that says what their patterns are: only the whole route knows both.

use super::Complaints;
use crate::option::Value;
use crate::reject::{InvalidRule, MatchSyntax, RuleSet};
use crate::route::spec::RouteSpec;

const OPTION: &str = "reject_rules";

/// Complains about each pattern that is none in the route's syntax.
pub(super) fn check(path: &str, route: &RouteSpec, complaints: &mut Complaints) {
    if let Some(Value::RejectRules(rules)) = route.set.get(OPTION)
        && let Err(problems) = RuleSet::compile(rules, syntax(route))
    {
        add(path, problems, complaints);
    }
}

/// What is odd about a route's rules and no mistake for sure, as complaints are told: with the place in the document.
pub fn doubts(route: &RouteSpec) -> Complaints {
    let mut doubts = Complaints::default();
    if let Some(Value::RejectRules(rules)) = route.set.get(OPTION) {
        add(&format!("routes.{}", route.name), rules.doubts(), &mut doubts);
    }
    doubts
}

/// Takes such rules out of a stored route, and complains.
pub(super) fn keep_valid(path: &str, route: &mut RouteSpec, complaints: &mut Complaints) {
    let syntax = syntax(route);
    if let Some(Value::RejectRules(rules)) = route.set.get_mut(OPTION) {
        add(path, rules.keep_valid(syntax), complaints);
    }
}

fn syntax(route: &RouteSpec) -> MatchSyntax {
    route.options().payload.reject_rules.syntax()
}

fn add(path: &str, problems: Vec<InvalidRule>, complaints: &mut Complaints) {
    for InvalidRule { node, problem } in problems {
        complaints.add(format!("{path}.options.{OPTION}{node}"), problem);
    }
}
