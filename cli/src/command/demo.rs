//! `routerctl demo`: a small system on free ports, real processes all of them, and what the router promises shown on it
//! as numbers. Only the engines are mocks: no model runs.

use std::io::{self, Write as _};
use std::time::Instant;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::failure::{Failure, Outcome};
use crate::output::{Format, Out};

mod affinity;
mod burst;
mod chat;
mod cluster;
mod live_drain;
mod report;

use cluster::{Cluster, Processes};
use report::Report;

/// Requests in flight that each engine may have.
const LIMIT: u32 = 8;

/// Arguments of `demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Leave the system up afterwards, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Dataplane replicas.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    replicas: u16,
    /// Mock engines.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=16))]
    engines: u16,
}

/// Runs it; the outcome says whether every check passed.
pub(crate) async fn run(args: DemoArgs, format: Format, shutdown: CancellationToken) -> Outcome {
    let began = Instant::now();
    let mut processes = Processes::new()?;
    let mut report = Report::new(format == Format::Table);
    let outcome = tokio::select! {
        outcome = show(&args, &mut processes, &mut report, began) => outcome,
        () = shutdown.cancelled() => Err(Failure::failed("interrupted")),
    };
    let outcome = match outcome {
        Ok(cluster) => {
            finish(&report, format)?;
            if args.keep {
                say(&cluster.hints())?;
                tokio::select! {
                    error = processes.first_end() => Err(Failure::failed(error.to_string())),
                    () = shutdown.cancelled() => Ok(()),
                }
            } else {
                Ok(())
            }
        }
        Err(failure) => Err(failure),
    };
    processes.stop().await;
    let failed = report.failed();
    match outcome {
        Ok(()) if failed == 0 => Ok(()),
        Ok(()) => Err(Failure::failed(format!("{failed} of {} checks failed", report.total()))
            .hint(&format!("logs of all processes are in {}", processes.keep_logs()))),
        Err(failure) => Err(failure.hint(&format!("logs of all processes are in {}", processes.keep_logs()))),
    }
}

async fn show(
    args: &DemoArgs,
    processes: &mut Processes,
    report: &mut Report,
    began: Instant,
) -> Result<Cluster, Failure> {
    report.title(&format!(
        "routerctl demo: 1 control plane on SQLite, {} dataplane replicas, {} mock engines (no model runs)",
        args.replicas, args.engines
    ))?;
    let mut cluster = processes.start(args.replicas, args.engines).await?;
    report.line(&format!("started in {:.1} s", began.elapsed().as_secs_f64()))?;
    for (label, address) in cluster.addresses() {
        report.value(&label, &address)?;
    }
    let scenes = async {
        affinity::show(&cluster, report).await?;
        burst::show(&cluster, report).await?;
        live_drain::show(&mut cluster, report).await
    };
    tokio::select! {
        shown = scenes => shown?,
        error = processes.first_end() => return Err(Failure::failed(error.to_string())),
    }
    report.title(&format!(
        "{} of {} checks passed in {:.1} s",
        report.total() - report.failed(),
        report.total(),
        began.elapsed().as_secs_f64()
    ))?;
    Ok(cluster)
}

/// As data, when asked for that; people have read it as it came.
fn finish(report: &Report, format: Format) -> Outcome {
    if format == Format::Table {
        return Ok(());
    }
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let mut out =
        Out { stdout: &mut stdout, stderr: &mut stderr, format, is_live: false, can_ask: false, now_unix_ms: 0 };
    out.answer(report)
}

fn say(text: &str) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

#[cfg(test)]
mod tests;
