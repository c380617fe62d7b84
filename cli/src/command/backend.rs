//! `routerctl backend add|list|set|remove`.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use router_policy::ids::{BackendId, RouteName};
use router_policy::route::Priority;
use router_policy::route::validate::parse_backend;
use router_proto::v1;
use serde_json::{Map, Value as Json};

use crate::client::Admin;
use crate::failure::{Failure, Outcome};
use crate::output::json::{BackendAdded, BackendListing, ChangeView, Changes, Removed};
use crate::output::table::{count, print_backends};
use crate::output::{Answer, Out};

/// What to do with backends.
#[derive(Debug, Subcommand)]
pub(crate) enum BackendVerb {
    /// Add a backend to a route.
    Add(Spec),
    /// List backends with their state and load.
    List(ListArgs),
    /// Change what is stated of a backend; what is not given stays.
    Set(Spec),
    /// Remove a backend from a route. Requests in flight there end by themselves.
    Remove(RemoveArgs),
}

/// A backend and what is stated of it.
#[derive(Debug, Args)]
pub(crate) struct Spec {
    /// The route.
    route: RouteName,
    /// The backend's address.
    #[arg(value_name = "HOST:PORT")]
    address: BackendId,
    /// A label for people and for `X-Routed-Peer`.
    #[arg(long)]
    name: Option<String>,
    /// Requests in flight there, over all replicas, in place of the route's `max_concurrency`.
    #[arg(long, value_name = "N")]
    max_concurrency: Option<u32>,
    /// What probes ask for, in place of the route's `health_probe_path`.
    #[arg(long, value_name = "PATH")]
    health_path: Option<String>,
    /// Largest context, in tokens.
    #[arg(long, value_name = "TOKENS")]
    context_limit: Option<u64>,
    /// Data-parallel ranks.
    #[arg(long, value_name = "N")]
    dp_size: Option<u32>,
    /// Its tier: the larger number is preferred [default: 0].
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    priority: Option<Priority>,
    /// A model that it serves. Repeat for several. Where one backend of a route states models, each must.
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
}

/// Arguments of `backend list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only of this route.
    route: Option<RouteName>,
}

/// Arguments of `backend remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The route.
    route: RouteName,
    /// The backend's address.
    #[arg(value_name = "HOST:PORT")]
    address: BackendId,
}

impl BackendVerb {
    /// Carries it out.
    pub(crate) async fn run(self, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
        match self {
            Self::Add(spec) => add(spec, admin, out).await,
            Self::List(args) => list(args, admin, out).await,
            Self::Set(spec) => set(spec, admin, out).await,
            Self::Remove(args) => remove(args, admin, out).await,
        }
    }
}

impl Spec {
    /// The message, checked by the validator that the control plane uses too.
    fn message(self) -> Result<(String, v1::BackendSpec), Failure> {
        let Self { route, address, name, max_concurrency, health_path, context_limit, dp_size, priority, models } =
            self;
        let address = address.to_string();
        let backend = v1::BackendSpec {
            address,
            name,
            max_concurrency,
            health_path,
            context_limit,
            dp_size,
            priority_thousandths: priority.map(Priority::thousandths),
            models: (!models.is_empty()).then_some(v1::ModelNames { names: models }),
        };
        let document = Json::Object(Map::from(&backend));
        parse_backend(&format!("backends[{}]", backend.address), &document)
            .map_err(|complaints| Failure::usage(complaints.to_string()))?;
        Ok((route.to_string(), backend))
    }
}

async fn add(spec: Spec, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let (route, backend) = spec.message()?;
    let added = BackendAdded { route: route.clone(), added: backend.address.clone() };
    let answer = admin.rpc.add_backend(v1::AddBackendRequest { route, backend: Some(backend) }).await;
    admin.answer(answer)?;
    out.answer(&added)
}

async fn list(args: ListArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let route = args.route.map(|name| name.to_string()).unwrap_or_default();
    let answer = admin.rpc.list_routes(v1::ListRoutesRequest { route }).await;
    let reply = admin.answer(answer)?;
    let backends: Vec<_> = reply.routes.into_iter().flat_map(|route| route.backends).collect();
    out.answer(&BackendListing::from(backends))
}

async fn set(spec: Spec, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let (route, backend) = spec.message()?;
    let answer = admin.rpc.set_backend(v1::SetBackendRequest { route: route.clone(), backend: Some(backend) }).await;
    let fields = admin.answer(answer)?.fields;
    out.answer(&Changes::of_route(route, fields))
}

async fn remove(args: RemoveArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let (route, address) = (args.route.to_string(), args.address.to_string());
    let removed = format!("backend {address} of route {route}");
    let answer = admin.rpc.remove_backend(v1::RemoveBackendRequest { route, address }).await;
    let reply = admin.answer(answer)?;
    out.answer(&Removed { removed, in_flight: reply.in_flight, sessions_forgotten: None })
}

impl Changes {
    /// Changes within one route that exists.
    pub(crate) fn of_route(route: String, fields: Vec<v1::FieldChange>) -> Self {
        let fields: Vec<_> = fields.into_iter().map(Into::into).collect();
        let changes = if fields.is_empty() { vec![] } else { vec![ChangeView { route, action: "changed", fields }] };
        Self { changes, is_applied: true }
    }
}

impl Answer for BackendListing {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        print_backends(out, "", &self.backends, true)
    }
}

impl Answer for BackendAdded {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        writeln!(out, "backend {} added to route {}", self.added, self.route)
    }
}

impl Answer for Removed {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        write!(out, "{} removed", self.removed)?;
        if let Some(sessions) = self.sessions_forgotten {
            write!(out, ", {} forgotten", count(sessions, "session"))?;
        }
        if self.in_flight > 0 {
            write!(out, ", {} still in flight", count(self.in_flight.into(), "request"))?;
        }
        writeln!(out)
    }
}
