//! `rules test`.

use router_policy::option::Value;
use router_policy::reject::{Explanation, NodeResult, Rule, Test};
use router_policy::route::validate::parse_stored_option;
use serde::Serialize;
use serde_json::Value as Json;

use super::{OptionView, RouteView};
use crate::output::table::count;

/// The option with the rules, and the switch of the same name.
pub(crate) const RULES: &str = "reject_rules";
/// The option that says whether they are in force without the switch.
pub(crate) const IS_ON: &str = "reject_rules_default_enabled";

/// Rules that a table names.
const NAMED: usize = 5;

/// Characters of a value that are shown, of the body's and of the rule's.
const SHOWN: usize = 40;

/// What rules make of a body.
#[derive(Debug, Serialize)]
pub(crate) struct RulesVerdict {
    pub(crate) is_rejected: bool,
    /// False for a body that is no JSON object or list: no rule is asked then.
    pub(crate) is_judged: bool,
    /// The first rule that is met; null when the request passes, as the next two.
    pub(crate) rule: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) message: Option<String>,
    /// Every rule, also those that would not be asked any more.
    pub(crate) rules: Vec<RuleView>,
}

/// What one rule makes of it.
#[derive(Debug, Serialize)]
pub(crate) struct RuleView {
    pub(crate) name: String,
    pub(crate) condition: NodeView,
}

/// What one condition makes of it: one of `all`, `any` or a field with its comparison.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NodeView {
    pub(crate) is_met: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) all: Option<Vec<NodeView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) any: Option<Vec<NodeView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) op: Option<&'static str>,
    /// The rule's value as JSON, shortened; missing where the operator takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    /// The body's value as JSON, shortened; missing where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<String>,
}

impl RulesVerdict {
    pub(crate) fn new(explanation: &Explanation<'_>, default_status: u16) -> Self {
        let verdict = explanation.verdict;
        let default_message = |rule: &str| format!("request rejected by rule '{rule}'");
        Self {
            is_rejected: verdict.is_some(),
            is_judged: true,
            rule: verdict.map(|verdict| verdict.rule.to_owned()),
            status: verdict.map(|verdict| verdict.status.unwrap_or(default_status)),
            message: verdict
                .map(|verdict| verdict.message.map_or_else(|| default_message(verdict.rule), str::to_owned)),
            rules: explanation
                .rules
                .iter()
                .map(|rule| RuleView { name: rule.name.to_owned(), condition: NodeView::from(&rule.condition) })
                .collect(),
        }
    }

    pub(crate) fn not_judged() -> Self {
        Self { is_rejected: false, is_judged: false, rule: None, status: None, message: None, rules: Vec::new() }
    }
}

impl From<&NodeResult<'_>> for NodeView {
    fn from(result: &NodeResult<'_>) -> Self {
        let views = |nodes: &[NodeResult<'_>]| Some(nodes.iter().map(Self::from).collect());
        let mut view = Self { is_met: result.is_met, ..Self::default() };
        match &result.test {
            Test::All(nodes) => view.all = views(nodes),
            Test::Any(nodes) => view.any = views(nodes),
            Test::Field { field, op, value, seen } => {
                view.field = Some((*field).to_owned());
                view.op = Some(op.name());
                view.value = (!op.is_unary()).then(|| short(&value.to_string()));
                view.seen = seen.as_deref().map(short);
            }
        }
        view
    }
}

/// What there is to be said of a route's rules: that they are set and have no effect.
pub(super) fn off_note(route: &RouteView) -> Option<String> {
    let toggle = route.toggles.iter().find(|toggle| toggle.name == RULES);
    let is_on = toggle.map_or_else(|| route.option(IS_ON) == Some("true"), |toggle| toggle.value == "on");
    if is_on || matches!(route.option(RULES), None | Some("none")) {
        return None;
    }
    let name = &route.name;
    Some(match toggle {
        Some(toggle) if toggle.left_ms.is_some() => {
            format!(
                "{RULES} of route {name} are switched off for a time, or until `routerctl toggle {name} {RULES} reset`"
            )
        }
        Some(_) => format!("{RULES} of route {name} are switched off until `routerctl toggle {name} {RULES} reset`"),
        None => format!(
            "{RULES} of route {name} are set but off: turn them on with `routerctl toggle {name} {RULES} on` or the option \
             {IS_ON}"
        ),
    })
}

/// Rules as a table says them: how many, and their names. `None` for another option, and for no rules.
pub(crate) fn rules_in_short(option: &OptionView) -> Option<String> {
    if option.name != RULES {
        return None;
    }
    let (_, Value::RejectRules(list)) = parse_stored_option(RULES, &Json::from(option.value.as_str()))? else {
        return None;
    };
    let names: Vec<&str> = list.rules().iter().map(Rule::name).collect();
    let listed = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        all @ 1..=NAMED => Some(format!("{}: {listed}", count(all as u64, "rule"))),
        all => Some(format!("{all} rules: {listed} and {} more", all - NAMED)),
    }
}

/// The start of a text on one line, without what a terminal would obey.
fn short(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(SHOWN).map(plain).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}
