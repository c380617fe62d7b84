//! `routerctl export`.

use router_policy::ids::RouteName;
use router_proto::v1;
use serde_json::Value as Json;

use crate::client::Admin;
use crate::failure::{Failure, Outcome};
use crate::output::{Format, Out, write_json, write_yaml};

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Only this route.
    route: Option<RouteName>,
}

/// The stored document of one route or all.
pub(crate) async fn document(route: &str, admin: &mut Admin) -> Result<Json, Failure> {
    let answer = admin.rpc.export(v1::ExportRequest { route: route.to_owned() }).await;
    let reply = admin.answer(answer)?;
    serde_json::from_str(&reply.document_json)
        .map_err(|error| Failure::failed(format!("the control plane's document is not JSON: {error}")))
}

/// Prints it: YAML unless asked otherwise.
pub(crate) async fn run(args: ExportArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let route = args.route.map(|name| name.to_string()).unwrap_or_default();
    let document = document(&route, admin).await?;
    match out.format {
        Format::Json => write_json(out.stdout, &document)?,
        Format::Table | Format::Yaml => write_yaml(out.stdout, &document)?,
    }
    Ok(out.stdout.flush()?)
}
