//! `routerctl rules test`: what reject rules make of a request, with the result of each condition. The body goes nowhere else.

use std::fs::File;
use std::io::{self, Read, Write};

use clap::{ArgGroup, Args, Subcommand};
use router_policy::ids::RouteName;
use router_policy::option::Value;
use router_policy::option::resolved::RouteOptions;
use router_policy::option::{OptionSet, Preset};
use router_policy::reject::{InvalidRule, MatchSyntax, RuleSet};
use router_policy::route::validate::parse_option_each;
use router_policy::route::{Complaint, Complaints};
use router_proto::v1;
use serde_json::{Map, Value as Json};

use crate::args::{Assignment, Connect};
use crate::client::Admin;
use crate::document::Document;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::json::{Changes, NodeView, RULES, RouteView, RulesVerdict};
use crate::output::table::print_pairs;
use crate::output::{Answer, Out};

mod file;

/// Larger bodies are refused, as no replica takes them (`--max-body-size`).
const MAX_BYTES: u64 = 200 << 20;

/// The options that say what rules do, beside the rules and whether they are on.
const SYNTAX: &str = "match_syntax";
const STATUS: &str = "reject_rules_status";

/// What to do with reject rules.
#[derive(Debug, Subcommand)]
pub(crate) enum RulesVerb {
    /// Say what rules make of a request body, and why. Exits with 0: it passes, 1: it is refused, 2: trouble.
    Test(TestArgs),
}

/// Arguments of `rules test`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("rules").required(true).multiple(true).args(["file", "route"]))]
pub(crate) struct TestArgs {
    /// YAML or JSON: a list of rules; `reject_rules:` with one, also with `match_syntax` and `reject_rules_status`; or a
    /// route document, as `apply` takes it. `-` reads stdin. Needs no control plane.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<String>,
    /// Take the rules of this route of the running control plane, on or off; with `-f`, of the file.
    #[arg(long, value_name = "NAME")]
    route: Option<RouteName>,
    /// The request's body; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    body: String,
    /// What the patterns of `match` are, whatever the file or the route says.
    #[arg(long, value_name = "SYNTAX", value_parser = MatchSyntax::NAMES)]
    match_syntax: Option<String>,
}

impl RulesVerb {
    /// Carries it out.
    pub(crate) async fn run(self, connect: &Connect, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::Test(args) => test(args, connect, out).await,
        }
    }
}

async fn test(args: TestArgs, connect: &Connect, out: &mut Out<'_>) -> Outcome {
    let syntax = args.match_syntax.as_deref();
    let (options, doubts) = match (&args.file, &args.route) {
        (Some(file), route) => {
            if file == "-" && args.body == "-" {
                return Err(Failure::usage("-f and --body: only one of them can be stdin"));
            }
            file::read(&Document::read(file)?, route.as_ref().map(RouteName::as_str), syntax)?
        }
        (None, Some(route)) => of_route(route, syntax, connect, out).await?,
        (None, None) => return Err(Failure::usage("-f FILE or --route NAME is needed")),
    };
    note_doubts(&doubts, out);
    let body = read_body(&args.body)?;
    let payload = &options.payload;
    let rules: &RuleSet = &payload.reject_rules;
    if rules.is_empty() {
        out.note("note: there are no rules");
    }
    let Some(explanation) = rules.explain(&body) else {
        out.note("note: the body is no JSON object or list in UTF-8, so no rule is asked");
        return out.answer(&RulesVerdict::not_judged());
    };
    let answer = RulesVerdict::new(&explanation, payload.reject_rules_status);
    out.answer(&answer)?;
    if answer.is_rejected { Err(Failure::new(Kind::Rejected, "")) } else { Ok(()) }
}

/// The rules of a route in force.
async fn of_route(
    route: &RouteName,
    syntax: Option<&str>,
    connect: &Connect,
    out: &mut Out<'_>,
) -> Result<(RouteOptions, Vec<String>), Failure> {
    let mut admin = Admin::connect(connect).await?;
    let answer = admin.rpc.list_routes(v1::ListRoutesRequest { route: route.to_string() }).await;
    let state = admin.answer(answer)?.routes.into_iter().next();
    let view = RouteView::from(state.ok_or_else(|| Failure::failed(format!("no route {route}")))?);
    for note in &view.notes {
        out.note(&format!("note: {note}"));
    }
    let mut stated: Map<String, Json> = [RULES, SYNTAX, STATUS]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), Json::from(view.option(name)?))))
        .collect();
    stated.extend(syntax.map(|word| (SYNTAX.to_owned(), Json::from(word))));
    let (options, doubts) = effective(&stated).map_err(|complaints| Failure::failed(complaints.to_string()))?;
    Ok((options, doubts.to_string().lines().map(str::to_owned).collect()))
}

/// What these options mean, and what is odd about them; else every complaint about them.
fn effective(stated: &Map<String, Json>) -> Result<(RouteOptions, Complaints), Complaints> {
    let mut complaints = Vec::new();
    let mut set = OptionSet::new();
    for (name, json) in stated {
        match parse_option_each(name, json) {
            Ok((name, value)) => drop(set.insert(name, value)),
            Err(found) => complaints.extend(found.0),
        }
    }
    let options = RouteOptions::resolve(Preset::None, &set);
    let place = |one: InvalidRule| Complaint { field: format!("{RULES}{}", one.node), problem: one.problem };
    let mut doubts = Complaints::default();
    if let Some(Value::RejectRules(rules)) = set.get(RULES) {
        doubts.0.extend(rules.doubts().into_iter().map(place));
        let found = RuleSet::compile(rules, options.payload.reject_rules.syntax()).err().unwrap_or_default();
        complaints.extend(found.into_iter().map(place));
    }
    if complaints.is_empty() { Ok((options, doubts)) } else { Err(Complaints(complaints)) }
}

/// What is odd about the rules that command lines set, with its place.
pub(crate) fn doubts_of(options: &[Assignment]) -> Vec<String> {
    let stated =
        options.iter().filter(|one| one.option == RULES).map(|one| (RULES.to_owned(), one.value.clone().into()));
    // Patterns may be of a syntax that the route knows.
    let set = stated.filter_map(|(name, json): (String, Json)| parse_option_each(&name, &json).ok());
    let rules = set.filter_map(|(_, value)| match value {
        Value::RejectRules(rules) => Some(rules),
        _ => None,
    });
    rules.flat_map(|rules| rules.doubts()).map(|one| format!("{RULES}{one}")).collect()
}

/// Notes, one for each.
pub(crate) fn note_doubts(doubts: &[String], out: &mut Out<'_>) {
    for doubt in doubts {
        out.note(&format!("note: {doubt}"));
    }
}

fn read_body(file: &str) -> Result<Vec<u8>, Failure> {
    let source = if file == "-" { "stdin" } else { file };
    let mut body = Vec::new();
    let read = if file == "-" {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut body)
    } else {
        File::open(file).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut body))
    };
    let length = read.map_err(|error| Failure::failed(format!("{source}: {error}")))?;
    if length as u64 > MAX_BYTES {
        return Err(Failure::failed(format!("{source}: larger than 200 MiB")));
    }
    Ok(body)
}

/// After changes: says of each route whose rules were among them when they are off. What was changed stays changed if that
/// can't be found out.
pub(crate) async fn note_if_off(changes: &Changes, admin: &mut Admin, out: &mut Out<'_>) {
    for change in &changes.changes {
        if !changes.is_applied || !change.fields.iter().any(|field| field.field.contains(RULES)) {
            continue;
        }
        let asked = v1::ListRoutesRequest { route: change.route.clone() };
        let Ok(states) = admin.rpc.list_routes(asked).await else { continue };
        for view in states.into_inner().routes.into_iter().map(RouteView::from) {
            for note in &view.notes {
                out.note(&format!("note: {note}"));
            }
        }
    }
}

impl Answer for RulesVerdict {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        match (&self.rule, self.status, &self.message) {
            (Some(rule), Some(status), Some(message)) => print_pairs(
                out,
                &[
                    ("verdict", format!("rejected by rule {rule}")),
                    ("status", status.to_string()),
                    ("message", message.clone()),
                ],
            )?,
            _ => print_pairs(out, &[("verdict", "passes".to_owned())])?,
        }
        if !self.rules.is_empty() {
            writeln!(out)?;
        }
        for rule in &self.rules {
            writeln!(out, "{:<5}  rule {}", rule.condition.is_met, rule.name)?;
            print_node(out, &rule.condition, 1)?;
        }
        Ok(())
    }
}

/// A line per condition, each further in than the one that it belongs to.
fn print_node(out: &mut dyn Write, node: &NodeView, depth: usize) -> io::Result<()> {
    write!(out, "{:<5}  {:width$}", node.is_met, "", width = 2 * depth)?;
    for (word, nodes) in [("all of", &node.all), ("any of", &node.any)] {
        if let Some(nodes) = nodes {
            writeln!(out, "{word}")?;
            return nodes.iter().try_for_each(|node| print_node(out, node, depth + 1));
        }
    }
    let value = node.value.as_ref().map(|value| format!(" {value}")).unwrap_or_default();
    let (field, op) = (node.field.as_deref().unwrap_or_default(), node.op.unwrap_or_default());
    writeln!(out, "{field} {op}{value}    is {}", node.seen.as_deref().unwrap_or("absent"))
}
