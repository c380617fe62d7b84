//! `routerctl import gateway`: a session gateway's files become a route, keys and drains. Everything is shown before anything
//! is done, and what is done already is not done again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use router_policy::gateway_file::control_file::{Content, Entry};
use router_policy::gateway_file::key_store::Record;
use router_policy::ids::{BackendId, RouteName};
use router_proto::v1;
use serde_json::Value as Json;

use self::plan::{Plan, drain_steps, key_steps};
use crate::args::Connect;
use crate::backends::Backend;
use crate::client::Admin;
use crate::command::export;
use crate::failure::{Failure, Outcome};
use crate::gateway_flags::GatewayFlags;
use crate::output::json::KeyView;
use crate::output::{Answer as _, Format, Out};
use crate::overlay::{DEFAULT_PORTS, Overlay, backends_of};

mod files;
mod plan;

const BINDINGS: &str = "session bindings are not taken over: the gateway keeps one-way fingerprints made with a key of its own. \
                        Each session is placed at its next request, once, and stays there";

/// Hashes in one question: a message may have 4 MiB.
const KEYS_AT_ONCE: usize = 10_000;

/// What to import from.
#[derive(Debug, Subcommand)]
pub(crate) enum ImportVerb {
    /// Take over the files of a session gateway: its backends, limits, keys and drains.
    ///
    /// Keys are copied into the database, once: from then on `routerctl key` adds and revokes them, and the file is not read
    /// again. Choose this when the gateway goes. While the file goes on being edited, by people or a tool, leave `--key-store`
    /// out here and give it to the control plane (`routerctl up --key-store FILE`), which follows the file: a key ends when the
    /// file says so. It is the same with `--control-file`: here it sets drains once, there it is followed.
    ///
    /// Shows what it would do, then asks; where nobody can be asked it needs --yes. A second run finds nothing to do.
    Gateway(Box<GatewayArgs>),
}

/// Arguments of `import gateway`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("files").required(true).multiple(true).args(["key_store", "control_file"]))]
pub(crate) struct GatewayArgs {
    /// The gateway's key store (`version: 1`). Active records become keys; no secret is needed or shown.
    #[arg(long, value_name = "FILE")]
    key_store: Option<PathBuf>,
    /// The gateway's control file. Backends that it does not enable are drained.
    #[arg(long, value_name = "FILE")]
    control_file: Option<PathBuf>,
    /// A backend of this machine; repeat for all. Not given: those that the route has (19001 and 19002 if it is new) and the
    /// enabled ones.
    #[arg(long = "backend-port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// The route that is made, or changed where the files and flags differ from it.
    #[arg(long, value_name = "ROUTE", default_value = "default")]
    name: RouteName,
    /// Show what would be done, do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    flags: GatewayFlags,
}

/// What the files and flags say, checked.
struct Source {
    records: Vec<Record>,
    /// `None` without a control file.
    enabled: Option<Content>,
    route: Overlay,
}

impl Source {
    /// The route with its backends: the given ones, else those that are stored (or the gateway's defaults) and the enabled
    /// ones. So a backend that is not enabled any more is drained and not removed.
    fn route(&self, stored: &Json) -> Overlay {
        let mut route = self.route.clone();
        if !route.backends.is_empty() {
            return route;
        }
        let routes = stored.get("routes").and_then(Json::as_array).into_iter().flatten();
        let own = routes.filter(|one| one.get("name").and_then(Json::as_str) == Some(route.name.as_str()));
        let mut backends: Vec<BackendId> = own.flat_map(backends_of).map(|backend| backend.id).collect();
        if backends.is_empty() {
            backends
                .extend(DEFAULT_PORTS.iter().filter_map(|port| BackendId::new(&Backend::local(*port).address).ok()));
        }
        let (ports, single): (Vec<&Entry>, Vec<&Entry>) =
            self.enabled.iter().flat_map(Content::enabled).partition(|entry| matches!(entry, Entry::Port(_)));
        for entry in single.into_iter().chain(ports) {
            // A port that is a known backend's means that one; others are this machine's, as the gateway's are.
            if !backends.iter().any(|backend| entry.means(backend)) {
                backends.extend(match entry {
                    Entry::Port(port) => BackendId::new(&Backend::local(*port).address).ok(),
                    Entry::Backend(id) => Some(id.clone()),
                });
            }
        }
        route.backends = backends.iter().map(|id| Backend::at(id.to_string())).collect();
        route
    }
}

impl ImportVerb {
    /// Carries it out.
    pub(crate) async fn run(self, connect: &Connect, out: &mut Out<'_>) -> Outcome {
        let Self::Gateway(args) = self;
        let source = args.read()?;
        let mut admin = Admin::connect(connect).await?;
        let (document, mut plan) = make_plan(&source, &mut admin).await?;
        if args.dry_run || plan.is_done() {
            return answer(&plan, out);
        }
        match out.format {
            Format::Table => answer(&plan, out)?,
            // A script reads one answer from stdout: that is the last one.
            Format::Json | Format::Yaml if !args.yes => plan.print(out.stderr, out.now_unix_ms)?,
            Format::Json | Format::Yaml => {}
        }
        if !args.yes {
            out.confirm("Import this?")?;
        }
        carry_out(&document, &plan, &mut admin)
            .await
            .map_err(|failure| failure.hint("run the same command again: what is done is not done twice"))?;
        plan.is_applied = true;
        match out.format {
            Format::Table => Ok(writeln!(out.stdout, "done")?),
            Format::Json | Format::Yaml => answer(&plan, out),
        }
    }
}

impl GatewayArgs {
    /// Reads flags and files; every complaint of all of them at once.
    fn read(&self) -> Result<Source, Failure> {
        let mut complaints = Vec::new();
        let settings = self.flags.read(&mut complaints);
        let overlay = Overlay::new(self.name.as_str(), &[], settings, &mut complaints);
        let records = self.key_store.as_deref().map(files::key_store).transpose();
        let enabled = self.control_file.as_deref().map(files::control_file).transpose();
        let backends = self.ports.iter().copied().map(Backend::local).collect();
        let route = Overlay { preset: Some("gateway".to_owned()), backends, ..overlay };
        // Without ports, the backends depend on what is stored.
        if !route.backends.is_empty() {
            complaints.extend(route.over(&Json::Null).err().unwrap_or_default());
        }
        let mut take = |problems: Vec<String>| complaints.extend(problems);
        let records = records.map_err(&mut take).ok().flatten().unwrap_or_default();
        let enabled = enabled.map_err(&mut take).ok().flatten();
        if complaints.is_empty() {
            Ok(Source { records, enabled, route })
        } else {
            Err(Failure::complaints(&complaints))
        }
    }
}

/// Compares what the files and flags say with what there is. Returns the route's document too.
async fn make_plan(source: &Source, admin: &mut Admin) -> Result<(Json, Plan), Failure> {
    let stored = export::document("", admin).await?;
    let document = source.route(&stored).over(&stored).map_err(|complaints| Failure::complaints(&complaints))?;
    let answer = admin.rpc.apply(apply_request(&document, &[], true)).await;
    let changes = admin.answer(answer)?.changes.into_iter().map(Into::into).collect();
    let answer = admin.rpc.list_keys(v1::ListKeysRequest {}).await;
    let keys: Vec<KeyView> = admin.answer(answer)?.keys.into_iter().map(Into::into).collect();
    let answer = admin.rpc.list_routes(v1::ListRoutesRequest { route: String::new() }).await;
    let routes = admin.answer(answer)?.routes;
    let name = source.route.name.clone();

    let mut notes = Vec::new();
    let other = routes.iter().find(|route| route.is_default && route.name != name);
    if let Some(other) = other {
        notes.push(format!("bare /v1/... stays with route {}; this one answers under /{name}/v1/...", other.name));
    }
    let found = find_keys(&source.records, admin).await?;
    let key_steps = key_steps(&source.records, &keys, &found, &mut notes);
    if keys.is_empty() && key_steps.iter().all(|key| key.step != "add") {
        notes.push("there is no key: every request is answered with 401 until `routerctl key add NAME`".to_owned());
    }
    let own = routes.iter().filter(|route| route.name == name).flat_map(|route| &route.backends);
    let draining = own.filter(|backend| backend.condition.is_some_and(|condition| condition.draining));
    let draining = draining.map(|backend| backend.address.clone()).collect();
    let backends: Vec<BackendId> = backends_of(&document).into_iter().map(|backend| backend.id).collect();
    let drains = source.enabled.as_ref().map(|enabled| drain_steps(&backends, enabled, &draining, &mut notes));
    let drains = drains.unwrap_or_default();
    let mut plan = Plan { route: name, changes, keys: key_steps, drains, notes, is_applied: false };
    if !plan.is_done() {
        plan.notes.push(BINDINGS.to_owned());
    }
    Ok((document, plan))
}

/// The keys that there are with the secrets of a key store, by hash.
async fn find_keys(records: &[Record], admin: &mut Admin) -> Result<BTreeMap<[u8; 32], KeyView>, Failure> {
    let mut keys = BTreeMap::new();
    for some in records.chunks(KEYS_AT_ONCE) {
        let sha256 = some.iter().map(|record| record.sha256.to_vec().into()).collect();
        let answer = admin.rpc.find_keys(v1::FindKeysRequest { sha256 }).await;
        for found in admin.answer(answer)?.found {
            if let (Ok(sha256), Some(key)) = (<[u8; 32]>::try_from(&*found.sha256), found.key) {
                keys.insert(sha256, key.into());
            }
        }
    }
    Ok(keys)
}

fn apply_request(document: &Json, drained: &[String], dry_run: bool) -> v1::ApplyRequest {
    v1::ApplyRequest { document_json: document.to_string(), drained: drained.to_vec(), dry_run, ..Default::default() }
}

/// Backends that are not enabled enter the route drained, in one step with it: where requests are served already, none of
/// theirs goes to one of these.
async fn carry_out(document: &Json, plan: &Plan, admin: &mut Admin) -> Outcome {
    let drained: Vec<String> = plan.drains_to_do().cloned().collect();
    if !plan.changes.is_empty() {
        let answer = admin.rpc.apply(apply_request(document, &drained, false)).await;
        admin.answer(answer)?;
    }
    // For those that the route had before. It changes nothing for the others, unless a control file that the control plane
    // follows enables them: then it is edited.
    for backend in drained {
        let selector = v1::BackendSelector { port: 0, backend, route: plan.route.clone() };
        let answer = admin.rpc.set_drain(v1::SetDrainRequest { selector: Some(selector), drain: true }).await;
        admin.answer(answer)?;
    }
    for step in plan.keys.iter().filter(|step| step.step == "add") {
        let name = step.name.clone().unwrap_or_default();
        let answer = admin.rpc.add_key(v1::AddKeyRequest { name, sha256: step.sha256.to_vec().into() }).await;
        admin.answer(answer)?;
    }
    Ok(())
}

/// Prints the plan; its notes beside it for people, inside it for scripts.
fn answer(plan: &Plan, out: &mut Out<'_>) -> Outcome {
    out.answer(plan)?;
    if out.format == Format::Table {
        for note in &plan.notes {
            out.note(&format!("note: {note}"));
        }
    }
    Ok(())
}
