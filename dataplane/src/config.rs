//! The replica's settings: a clap struct with environment twins, checked whole before a port opens. Called by `cli`.
//!
//! [`DataplaneArgs`] is what was written, [`Config`] is what is meant. A bad start reports every bad setting at once.

use std::net::SocketAddr;
use std::time::Duration;

use router_policy::option::kind::{Kind, Value, parse_duration};
use tonic::metadata::{Ascii, MetadataValue};

use crate::bodylog::settings::{self, BodyLogArgs};

/// Largest `--max-body-size`.
const MAX_BODY_CEILING: u64 = 4 << 30;
const DAY: Duration = Duration::from_secs(86_400);

/// A streaming proxy replica. All its state can be lost: start as many as needed.
#[derive(Debug, Clone, clap::Args)]
pub struct DataplaneArgs {
    /// Where clients connect
    #[arg(long, env = "ROUTER_LISTEN", default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    pub listen: SocketAddr,
    /// Health, readiness and metrics of this replica
    #[arg(long, env = "ROUTER_ADMIN_LISTEN", default_value = "127.0.0.1:8090", value_name = "HOST:PORT")]
    pub admin_listen: SocketAddr,
    /// The control plane's gRPC address
    #[arg(long, env = "ROUTER_CONTROL_PLANE", default_value = "http://127.0.0.1:7400", value_name = "URL")]
    pub control_plane: String,
    /// Worker threads; 0 for one per core
    #[arg(long, env = "ROUTER_THREADS", default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Largest request body on any route; a route's own `max_body_size` may be smaller
    #[arg(long, env = "ROUTER_MAX_BODY_SIZE", default_value = "200MiB", value_name = "SIZE")]
    pub max_body_size: String,
    /// Client connections at the same time; more wait in the listen backlog
    #[arg(long, env = "ROUTER_MAX_CONNECTIONS", default_value_t = 16_384, value_name = "N")]
    pub max_connections: usize,
    /// Time for a request's head, and how long a connection may idle before it
    #[arg(long, env = "ROUTER_HEADER_TIMEOUT", default_value = "30s", value_name = "TIME")]
    pub header_timeout: String,
    /// Longest silence while a request's body comes in
    #[arg(long, env = "ROUTER_BODY_TIMEOUT", default_value = "30s", value_name = "TIME")]
    pub body_timeout: String,
    /// How long a client may leave its answer unread before its connection is closed and its slot given back
    #[arg(long, env = "ROUTER_READ_TIMEOUT", default_value = "60s", value_name = "TIME")]
    pub read_timeout: String,
    /// Also answer the routes' pages (`/<route>/_…`) where clients connect, for those on this machine. The admin port always
    /// does
    #[arg(
        long, env = "ROUTER_DEBUG_ENDPOINTS", value_name = "true|false", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set
    )]
    pub debug_endpoints: bool,
    /// At shutdown: time for running streams to end
    #[arg(long, env = "ROUTER_GRACE", default_value = "30s", value_name = "TIME")]
    pub grace: String,
    /// At shutdown: how long to go on accepting while `/readyz` already says no
    #[arg(long, env = "ROUTER_DRAIN_DELAY", default_value = "0s", value_name = "TIME")]
    pub drain_delay: String,
    #[command(flatten)]
    pub bodylog: BodyLogArgs,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect. The caller binds it.
    pub listen: SocketAddr,
    /// The admin port. The caller binds it.
    pub admin_listen: SocketAddr,
    /// Worker threads for the caller's runtime; at least 1.
    pub threads: usize,
    pub(crate) control_plane: tonic::transport::Endpoint,
    pub(crate) token: Option<MetadataValue<Ascii>>,
    pub(crate) max_body_size: u64,
    pub(crate) max_connections: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) debug_endpoints: bool,
    pub(crate) grace: Duration,
    pub(crate) drain_delay: Duration,
    /// `None`: nothing is captured.
    pub(crate) bodylog: Option<settings::Settings>,
}

impl DataplaneArgs {
    /// Checks every setting; the error holds one complaint per bad one. `token` is shown to the control plane.
    pub fn validate(&self, token: Option<&str>) -> Result<Config, Vec<String>> {
        let mut complaints = Complaints::default();
        let control_plane = complaints.take("--control-plane", endpoint(&self.control_plane));
        let token = token.and_then(|token| complaints.take("token", bearer(token)));
        let max_body_size = complaints.take("--max-body-size", size(&self.max_body_size));
        let header_timeout =
            complaints.take("--header-timeout", duration(&self.header_timeout, Duration::from_millis(1)));
        let body_timeout = complaints.take("--body-timeout", duration(&self.body_timeout, Duration::from_millis(1)));
        let read_timeout = complaints.take("--read-timeout", duration(&self.read_timeout, Duration::from_millis(1)));
        let grace = complaints.take("--grace", duration(&self.grace, Duration::ZERO));
        let drain_delay = complaints.take("--drain-delay", duration(&self.drain_delay, Duration::ZERO));
        let bodylog = self.bodylog.validate().unwrap_or_else(|more| {
            complaints.0.extend(more);
            None
        });
        if self.max_connections == 0 {
            complaints.0.push("--max-connections: at least 1 expected, got 0".to_owned());
        }
        if self.listen == self.admin_listen && self.listen.port() != 0 {
            complaints.0.push(format!("--admin-listen: {} is --listen already; choose another port", self.listen));
        }
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            some => some,
        };
        match (control_plane, max_body_size, header_timeout, body_timeout, read_timeout, grace, drain_delay) {
            (
                Some(control_plane),
                Some(max_body_size),
                Some(header_timeout),
                Some(body_timeout),
                Some(read_timeout),
                Some(grace),
                Some(drain_delay),
            ) if complaints.0.is_empty() => Ok(Config {
                listen: self.listen,
                admin_listen: self.admin_listen,
                threads,
                control_plane,
                token,
                max_body_size,
                max_connections: self.max_connections,
                header_timeout,
                body_timeout,
                read_timeout,
                debug_endpoints: self.debug_endpoints,
                grace,
                drain_delay,
                bodylog,
            }),
            _ => Err(complaints.0),
        }
    }
}

#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn take<T>(&mut self, flag: &str, checked: Result<T, String>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(problem) => {
                self.0.push(format!("{flag}: {problem}"));
                None
            }
        }
    }
}

fn endpoint(url: &str) -> Result<tonic::transport::Endpoint, String> {
    const EXPECTED: &str = "http://host:port expected";
    let uri: http::Uri = url.parse().map_err(|_| EXPECTED.to_owned())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty());
    let has_path = uri.path_and_query().is_some_and(|path| path.as_str() != "/");
    if !is_plain || has_path {
        return Err(EXPECTED.to_owned());
    }
    Ok(tonic::transport::Endpoint::from(uri)
        // Short, so that the try that finds the control plane back is not kept waiting by the one before it.
        .connect_timeout(Duration::from_secs(1))
        // A dead link must be seen within a few seconds, also when nothing is sent (design.md §5).
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20))
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, String> {
    let parsed = format!("Bearer {token}").parse();
    let mut value: MetadataValue<Ascii> =
        parsed.map_err(|_| "holds characters that can't stand in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn size(text: &str) -> Result<u64, String> {
    match (Kind::Bytes { min: 1, max: MAX_BODY_CEILING }).parse_text(text) {
        Ok(Value::Bytes(size)) => Ok(size),
        Ok(_) => Err("size expected".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn duration(text: &str, min: Duration) -> Result<Duration, String> {
    let kind = Kind::Duration { min, max: DAY, optional: false };
    kind.parse_text(text).map_err(|error| error.to_string())?;
    parse_duration(text.trim()).ok_or_else(|| "duration expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: DataplaneArgs,
    }

    fn args(more: &[&str]) -> DataplaneArgs {
        Cli::parse_from(std::iter::once("test").chain(more.iter().copied())).args
    }

    #[test]
    fn every_default_works() {
        let config = args(&[]).validate(None).unwrap();
        assert_eq!(config.max_body_size, 200 << 20);
        assert_eq!(config.header_timeout, Duration::from_secs(30));
        assert!(config.threads >= 1);
        assert!(!config.debug_endpoints && args(&["--debug-endpoints"]).debug_endpoints);
        assert!(config.listen.ip().is_loopback() && config.admin_listen.ip().is_loopback());
    }

    #[test]
    fn every_bad_setting_is_reported_at_once() {
        let complaints = args(&[
            "--control-plane=https://x/y",
            "--max-body-size=much",
            "--grace=-1s",
            "--max-connections=0",
            "--bodylog-zone=Mars",
            "--admin-listen=127.0.0.1:8080",
        ])
        .validate(Some("line\nbreak"))
        .unwrap_err();
        let starts = [
            "--control-plane: ",
            "token: ",
            "--max-body-size: ",
            "--grace: ",
            "--bodylog-zone: ",
            "--max-conn",
            "--admin-",
        ];
        assert_eq!(complaints.len(), starts.len(), "{complaints:?}");
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
        }
    }
}
