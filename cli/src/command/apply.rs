//! `routerctl apply`, `diff`: a file is checked here first, so that a complaint names its line, and then by the control plane.

use clap::Args;
use router_proto::v1;

use crate::args::Connect;
use crate::client::Admin;
use crate::command::rules::{note_doubts, note_if_off};
use crate::document::{self, Document};
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Out;
use crate::output::json::Changes;

/// Arguments of `apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    source: Source,
    /// Show what would change, store nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    source: Source,
}

/// Where the routes stand.
#[derive(Debug, Args)]
struct Source {
    /// YAML or JSON: one route, or `routes:` with a list. `-` reads stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: String,
    /// Also remove routes that the file does not name.
    #[arg(long)]
    prune: bool,
}

/// Stores the file's routes. What is odd about their rules is told, also when nothing changes.
pub(crate) async fn apply(args: ApplyArgs, connect: &Connect, out: &mut Out<'_>) -> Outcome {
    let (changes, mut admin, doubts) = send(&args.source, args.dry_run, connect).await?;
    note_doubts(&doubts, out);
    note_if_off(&changes, &mut admin, out).await;
    out.answer(&changes)
}

/// Shows what `apply` would change.
pub(crate) async fn diff(args: DiffArgs, connect: &Connect, out: &mut Out<'_>) -> Outcome {
    let (changes, ..) = send(&args.source, true, connect).await?;
    out.answer(&changes)?;
    if changes.changes.is_empty() { Ok(()) } else { Err(Failure::new(Kind::Differs, "")) }
}

async fn send(source: &Source, dry_run: bool, connect: &Connect) -> Result<(Changes, Admin, Vec<String>), Failure> {
    let document = Document::read(&source.file)?;
    let doubts = document.check()?;
    let mut admin = Admin::connect(connect).await?;
    let changes = send_document(&document, dry_run, source.prune, &mut admin).await?;
    Ok((changes, admin, doubts))
}

async fn send_document(document: &Document, dry_run: bool, prune: bool, admin: &mut Admin) -> Result<Changes, Failure> {
    let request = v1::ApplyRequest { document_json: document.json.to_string(), dry_run, prune, ..Default::default() };
    let answer = admin.rpc.apply(request).await;
    let reply = admin.answer(answer).map_err(|failure| document::locate(document, &failure))?;
    Ok(Changes { changes: reply.changes.into_iter().map(Into::into).collect(), is_applied: !dry_run })
}
