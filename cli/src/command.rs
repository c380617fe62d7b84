//! The verbs, one file each. The ones that talk to the control plane end here in one connection and one answer.

use std::io::{self, IsTerminal as _};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::args::{Cli, Command, Connect};
use crate::client::Admin;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::{Format, Out};
use crate::process::{Shutdown, server_runtime, start_logs};

pub(crate) mod apply;
pub(crate) mod backend;
pub(crate) mod ban;
pub(crate) mod bodylog;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod controlplane;
pub(crate) mod dataplane;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod env;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod key;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod session;
pub(crate) mod status;
pub(crate) mod toggle;
pub(crate) mod up;

/// Carries out a command line.
pub(crate) fn run(cli: Cli) -> Outcome {
    start_logs(cli.global.log_format)?;
    let exit_on_stdin_eof = cli.global.exit_on_stdin_eof;
    let Cli { global, connect: outer, command } = cli;
    let format = global.output;
    let operate = move |connect: Connect, verb: OperatorVerb| {
        ask(format, async move |out| verb.run(&connect.or(outer), out).await)
    };
    match command {
        Command::ControlPlane(args) => {
            let config = controlplane::check(&args)?;
            serve(None, exit_on_stdin_eof, async |token| controlplane::run(&args.args, config, token).await)
        }
        Command::DataPlane(args) => {
            let config = dataplane::check(&args)?;
            serve(Some(config.threads), exit_on_stdin_eof, async |token| dataplane::run(config, token).await)
        }
        Command::BodyLog(bodylog::BodyLogVerb::Serve(args)) => {
            let config = args.check()?;
            serve(None, exit_on_stdin_eof, async |token| bodylog::serve::run(config, token).await)
        }
        Command::BodyLog(bodylog::BodyLogVerb::Ask(question)) => ask(format, async move |out| question.run(out).await),
        Command::MockEngine(args) => serve(None, exit_on_stdin_eof, async |token| {
            Ok(crate::mock_engine::run(*args, token.cancelled_owned()).await?)
        }),
        Command::Up(args) => {
            args.check()?;
            serve(Some(1), exit_on_stdin_eof, async |token| up::run(*args, global.log_format, token).await)
        }
        Command::Demo(args) => {
            serve(Some(1), exit_on_stdin_eof, async |token| demo::run(args, global.output, token).await)
        }
        Command::Check(args) => check::run(&args),
        Command::Env(verb) => verb.run(),
        Command::Completions(args) => completions::run(&args),
        Command::Route(noun) => operate(noun.connect, OperatorVerb::Route(noun.verb)),
        Command::Rules(noun) => operate(noun.connect, OperatorVerb::Rules(noun.verb)),
        Command::Backend(noun) => operate(noun.connect, OperatorVerb::Backend(noun.verb)),
        Command::Session(noun) => operate(noun.connect, OperatorVerb::Session(noun.verb)),
        Command::Key(noun) => operate(noun.connect, OperatorVerb::Key(noun.verb)),
        Command::Toggle(verb) => operate(verb.connect, OperatorVerb::Toggle(verb.args)),
        Command::Drain(verb) => operate(verb.connect, OperatorVerb::Drain(verb.args)),
        Command::Undrain(verb) => operate(verb.connect, OperatorVerb::Undrain(verb.args)),
        Command::Ban(verb) => operate(verb.connect, OperatorVerb::Ban(verb.args)),
        Command::Unban(verb) => operate(verb.connect, OperatorVerb::Unban(verb.args)),
        Command::Apply(verb) => operate(verb.connect, OperatorVerb::Apply(verb.args)),
        Command::Diff(verb) => operate(verb.connect, OperatorVerb::Diff(verb.args)),
        Command::Import(noun) => operate(noun.connect, OperatorVerb::Import(noun.verb)),
        Command::Export(verb) => operate(verb.connect, OperatorVerb::Export(verb.args)),
        Command::Status(verb) => operate(verb.connect, OperatorVerb::Status(verb.args)),
    }
}

/// Runs a verb that asks and prints, and then ends.
fn ask(format: Format, verb: impl AsyncFnOnce(&mut Out<'_>) -> Outcome) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("start the runtime: {error}")))?;
    let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr());
    let mut out = Out {
        stdout: &mut stdout,
        stderr: &mut stderr,
        format,
        is_live: io::stderr().is_terminal(),
        can_ask: io::stdin().is_terminal() && io::stderr().is_terminal(),
        now_unix_ms: now_unix_ms(),
    };
    runtime.block_on(verb(&mut out))
}

/// Runs a role until its end or a second signal. Work that is left then is not waited for.
fn serve(
    threads: Option<usize>,
    exit_on_stdin_eof: bool,
    role: impl AsyncFnOnce(tokio_util::sync::CancellationToken) -> Outcome,
) -> Outcome {
    let runtime = server_runtime(threads)?;
    let outcome = runtime.block_on(async {
        let shutdown = Shutdown::listen(exit_on_stdin_eof)?;
        let work = role(shutdown.token());
        shutdown.guard(Box::pin(work)).await
    });
    runtime.shutdown_background();
    outcome
}

/// A verb that needs the control plane.
#[derive(Debug)]
pub(crate) enum OperatorVerb {
    Route(route::RouteVerb),
    Rules(rules::RulesVerb),
    Backend(backend::BackendVerb),
    Session(session::SessionVerb),
    Key(key::KeyVerb),
    Toggle(toggle::ToggleArgs),
    Drain(drain::DrainArgs),
    Undrain(drain::UndrainArgs),
    Ban(ban::BanArgs),
    Unban(ban::UnbanArgs),
    Apply(apply::ApplyArgs),
    Diff(apply::DiffArgs),
    Import(import::ImportVerb),
    Export(export::ExportArgs),
    Status(status::StatusArgs),
}

impl OperatorVerb {
    /// Connects, unless the verb needs no control plane or checks something first, and carries it out.
    pub(crate) async fn run(self, connect: &Connect, out: &mut Out<'_>) -> Outcome {
        let admin = async || Admin::connect(connect).await;
        match self {
            Self::Route(route::RouteVerb::Options(args)) => route::options::run(&args, out),
            Self::Rules(verb) => trouble(verb.run(connect, out).await),
            Self::Diff(args) => trouble(apply::diff(args, connect, out).await),
            Self::Apply(args) => apply::apply(args, connect, out).await,
            Self::Import(verb) => verb.run(connect, out).await,
            Self::Route(verb) => verb.run(&mut admin().await?, out).await,
            Self::Backend(verb) => verb.run(&mut admin().await?, out).await,
            Self::Session(verb) => verb.run(&mut admin().await?, out).await,
            Self::Key(verb) => verb.run(&mut admin().await?, out).await,
            Self::Toggle(args) => toggle::run(args, &mut admin().await?, out).await,
            Self::Drain(args) => drain::drain(args, &mut admin().await?, out).await,
            Self::Undrain(args) => drain::undrain(args, &mut admin().await?, out).await,
            Self::Ban(args) => ban::ban(args, &mut admin().await?, out).await,
            Self::Unban(args) => ban::unban(args, &mut admin().await?, out).await,
            Self::Export(args) => export::run(args, &mut admin().await?, out).await,
            Self::Status(args) => status::run(args, &mut admin().await?, out).await,
        }
    }
}

/// `diff` keeps 1 for "they differ", and `rules test` for "it is refused": whatever else went wrong is 2.
fn trouble(outcome: Outcome) -> Outcome {
    outcome.map_err(|failure| match failure.kind {
        Kind::Failed | Kind::Document | Kind::Unavailable => Failure { kind: Kind::Trouble, ..failure },
        _ => failure,
    })
}

/// The wall clock, for ages in tables.
fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
