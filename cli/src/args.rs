//! The command line. Verbs keep their own arguments in `command/`; here is what several of them share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use router_policy::ids::RouteName;
use router_policy::option::kind::parse_duration;
use router_policy::route::validate::parse_option_each;
use router_proto::v1;

use crate::command;
use crate::failure::EXIT_CODES;
use crate::mock_engine::MockEngineArgs;
use crate::output::Format;
use crate::process::LogFormat;
use crate::token::Role;

/// The inference router: its operator's tool, and every part of it as a process.
#[derive(Debug, Parser)]
#[command(name = "routerctl", version, after_help = EXIT_CODES, max_term_width = 120, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(flatten)]
    pub(crate) connect: OuterConnect,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every verb takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// How answers are printed. Field names of json and yaml are stable.
    #[arg(short = 'o', long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// How logs on stderr look. `RUST_LOG` sets their level (default: info).
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT", env = "ROUTER_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Shut down when stdin ends: a parent process holds its other end.
    #[arg(long, global = true, hide = true)]
    pub(crate) exit_on_stdin_eof: bool,
}

/// Where the control plane is, before the verb or from the environment.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Control plane (before or after an operator verb)")]
pub(crate) struct OuterConnect {
    /// The control plane's gRPC address [default: `http://127.0.0.1:7400`].
    #[arg(id = "outer_url", long = "control-plane", env = "ROUTER_CONTROL_PLANE", value_name = "URL")]
    control_plane: Option<String>,
    /// File with the operator's token, sent as `Authorization: Bearer`.
    #[arg(id = "outer_token_file", long = "token-file", env = "ROUTER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Where the control plane is, after an operator verb. Has no environment twin, so that what stands before the verb is
/// not overruled by the environment.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Control plane")]
pub(crate) struct Connect {
    /// The control plane's gRPC address [env: `ROUTER_CONTROL_PLANE`] [default: `http://127.0.0.1:7400`].
    #[arg(id = "connect_url", long = "control-plane", global = true, value_name = "URL")]
    pub(crate) control_plane: Option<String>,
    /// File with the operator's token, sent as `Authorization: Bearer` [env: `ROUTER_TOKEN_FILE`].
    #[arg(id = "connect_token_file", long = "token-file", global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connect {
    /// What stands after the verb wins over what stands before it.
    pub(crate) fn or(self, outer: OuterConnect) -> Self {
        Self {
            control_plane: self.control_plane.or(outer.control_plane),
            token_file: self.token_file.or(outer.token_file),
        }
    }
}

/// An operator verb with the connection flags after it.
#[derive(Debug, Args)]
pub(crate) struct Verb<T: Args> {
    // First, so that its flags are not listed under the heading of the connection.
    #[command(flatten)]
    pub(crate) args: T,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

/// An operator noun with verbs of its own below it.
#[derive(Debug, Args)]
pub(crate) struct Noun<T: Subcommand> {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) verb: T,
}

/// All verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a small system, show affinity, exact limits and a live drain, and stop it again.
    Demo(command::demo::DemoArgs),
    /// Start a control plane and dataplane replicas on this machine until Ctrl-C.
    Up(Box<command::up::UpArgs>),
    /// Run the control plane.
    #[command(name = "controlplane")]
    ControlPlane(Box<Role<router_controlplane::config::ControlPlaneArgs>>),
    /// Run one dataplane replica.
    #[command(name = "dataplane")]
    DataPlane(Box<Role<router_dataplane::config::DataplaneArgs>>),
    /// Run the collector of the body log, and ask it what passed.
    #[command(name = "bodylog", subcommand)]
    BodyLog(command::bodylog::BodyLogVerb),
    /// Run a mock inference engine, for demos and tests.
    MockEngine(Box<MockEngineArgs>),
    /// Add, list, show, set and remove routes.
    Route(Noun<command::route::RouteVerb>),
    /// Add, list, set and remove the backends of a route.
    Backend(Noun<command::backend::BackendVerb>),
    /// Test reject rules on a request.
    Rules(Noun<command::rules::RulesVerb>),
    /// Set, undo and list run-time switches and limits of a route or of all: on every replica, durable, for a time if asked.
    Toggle(Verb<command::toggle::ToggleArgs>),
    /// Take backends out of admission; running streams go on.
    Drain(Verb<command::drain::DrainArgs>),
    /// Take drained backends back in.
    Undrain(Verb<command::drain::UndrainArgs>),
    /// Take backends out for a time.
    Ban(Verb<command::ban::BanArgs>),
    /// End a ban.
    Unban(Verb<command::ban::UnbanArgs>),
    /// List, show and forget sessions.
    Session(Noun<command::session::SessionVerb>),
    /// Add, list and revoke client keys.
    Key(Noun<command::key::KeyVerb>),
    /// Make the stored routes as a file says: all of them or none.
    Apply(Verb<command::apply::ApplyArgs>),
    /// Show what `apply` would change. Exits with 0: nothing, 1: something, 2: trouble.
    Diff(Verb<command::apply::DiffArgs>),
    /// Take over another system's files: a route, its keys and its drains.
    Import(Noun<command::import::ImportVerb>),
    /// Print the stored routes in the form that `apply` takes.
    Export(Verb<command::export::ExportArgs>),
    /// Show the control plane, its database, the replicas, and every route with its load.
    Status(Verb<command::status::StatusArgs>),
    /// Exit with 0 when an HTTP address answers with 200: a health check for containers.
    Check(command::check::CheckArgs),
    /// Make the `.env` of the compose file, with new secrets.
    #[command(subcommand)]
    Env(command::env::EnvVerb),
    /// Print the shell's completion script.
    Completions(command::completions::CompletionsArgs),
}

/// Which backends a verb means. What is given must all match.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("selector").required(true).multiple(true).args(["port", "backend", "route"]))]
pub(crate) struct Selector {
    /// Backends on this port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// The backend of this address or name.
    #[arg(long, value_name = "HOST:PORT|NAME")]
    pub(crate) backend: Option<String>,
    /// Backends of this route.
    #[arg(long, value_name = "NAME")]
    pub(crate) route: Option<RouteName>,
}

impl From<Selector> for v1::BackendSelector {
    fn from(selector: Selector) -> Self {
        Self {
            port: selector.port.unwrap_or(0).into(),
            backend: selector.backend.unwrap_or_default(),
            route: selector.route.map(|name| name.to_string()).unwrap_or_default(),
        }
    }
}

/// `OPTION=VALUE`, checked by the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// A name from the catalogue.
    pub(crate) option: String,
    /// Its value as written.
    pub(crate) value: String,
}

/// Reads `OPTION=VALUE`.
pub(crate) fn assignment(text: &str) -> Result<Assignment, String> {
    let (option, value) = text.split_once('=').ok_or("OPTION=VALUE expected")?;
    match parse_option_each(option, &serde_json::Value::String(value.to_owned())) {
        Ok(_) => Ok(Assignment { option: option.to_owned(), value: value.to_owned() }),
        Err(complaints) => Err(complaints.to_string()),
    }
}

/// Reads the name of an option.
pub(crate) fn option_name(text: &str) -> Result<String, String> {
    match router_policy::option::find(text) {
        Some(option) => Ok(option.name.to_owned()),
        None => Err(command::route::options::unknown(text)),
    }
}

/// Reads how long something shall hold. A bare number could be meant as minutes.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let is_bare = text.parse::<f64>().is_ok();
    let unit = || format!("a time with its unit expected: {text}s, {text}m, {text}h or {text}d");
    if is_bare { Err(unit()) } else { duration(text) }
}

/// Reads a time such as `30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|span| !span.is_zero())
        .ok_or_else(|| "a time such as 90s, 30m, 2h or 1d expected".to_owned())
}

#[cfg(test)]
mod tests;
