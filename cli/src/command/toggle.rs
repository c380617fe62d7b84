//! `routerctl toggle`: run-time switches and limits of a route. They come before the route's options, hold on every replica,
//! and leave the route's document alone.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use router_policy::ids::RouteName;
use router_policy::toggle::ToggleKey;
use router_proto::v1;

use crate::args::duration;
use crate::client::Admin;
use crate::failure::{Failure, Outcome};
use crate::output::json::{ToggleList, ToggleView};
use crate::output::table::{Columns, or_dash, span};
use crate::output::{Answer, Out};

/// The value that undoes one.
const RESET: &str = "reset";

/// What else a value may be.
const OR_RESET: &str = "or `reset`, which undoes it";

/// Arguments of `toggle`.
#[derive(Debug, Args)]
pub(crate) struct ToggleArgs {
    /// The route. Alone: list what is set on it.
    route: RouteName,
    /// What to set. `ttft_limit_ms` and `tps_limit_tps` are limits, the others switches.
    #[arg(value_parser = PossibleValuesParser::new(ToggleKey::names()), requires = "value")]
    name: Option<String>,
    /// `on` or `off` for a switch, a number of more than 0 for a limit, `reset` to undo it.
    #[arg(value_name = "on|off|NUMBER|reset", allow_negative_numbers = true)]
    value: Option<String>,
    /// Of a limit: only for the pool of this model.
    #[arg(long, value_name = "MODEL", requires = "name")]
    model: Option<String>,
    /// Undo it after this long, for instance 30m [default: it stays until it is reset].
    #[arg(long = "for", value_name = "TIME", value_parser = duration, requires = "name")]
    length: Option<Duration>,
}

/// Lists what is set, or sets or undoes one.
pub(crate) async fn run(args: ToggleArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let list = match args.request()? {
        None => {
            let route = args.route.to_string();
            let answer = admin.rpc.list_routes(v1::ListRoutesRequest { route: route.clone() }).await;
            let toggles = admin.answer(answer)?.routes.into_iter().flat_map(|route| route.toggles).collect();
            ToggleList::new(route, v1::SetToggleReply { toggles, ..Default::default() })
        }
        Some(request) => {
            let route = request.route.clone();
            let answer = admin.rpc.set_toggle(request).await;
            ToggleList::new(route, admin.answer(answer)?)
        }
    };
    if let Some(note) = &list.note {
        out.note(&format!("note: {note}"));
    }
    out.answer(&list)
}

impl ToggleArgs {
    /// What to ask for, checked; `None` to list.
    fn request(&self) -> Result<Option<v1::SetToggleRequest>, Failure> {
        let (Some(name), Some(value)) = (&self.name, &self.value) else { return Ok(None) };
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
            route: self.route.to_string(),
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

/// The table of what is set.
pub(crate) fn print_toggles(out: &mut dyn Write, toggles: &[ToggleView], empty: &str) -> io::Result<()> {
    let mut columns = Columns::new(&["TOGGLE", "MODEL", "VALUE", "LEFT"]);
    for toggle in toggles {
        columns.row([
            toggle.name.clone(),
            or_dash(toggle.model.as_deref()),
            toggle.value.clone(),
            // Whole seconds, the running one included: what was just set for 30m has 30m left.
            toggle.left_ms.map_or_else(|| "until reset".to_owned(), |left| span(left.div_ceil(1000) * 1000)),
        ]);
    }
    columns.print(out, "", empty)
}
