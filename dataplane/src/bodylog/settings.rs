//! The replica's body log flags. `cli` takes the same ones for the replicas that it starts.

use jiff::tz::TimeZone;
use router_policy::option::kind::{Kind, Value};

use super::zone;

/// Smallest and largest `--bodylog-buffer`, in bytes.
const BUFFER: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 30;

/// Where captured bodies go. Without a host nothing is captured.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Body log")]
pub struct BodyLogArgs {
    /// Host of the body log's collector. Turns the log on: the bodies of every route go there, in plain text over TCP, but
    /// for routes with `bodylog_default_enabled=false`; blank for none
    #[arg(long, env = "BODYLOG_LISTENER_HOST", default_value = "", hide_default_value = true, value_name = "HOST")]
    pub bodylog_host: String,
    /// Port of the body log's collector
    #[arg(long, env = "BODYLOG_LISTENER_PORT", default_value_t = 9999, value_name = "PORT")]
    pub bodylog_port: u16,
    /// Time zone of the times in the body log
    #[arg(long, env = "ROUTER_BODYLOG_ZONE", default_value = "UTC", value_name = "ZONE")]
    pub bodylog_zone: String,
    /// Memory for what is being captured and what waits for the collector; what does not fit is dropped and counted
    #[arg(long, env = "ROUTER_BODYLOG_BUFFER", default_value = "256MiB", value_name = "SIZE")]
    pub bodylog_buffer: String,
}

/// Checked settings of a body log that is on.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) zone: TimeZone,
    /// In bytes.
    pub(crate) buffer: usize,
}

impl BodyLogArgs {
    /// Checks all of them, also when the log is off; the error holds one complaint per bad one. `None`: off.
    pub fn validate(&self) -> Result<Option<Settings>, Vec<String>> {
        let mut complaints = Vec::new();
        let host = self.bodylog_host.trim();
        // A bracketed IPv6 address is one all the same.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
            complaints.push(format!("--bodylog-host: name or address of a host expected, got {host:?}"));
        }
        if self.bodylog_port == 0 {
            complaints.push("--bodylog-port: 1 to 65535 expected, got 0".to_owned());
        }
        let zone = zone::parse(&self.bodylog_zone).map_err(|problem| format!("--bodylog-zone: {problem}"));
        let buffer = size(&self.bodylog_buffer).map_err(|problem| format!("--bodylog-buffer: {problem}"));
        match (zone, buffer) {
            (Ok(zone), Ok(buffer)) if complaints.is_empty() => {
                let settings = Settings { host: host.to_owned(), port: self.bodylog_port, zone, buffer };
                Ok(Some(settings).filter(|settings| !settings.host.is_empty()))
            }
            (zone, buffer) => {
                complaints.extend([zone.err(), buffer.err()].into_iter().flatten());
                Err(complaints)
            }
        }
    }
}

fn size(text: &str) -> Result<usize, String> {
    let kind = Kind::Bytes { min: *BUFFER.start(), max: *BUFFER.end() };
    match kind.parse_text(text) {
        Ok(Value::Bytes(size)) => usize::try_from(size).map_err(|_| "more than this machine can address".to_owned()),
        Ok(_) => Err("size expected".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BodyLogArgs,
    }

    fn validate(flags: &[&str]) -> Result<Option<Settings>, Vec<String>> {
        Cli::parse_from(std::iter::once("test").chain(flags.iter().copied())).args.validate()
    }

    #[test]
    fn payloads_6_a_blank_host_is_off_and_the_rest_has_defaults() {
        for off in [&[][..], &["--bodylog-host="], &["--bodylog-host= \t", "--bodylog-port=1"]] {
            assert!(validate(off).unwrap().is_none(), "{off:?}");
        }
        let on = validate(&["--bodylog-host= collector "]).unwrap().unwrap();
        assert_eq!((on.host.as_str(), on.port, on.buffer), ("collector", 9999, 256 << 20));
        assert_eq!(on.zone.iana_name(), Some("UTC"));
        assert_eq!(validate(&["--bodylog-host=[::1]"]).unwrap().unwrap().host, "::1");
    }

    #[test]
    fn every_bad_setting_is_reported_at_once_also_when_it_is_off() {
        let bad = ["--bodylog-port=0", "--bodylog-zone=Mars", "--bodylog-buffer=1"];
        let starts = ["--bodylog-port: ", "--bodylog-zone: ", "--bodylog-buffer: "];
        let complaints = validate(&bad).unwrap_err();
        assert_eq!(complaints.len(), starts.len(), "{complaints:?}");
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
        }
        assert!(validate(&["--bodylog-host=http://x"]).unwrap_err()[0].starts_with("--bodylog-host: "));
    }
}
