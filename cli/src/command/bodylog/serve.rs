//! `routerctl bodylog serve`: the collector as a process.

use std::path::PathBuf;

use router_dataplane::bodylog::collector::{self, CollectorArgs, Config, Listeners};
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::process::{announce, bind, bound};
use crate::token::read_secret;

/// Arguments of `bodylog serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    args: CollectorArgs,
    /// File with the token that the HTTP port asks for; it must not be open to everybody [env: `BODYLOG_HTTP_TOKEN` is the
    /// token itself]
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
}

impl ServeArgs {
    /// Checks the whole configuration before anything is started.
    pub(crate) fn check(&self) -> Result<Config, Failure> {
        let token = read_secret("--http-token-file", self.http_token_file.as_deref(), "BODYLOG_HTTP_TOKEN");
        let (token, complaint) = match token {
            Ok(token) => (token, None),
            // Stands in for the one that could not be read, so that its lack is not told as a second fault.
            Err(complaint) => (Some(String::new()), Some(complaint)),
        };
        let checked = self.args.validate(token.as_deref());
        match (checked, complaint) {
            (Ok(config), None) => Ok(config),
            (checked, complaint) => {
                let mut complaints = checked.err().unwrap_or_default();
                complaints.extend(complaint);
                Err(Failure::complaints(&complaints))
            }
        }
    }
}

/// Binds, says where, and runs until `shutdown`.
pub(crate) async fn run(config: Config, shutdown: CancellationToken) -> Outcome {
    let frames = bind("--host/--port", config.frames)?;
    let http = bind("--http-host/--http-port", config.http)?;
    let exporter = config.exporter.map(|address| bind("--exporter-listen", address)).transpose()?;
    let mut line = format!("listening role=bodylog frames={} http={}", bound(&frames)?, bound(&http)?);
    if let Some(exporter) = &exporter {
        line = format!("{line} exporter={}", bound(exporter)?);
    }
    announce(&line);
    tracing::info!(dir = %config.dir.display(), "request and response bodies are kept there");
    let on_ready = || announce("ready role=bodylog");
    collector::run(config, Listeners { frames, http, exporter }, shutdown.cancelled_owned(), on_ready)
        .await
        .map_err(|error| Failure::failed(format!("bodylog: {:#}", anyhow::Error::new(error))))
}
