//! `routerctl route add|list|show|set|remove|options|explain`.

use std::collections::HashMap;
use std::io::{self, Write};

use clap::{Args, Subcommand};
use router_policy::ids::RouteName;
use router_policy::option::catalogue::{Preset, find};
use router_proto::v1;
use serde_json::{Map, Value as Json, json};

use crate::args::{Assignment, assignment, option_name};
use crate::backends::BackendList;
use crate::client::Admin;
use crate::command::rules::{doubts_of, note_doubts, note_if_off};
use crate::command::toggle::{in_short, print_toggles};
use crate::document;
use crate::failure::{Failure, Outcome};
use crate::output::json::{Changes, OptionView, PoolView, Removed, RouteList, RouteView, rules_in_short};
use crate::output::table::{Columns, count, or_dash, print_backends, print_pairs};
use crate::output::{Answer, Out};

mod explain;
pub(crate) mod options;

use explain::ExplainArgs;
use options::OptionsArgs;

/// What to do with routes.
#[derive(Debug, Subcommand)]
pub(crate) enum RouteVerb {
    /// Add a route; one of that name must not exist.
    Add(AddArgs),
    /// List routes with their load.
    List,
    /// Show a route: its pools, what is toggled, its backends and its options.
    Show(NameArgs),
    /// Change options of a route; the others stay.
    Set(SetArgs),
    /// Remove a route and its sessions' bindings.
    Remove(RemoveArgs),
    /// List the options that a route can have, or explain one. Needs no control plane.
    Options(OptionsArgs),
    /// Say what would become of a request now, and why: session, gates and candidates. Changes nothing.
    Explain(ExplainArgs),
}

/// Arguments of `route add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Its name and path prefix: `/NAME/v1/...`.
    name: RouteName,
    /// Also answer bare `/v1/...`. At most one route can.
    #[arg(long)]
    default: bool,
    /// The set of defaults for options that are not set.
    #[arg(long, value_parser = Preset::NAMES)]
    preset: Option<String>,
    #[command(flatten)]
    backends: BackendList,
    /// Set an option. Repeat for several; `routerctl route options` lists all.
    #[arg(long = "set", value_name = "OPTION=VALUE", value_parser = assignment)]
    options: Vec<Assignment>,
}

/// Arguments of `route show`.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The route.
    name: RouteName,
}

/// Arguments of `route set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The route.
    name: RouteName,
    /// Options to set.
    #[arg(value_name = "OPTION=VALUE", value_parser = assignment, required_unless_present_any = ["unset", "default"])]
    options: Vec<Assignment>,
    /// An option that goes back to its default. Repeat for several.
    #[arg(long, value_name = "OPTION", value_parser = option_name)]
    unset: Vec<String>,
    /// Make it the default route, or not any more.
    #[arg(long, value_name = "true|false")]
    default: Option<bool>,
}

/// Arguments of `route remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The route.
    name: RouteName,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

impl RouteVerb {
    /// Carries it out.
    pub(crate) async fn run(self, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::Add(args) => add(args, admin, out).await,
            Self::List => out.answer(&states("", admin).await?),
            Self::Show(args) => show(args, admin, out).await,
            Self::Set(args) => set(args, admin, out).await,
            Self::Remove(args) => remove(args, admin, out).await,
            Self::Options(args) => options::run(&args, out),
            Self::Explain(args) => explain::run(args, admin, out).await,
        }
    }
}

async fn states(route: &str, admin: &mut Admin) -> Result<RouteList, Failure> {
    let answer = admin.rpc.list_routes(v1::ListRoutesRequest { route: route.to_owned() }).await;
    Ok(RouteList { routes: admin.answer(answer)?.routes.into_iter().map(Into::into).collect() })
}

/// A route document as the command line states it.
fn route_document(args: &AddArgs) -> Json {
    let mut route = Map::new();
    route.insert("name".to_owned(), json!(args.name.as_str()));
    if args.default {
        route.insert("default".to_owned(), json!(true));
    }
    if let Some(preset) = &args.preset {
        route.insert("preset".to_owned(), json!(preset));
    }
    if !args.options.is_empty() {
        route.insert("options".to_owned(), document::options_json(&args.options));
    }
    route.insert("backends".to_owned(), args.backends.backends().iter().map(|one| one.document(None)).collect());
    Json::Object(route)
}

async fn add(args: AddArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let document = route_document(&args);
    router_policy::route::parse_document(&document).map_err(|complaints| Failure::usage(complaints.to_string()))?;
    let request = v1::ApplyRequest { document_json: document.to_string(), create_only: true, ..Default::default() };
    let answer = admin.rpc.apply(request).await;
    let changes = match admin.answer(answer) {
        Ok(reply) => reply.changes,
        Err(failure) if failure.message.contains("exists") => {
            let name = &args.name;
            return Err(failure.hint(&format!(
                "change it with `routerctl route set {name} ...`, `routerctl backend add {name} HOST:PORT` or `routerctl apply \
                 -f FILE`, or take it away first with `routerctl route remove {name}`"
            )));
        }
        Err(failure) => return Err(failure),
    };
    let changes = Changes { changes: changes.into_iter().map(Into::into).collect(), is_applied: true };
    note_doubts(&doubts_of(&args.options), out);
    note_if_off(&changes, admin, out).await;
    out.answer(&changes)
}

async fn show(args: NameArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let list = states(args.name.as_str(), admin).await?;
    match list.routes.into_iter().next() {
        Some(route) => out.answer(&route),
        None => Err(Failure::failed(format!("no route {}", args.name)).hint("`routerctl route list` shows the routes")),
    }
}

async fn set(args: SetArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let doubts = doubts_of(&args.options);
    let mut set: HashMap<String, String> = args.options.into_iter().map(|one| (one.option, one.value)).collect();
    if let Some(both) = args.unset.iter().find(|name| set.contains_key(*name)) {
        return Err(Failure::usage(format!("{both}: both set and unset")));
    }
    if let Some(default) = args.default {
        set.insert("default".to_owned(), default.to_string());
    }
    let route = args.name.to_string();
    let answer = admin.rpc.set_route(v1::SetRouteRequest { route: route.clone(), set, unset: args.unset }).await;
    let fields = admin.answer(answer)?.fields;
    let changes = Changes::of_route(route, fields);
    note_doubts(&doubts, out);
    note_if_off(&changes, admin, out).await;
    out.answer(&changes)
}

async fn remove(args: RemoveArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let route = args.name.to_string();
    if !args.yes {
        let list = states(&route, admin).await?;
        let (backends, sessions) =
            list.routes.first().map_or((0, 0), |route| (route.backends.len() as u64, route.sessions));
        let what = format!("{} and {}", count(backends, "backend"), count(sessions, "session"));
        out.confirm(&format!("Remove route {route} with {what}?"))?;
    }
    let removed = format!("route {route}");
    let answer = admin.rpc.remove_route(v1::RemoveRouteRequest { route }).await;
    let reply = admin.answer(answer)?;
    out.answer(&Removed { removed, in_flight: reply.in_flight, sessions_forgotten: Some(reply.sessions_forgotten) })
}

impl Answer for RouteList {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        // Only where something is toggled.
        let with_toggles = self.routes.iter().any(|route| !route.toggles.is_empty());
        let mut headings = vec!["ROUTE", "DEFAULT", ">READY", ">IN FLIGHT", ">WAITING", ">SESSIONS", "COMPLAINTS"];
        headings.extend(with_toggles.then_some("TOGGLED"));
        let mut columns = Columns::new(&headings);
        for route in &self.routes {
            let ready = route.backends.iter().filter(|backend| backend.is_ready()).count();
            let in_flight: u32 = route.backends.iter().map(|backend| backend.in_flight).sum();
            let limit: u32 = route.backends.iter().map(|backend| backend.limit).sum();
            let cells = [
                route.name.clone(),
                if route.is_default { "yes" } else { "-" }.to_owned(),
                format!("{ready}/{}", route.backends.len()),
                format!("{in_flight}/{limit}"),
                route.waiting.to_string(),
                route.sessions.to_string(),
                if route.complaints.is_empty() { String::new() } else { route.complaints.len().to_string() },
            ];
            let toggled = route.toggles.iter().map(in_short).collect::<Vec<_>>().join("\n");
            columns.row(cells.into_iter().chain(with_toggles.then_some(toggled)));
        }
        columns.print(out, "", "no routes; add one with `routerctl route add NAME --backend HOST:PORT`")
    }
}

impl Answer for RouteView {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        let mut pairs = vec![
            ("route", self.name.clone()),
            ("default", if self.is_default { "yes" } else { "no" }.to_owned()),
            ("preset", self.preset.clone()),
            ("sessions", self.sessions.to_string()),
            ("waiting", self.waiting.to_string()),
        ];
        let counted = [
            ("bodies changed", self.payload.changed()),
            ("refused by rules", self.payload.refused_by_rules()),
            ("body log", self.payload.body_log()),
        ];
        pairs.extend(counted.into_iter().filter_map(|(what, counted)| Some((what, counted?))));
        print_pairs(out, &pairs)?;
        for complaint in &self.complaints {
            writeln!(out, "complaint: {complaint}")?;
        }
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        if !self.pools.is_empty() {
            writeln!(out)?;
            print_pools(out, &self.pools)?;
        }
        if !self.toggles.is_empty() {
            writeln!(out)?;
            print_toggles(out, &self.toggles, "")?;
        }
        writeln!(out)?;
        print_backends(out, "", &self.backends, false)?;
        writeln!(out)?;
        print_options(out, &self.options)
    }
}

/// One line per pool: what it holds, what it may hold, and how fast it is.
fn print_pools(out: &mut dyn Write, pools: &[PoolView]) -> io::Result<()> {
    let mut columns = Columns::new(&["POOL", ">TIER", ">IN FLIGHT", "LIMIT", ">TTFT", ">TPS"]);
    for pool in pools {
        let (limit, kind) = if pool.is_adaptive {
            (format!("{:.1}", pool.limit), format!("adaptive, up to {}", pool.pool_limit))
        } else {
            (pool.limit.to_string(), "static".to_owned())
        };
        columns.row([
            or_dash(pool.model.as_deref()),
            if pool.active_level.is_null() { "none".to_owned() } else { pool.active_level.to_string() },
            format!("{}/{limit}", pool.in_flight),
            kind,
            or_dash(pool.ttft_ewma_ms.map(|ms| format!("{ms:.0}ms")).as_deref()),
            or_dash(pool.tps_ewma.map(|tps| format!("{tps:.1}/s")).as_deref()),
        ]);
    }
    columns.print(out, "", "no pools")
}

/// The options that operators see, and those of fine tuning that are set.
fn print_options(out: &mut dyn Write, options: &[OptionView]) -> io::Result<()> {
    let is_shown = |option: &OptionView| option.is_set || !find(&option.name).is_some_and(|known| known.is_hidden);
    let mut columns = Columns::new(&["OPTION", "SET", "VALUE"]);
    for option in options.iter().filter(|option| is_shown(option)) {
        let set = if option.is_set { "yes" } else { "-" };
        let is_json = option.value.starts_with(['[', '{']);
        let value = match rules_in_short(option) {
            Some(rules) => rules,
            None if is_json => option.value.clone(),
            // A list stands one word below the other: it is an order.
            None => option.value.replace(',', ",\n"),
        };
        columns.row([option.name.clone(), set.to_owned(), value]);
    }
    columns.print(out, "", "no options")?;
    match options.iter().filter(|option| !is_shown(option)).count() as u64 {
        0 => Ok(()),
        hidden => writeln!(out, "{} of fine tuning not set; `-o json` shows all", count(hidden, "more option")),
    }
}
