//! `routerctl toggle`: run-time switches and limits of a route, or of all of them. They come before the route's options, hold on every replica,
//! and leave the route's document alone.

use std::io::{self, Write};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use router_policy::ids::RouteName;
use router_policy::toggle::ToggleKey;
use router_proto::v1;

use crate::args::length;
use crate::client::Admin;
use crate::failure::{Failure, Outcome};
use crate::output::json::{RouteToggles, ToggleList, ToggleLists, ToggleView};
use crate::output::table::{Columns, or_dash, span};
use crate::output::{Answer, Out};

/// The value that undoes one.
const RESET: &str = "reset";

/// What else a value may be.
const OR_RESET: &str = "or `reset`, which undoes it";

/// Arguments of `toggle`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").args(["name", "all"]))]
pub(crate) struct ToggleArgs {
    /// The route. Alone: list what is set on it; without one, on all of them.
    route: Option<RouteName>,
    /// What to set. `ttft_limit_ms`, `tps_limit_tps` and `bodylog_pct` are limits, the others switches.
    #[arg(value_parser = PossibleValuesParser::new(ToggleKey::names()), requires = "value")]
    name: Option<String>,
    /// `on` or `off` for a switch, a number for a limit, `reset` to undo it and what would hold after it.
    #[arg(value_name = "on|off|NUMBER|reset", allow_negative_numbers = true)]
    value: Option<String>,
    /// Set or undo it on every route.
    #[arg(long, num_args = 2, value_names = ["NAME", "on|off|NUMBER|reset"], allow_negative_numbers = true,
          conflicts_with = "route")]
    all: Option<Vec<String>>,
    /// Of a limit: only for the pool of this model.
    #[arg(long, value_name = "MODEL", requires = "change")]
    model: Option<String>,
    /// Undo it after this long, for instance 30m: then holds again what was set without a time [default: it stays until
    /// it is reset].
    #[arg(long = "for", value_name = "TIME", value_parser = length, requires = "change")]
    length: Option<Duration>,
}

/// Lists what is set, or sets or undoes one.
pub(crate) async fn run(args: ToggleArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let request = args.request()?;
    match (args.route, request) {
        (Some(route), None) => {
            let states = states(route.as_str(), admin).await?;
            answer_one(&ToggleList::new(route.to_string(), set_on(states)), out)
        }
        (Some(route), Some(request)) => {
            let answer = admin.rpc.set_toggle(v1::SetToggleRequest { route: route.to_string(), ..request }).await;
            answer_one(&ToggleList::new(route.to_string(), admin.answer(answer)?), out)
        }
        (None, None) => {
            let states = states("", admin).await?;
            let routes = states.into_iter().map(|state| RouteToggles::set(state.name.clone(), set_on([state])));
            out.answer(&ToggleLists { routes: routes.collect(), is_report: false })
        }
        (None, Some(request)) => set_on_all(&request, admin, out).await,
    }
}

async fn states(route: &str, admin: &mut Admin) -> Result<Vec<v1::RouteState>, Failure> {
    let answer = admin.rpc.list_routes(v1::ListRoutesRequest { route: route.to_owned() }).await;
    Ok(admin.answer(answer)?.routes)
}

/// What is set on routes, as the answer that setting it would give.
fn set_on(states: impl IntoIterator<Item = v1::RouteState>) -> v1::SetToggleReply {
    let toggles = states.into_iter().flat_map(|state| state.toggles).collect();
    v1::SetToggleReply { toggles, ..Default::default() }
}

fn answer_one(list: &ToggleList, out: &mut Out<'_>) -> Outcome {
    if let Some(note) = &list.note {
        out.note(&format!("note: {note}"));
    }
    out.answer(list)
}

/// One after the other; a route that refuses keeps none of the others from it.
async fn set_on_all(request: &v1::SetToggleRequest, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let names: Vec<String> = states("", admin).await?.into_iter().map(|state| state.name).collect();
    let mut routes = Vec::new();
    for route in names {
        let answer = admin.rpc.set_toggle(v1::SetToggleRequest { route: route.clone(), ..request.clone() }).await;
        routes.push(match admin.answer(answer) {
            Ok(reply) => RouteToggles::set(route, reply),
            Err(failure) => RouteToggles::failed(route, failure.message),
        });
    }
    let list = ToggleLists { routes, is_report: true };
    for route in &list.routes {
        if let Some(note) = &route.list.note {
            out.note(&format!("note: route {}: {note}", route.list.route));
        }
    }
    out.answer(&list)?;
    let complaint = |one: &RouteToggles| Some(format!("route {}: {}", one.list.route, one.error.as_ref()?));
    let complaints: Vec<String> = list.routes.iter().filter_map(complaint).collect();
    if complaints.is_empty() { Ok(()) } else { Err(Failure::failed(complaints.join("\n"))) }
}

impl ToggleArgs {
    /// What to ask for, checked, still without a route; `None` to list.
    fn request(&self) -> Result<Option<v1::SetToggleRequest>, Failure> {
        let stated = (self.all.as_deref(), &self.name, &self.value);
        let ((Some([name, value]), _, _) | (None, Some(name), Some(value))) = stated else { return Ok(None) };
        let model = self.model.as_deref().unwrap_or_default();
        let key = ToggleKey::parse(name, model).map_err(|error| Failure::usage(error.to_string()))?;
        let reset = value == RESET;
        if reset && self.length.is_some() {
            return Err(Failure::usage("--for: `reset` takes effect at once and for good; leave it out"));
        }
        let value = if reset {
            String::new()
        } else {
            let parsed = key.parse_value(value);
            parsed.map_err(|error| Failure::usage(format!("{name}: {} {OR_RESET}", error.problem)))?.to_string()
        };
        Ok(Some(v1::SetToggleRequest {
            route: String::new(),
            name: key.name().to_owned(),
            model: key.model().to_owned(),
            value,
            ttl_ms: self.length.map_or(0, |length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
            reset,
        }))
    }
}

impl Answer for ToggleList {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        print_toggles(out, &self.toggles, &format!("nothing is set on route {}", self.route))
    }
}

impl Answer for ToggleLists {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        let mut columns = Columns::new(&["ROUTE", "TOGGLE", "MODEL", "VALUE", "LEFT"]);
        for RouteToggles { list, error } in &self.routes {
            for toggle in &list.toggles {
                columns.row(std::iter::once(list.route.clone()).chain(cells(toggle)));
            }
            // A report has a row for each route; the error itself stands on stderr.
            if self.is_report && list.toggles.is_empty() {
                let what = if error.is_some() { "FAILED" } else { "-" };
                columns.row([list.route.as_str(), what, "-", "-", "-"]);
            }
        }
        columns.print(out, "", if self.is_report { "no routes" } else { "nothing is set on any route" })
    }
}

/// The table of what is set.
pub(crate) fn print_toggles(out: &mut dyn Write, toggles: &[ToggleView], empty: &str) -> io::Result<()> {
    let mut columns = Columns::new(&["TOGGLE", "MODEL", "VALUE", "LEFT"]);
    for toggle in toggles {
        columns.row(cells(toggle));
    }
    columns.print(out, "", empty)
}

fn cells(toggle: &ToggleView) -> [String; 4] {
    [
        toggle.name.clone(),
        or_dash(toggle.model.as_deref()),
        toggle.value.clone(),
        toggle.left_ms.map_or_else(|| "until reset".to_owned(), |ms| format!("{}{}", left(ms), then(toggle))),
    ]
}

/// `load_rate_limit off, 24m left, then on`; `ttft_limit_ms 4000 of small`.
pub(crate) fn in_short(toggle: &ToggleView) -> String {
    let model = toggle.model.as_ref().map(|model| format!(" of {model}")).unwrap_or_default();
    let left = toggle.left_ms.map(|ms| format!(", {} left{}", left(ms), then(toggle))).unwrap_or_default();
    format!("{} {}{model}{left}", toggle.name, toggle.value)
}

/// What holds again after it, where something does.
fn then(toggle: &ToggleView) -> String {
    toggle.then.as_ref().map(|value| format!(", then {value}")).unwrap_or_default()
}

/// Whole seconds, the running one included: what was just set for 30m has 30m left.
fn left(ms: u64) -> String {
    span(ms.div_ceil(1000) * 1000)
}
