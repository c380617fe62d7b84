//! `routerctl drain`, `undrain`. With `--wait`, the in-flight requests are shown as they end.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use router_proto::v1;
use tonic::Streaming;

use crate::args::{Selector, duration};
use crate::client::Admin;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::Out;
use crate::output::json::BackendListing;
use crate::output::table::count;

/// Arguments of `drain`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    selector: Selector,
    /// Return when nothing is in flight any more, and show how it falls. Fails when a backend is taken back in meanwhile.
    #[arg(long)]
    wait: bool,
    /// Give up waiting after this long, for instance 10m; the drain stays. Exits with 124.
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = duration)]
    timeout: Option<Duration>,
}

/// Arguments of `undrain`.
#[derive(Debug, clap::Args)]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    selector: Selector,
}

/// Takes backends out of admission.
pub(crate) async fn drain(args: DrainArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let selector = v1::BackendSelector::from(args.selector);
    let backends = set(&selector, true, admin).await?;
    if !args.wait {
        return out.answer(&BackendListing::from(backends));
    }
    let answer = admin.rpc.watch_backends(v1::WatchBackendsRequest { selector: Some(selector) }).await;
    let states = admin.answer(answer)?;
    let drained = wait_until_idle(states, out);
    let backends = match args.timeout {
        None => drained.await?,
        Some(timeout) => tokio::time::timeout(timeout, drained).await.map_err(|_| {
            Failure::new(Kind::TimedOut, format!("requests are still in flight after {} s", timeout.as_secs_f64()))
                .hint("the drain stays; call again with --wait, or `routerctl undrain` to take them back in")
        })??,
    };
    out.answer(&BackendListing::from(backends))
}

/// Takes backends back in.
pub(crate) async fn undrain(args: UndrainArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let backends = set(&args.selector.into(), false, admin).await?;
    out.answer(&BackendListing::from(backends))
}

async fn set(selector: &v1::BackendSelector, drain: bool, admin: &mut Admin) -> Result<Vec<v1::BackendState>, Failure> {
    let answer = admin.rpc.set_drain(v1::SetDrainRequest { selector: Some(selector.clone()), drain }).await;
    Ok(admin.answer(answer)?.backends)
}

/// Follows the backends until each is out of admission with nothing in flight. A drain that somebody undoes meanwhile, here or
/// in the control file, is a failure: whoever waits is about to stop the engine.
async fn wait_until_idle(
    mut states: Streaming<v1::BackendStates>,
    out: &mut Out<'_>,
) -> Result<Vec<v1::BackendState>, Failure> {
    let mut progress: Option<Progress> = None;
    // An end and a break of the watch mean the same: whoever told of the backends is gone.
    while let Some(now) = states.message().await.unwrap_or_else(|status| {
        tracing::debug!(%status, "the watch broke off");
        None
    }) {
        if let Some(undrained) = undone(&now.backends) {
            if let Some(progress) = progress {
                progress.end();
            }
            return Err(undrained);
        }
        let in_flight: u64 = now.backends.iter().map(|backend| u64::from(backend.in_flight)).sum();
        progress.get_or_insert_with(|| Progress::new(in_flight, out.is_live)).show(in_flight, &now.backends, out);
        if in_flight == 0 {
            if let Some(progress) = progress {
                progress.end();
            }
            return Ok(now.backends);
        }
    }
    Err(Failure::new(Kind::Unavailable, "the control plane ended the watch")
        .hint("the drain stays; call again with --wait"))
}

/// The failure that backends mean which take requests again.
fn undone(backends: &[v1::BackendState]) -> Option<Failure> {
    let is_out = |condition: v1::Condition| condition.draining || condition.removed;
    let back = backends.iter().filter(|backend| !backend.condition.is_some_and(is_out));
    let names: Vec<String> = back.map(|backend| format!("{} of route {}", backend.address, backend.route)).collect();
    let verb = if names.len() == 1 { "was" } else { "were" };
    (!names.is_empty()).then(|| {
        Failure::failed(format!("{} {verb} undrained meanwhile", names.join(", ")))
            .hint("somebody took it back in, by `routerctl undrain` or in the control file; drain it again")
    })
}

/// A bar for a person, a line per change for a log.
struct Progress {
    bar: Option<ProgressBar>,
    most: u64,
    last: Option<u64>,
}

impl Progress {
    fn new(in_flight: u64, is_live: bool) -> Self {
        let bar = is_live.then(|| {
            let bar = ProgressBar::with_draw_target(Some(in_flight), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("draining [{bar:30}] {msg} ({elapsed})");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Self { bar, most: in_flight, last: None }
    }

    fn show(&mut self, in_flight: u64, backends: &[v1::BackendState], out: &mut Out<'_>) {
        self.most = self.most.max(in_flight);
        if self.last.replace(in_flight) == Some(in_flight) {
            return;
        }
        let busy: Vec<String> = backends
            .iter()
            .filter(|backend| backend.in_flight > 0)
            .map(|backend| format!("{} {}", backend.address, backend.in_flight))
            .collect();
        let detail = if busy.is_empty() { String::new() } else { format!(": {}", busy.join(", ")) };
        let text = format!("{} in flight{detail}", count(in_flight, "request"));
        match &self.bar {
            None => out.note(&text),
            Some(bar) => {
                bar.set_length(self.most);
                bar.set_position(self.most - in_flight);
                bar.set_message(text);
            }
        }
    }

    fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
