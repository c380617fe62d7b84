//! The collector's settings: a clap struct with the environment names of the reference (payloads.md §7.1), checked whole
//! before a port opens.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};

use super::housekeep::Keep;
use crate::bodylog::zone;

/// Longest that anything can be kept, in days: 100 years.
const MOST_DAYS: u32 = 36_500;

/// The collector of the body log: takes request and response bodies from replicas, keeps them in files, answers questions.
#[derive(Debug, Clone, clap::Args)]
pub struct CollectorArgs {
    /// Address where replicas deliver; there is no token, so keep it where only replicas come
    #[arg(long, env = "BODYLOG_HOST", default_value = "127.0.0.1", value_name = "IP")]
    host: String,
    /// Port where replicas deliver
    #[arg(long, env = "BODYLOG_PORT", default_value = "9999", value_name = "PORT")]
    port: String,
    /// Address of `/summary`, `/details`, `/metrics` and `/healthz`; one that others reach needs a token
    #[arg(long, env = "BODYLOG_HTTP_HOST", default_value = "127.0.0.1", value_name = "IP")]
    http_host: String,
    /// Port of `/summary`, `/details`, `/metrics` and `/healthz`
    #[arg(long, env = "BODYLOG_HTTP_PORT", default_value = "9998", value_name = "PORT")]
    http_port: String,
    /// Serve `/metrics` for Prometheus here too, without a token; `:9110` is all addresses [default: off]
    #[arg(long, env = "EXPORTER_LISTEN", value_name = "IP:PORT")]
    exporter_listen: Option<String>,
    /// Folder of all files; taken by one collector alone
    #[arg(long, env = "BODYLOG_DIR", default_value = "bodylog", value_name = "FOLDER")]
    dir: PathBuf,
    /// Days that full records are kept
    #[arg(long, env = "BODYLOG_KEEP_DAYS", default_value = "90", value_name = "DAYS")]
    keep_days: String,
    /// Days that details are kept
    #[arg(long, env = "BODYLOG_DETAILS_KEEP_DAYS", default_value = "365", value_name = "DAYS")]
    details_keep_days: String,
    /// Whether to keep details, a row without bodies for each request
    #[arg(long, env = "BODYLOG_DETAILS", default_value = "on", value_name = "on|off")]
    details: String,
    /// Time zone of files and days, by its name
    #[arg(long, env = "DATE_TZ", default_value = "UTC", value_name = "ZONE")]
    zone: String,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where replicas deliver. The caller binds it.
    pub frames: SocketAddr,
    /// The HTTP port. The caller binds it.
    pub http: SocketAddr,
    /// Prometheus' own port, if any. The caller binds it.
    pub exporter: Option<SocketAddr>,
    /// Folder of all files.
    pub dir: PathBuf,
    pub(crate) keep: Keep,
    pub(crate) with_details: bool,
    pub(crate) zone: TimeZone,
    pub(crate) token: Option<[u8; 32]>,
}

impl CollectorArgs {
    /// Checks every setting; the error holds one complaint per bad one. `token` is what the HTTP port asks for.
    pub fn validate(&self, token: Option<&str>) -> Result<Config, Vec<String>> {
        let mut complaints = Vec::new();
        let mut take = Complaints(&mut complaints);
        let frames = take.address("--host", &self.host, "--port", &self.port);
        let http = take.address("--http-host", &self.http_host, "--http-port", &self.http_port);
        let exporter = self.exporter_listen.as_deref().filter(|text| !matches!(text.trim(), "" | "off"));
        let exporter = exporter.map(|text| take.checked("--exporter-listen", listen(text)));
        let full = take.checked("--keep-days", days(&self.keep_days));
        let details = take.checked("--details-keep-days", days(&self.details_keep_days));
        let with_details = take.checked("--details", on_off(&self.details));
        let zone = take.checked("--zone", zone::parse(&self.zone));
        if let Some(http) = http.filter(|http| !http.ip().is_loopback() && token.is_none()) {
            complaints.push(format!(
                "--http-host: {} can be reached by others, and nobody is asked for a token; set BODYLOG_HTTP_TOKEN or \
                 --http-token-file, or choose a loopback address",
                http.ip()
            ));
        }
        match (frames, http, exporter, full, details, with_details, zone) {
            (
                Some(frames),
                Some(http),
                None | Some(Some(_)),
                Some(full),
                Some(details),
                Some(with_details),
                Some(zone),
            ) if complaints.is_empty() => Ok(Config {
                frames,
                http,
                exporter: exporter.flatten(),
                dir: self.dir.clone(),
                keep: Keep { full, details },
                with_details,
                zone,
                token: token.map(|token| Sha256::digest(token).into()),
            }),
            _ => Err(complaints),
        }
    }
}

struct Complaints<'a>(&'a mut Vec<String>);

impl Complaints<'_> {
    fn checked<T>(&mut self, flag: &str, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.0.push(format!("{flag}: {problem}"))).ok()
    }

    fn address(&mut self, host_flag: &str, host: &str, port_flag: &str, port: &str) -> Option<SocketAddr> {
        let parsed = host.trim().parse::<IpAddr>().map_err(|_| format!("IP address expected, got {host:?}"));
        let ip = self.checked(host_flag, parsed);
        let parsed = port.trim().parse::<u16>();
        let port = parsed.map_err(|_| format!("port expected, got {port:?}; allowed: 1 to 65535, 0 for a free one"));
        let port = self.checked(port_flag, port);
        Some(SocketAddr::new(ip?, port?))
    }
}

/// `IP:PORT`, or `:PORT` for all addresses.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    let whole = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| format!("IP:PORT, :PORT or off expected, got {text:?}"))
}

fn days(text: &str) -> Result<u32, String> {
    match text.trim().parse() {
        Ok(days) if (1..=MOST_DAYS).contains(&days) => Ok(days),
        _ => Err(format!("whole number of days expected, got {text:?}; allowed: 1 to {MOST_DAYS}")),
    }
}

fn on_off(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(format!("on or off expected, got {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CollectorArgs,
    }

    fn args(more: &[&str]) -> CollectorArgs {
        Cli::parse_from(std::iter::once("test").chain(more.iter().copied())).args
    }

    #[test]
    fn payloads_7_1_defaults_work_and_are_for_this_machine_alone() {
        let config = args(&[]).validate(None).unwrap();
        assert_eq!(config.frames.to_string(), "127.0.0.1:9999");
        assert_eq!(config.http.to_string(), "127.0.0.1:9998");
        assert_eq!(config.keep, Keep { full: 90, details: 365 });
        assert!(config.exporter.is_none() && config.with_details && config.token.is_none());
        assert_eq!(config.zone, TimeZone::get("UTC").unwrap());
    }

    #[test]
    fn others_reach_the_http_port_only_with_a_token() {
        let open = args(&["--http-host=0.0.0.0", "--exporter-listen=:9110"]);
        let complaints = open.validate(None).unwrap_err();
        assert!(complaints.len() == 1 && complaints[0].starts_with("--http-host: 0.0.0.0 "), "{complaints:?}");
        let config = open.validate(Some("secret")).unwrap();
        assert_eq!(config.exporter.unwrap().to_string(), "0.0.0.0:9110");
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn every_bad_setting_is_reported_at_once() {
        let complaints = args(&[
            "--host=localhost",
            "--port=x",
            "--http-port=70000",
            "--exporter-listen=9110",
            "--keep-days=0",
            "--details-keep-days=-1",
            "--details=maybe",
            "--zone=Mars/Base",
        ])
        .validate(None)
        .unwrap_err();
        let starts = [
            "--host: IP address expected",
            "--port: port expected, got \"x\"; allowed: ",
            "--http-port: ",
            "--exporter-listen: IP:PORT, :PORT or off expected",
            "--keep-days: whole number of days expected, got \"0\"; allowed: 1 to ",
            "--details-keep-days: ",
            "--details: on or off expected",
            "--zone: time zone expected",
        ];
        assert_eq!(complaints.len(), starts.len(), "{complaints:?}");
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
        }
    }
}
