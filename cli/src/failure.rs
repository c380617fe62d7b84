//! Why a command did not succeed, and the exit code that scripts see for it. The only place where codes are numbers.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The part of `--help` that states the exit codes.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  failed: refused by the control plane, not found, or an error while running
   64  usage or configuration error, also in a file that `-f` names: nothing was started, sent or changed
   69  the control plane is unreachable or can't answer now: nothing was changed, the call may be repeated
  124  `--timeout` passed
  130  stopped by a second signal
`routerctl diff` answers as diff(1) does: 0 no difference, 1 differences, 2 trouble.
`routerctl rules test` likewise: 0 the request passes, 1 a rule refuses it, 2 trouble.";

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `diff` found differences. Says nothing: the differences are the answer.
    Differs,
    /// `rules test` found that the request is refused. Says nothing: that is the answer.
    Rejected,
    /// Refused, not found, or an error while running.
    Failed,
    /// `diff` could not compare, `rules test` not test.
    Trouble,
    /// The command line or a role's configuration is wrong.
    Usage,
    /// A document can't be read, or something is wrong with what it says. The control plane was not asked.
    Document,
    /// The control plane can't be reached or can't answer now.
    Unavailable,
    /// `--timeout` passed.
    TimedOut,
    /// A second signal came during shutdown.
    Interrupted,
    /// Nobody reads the output any more.
    OutputClosed,
}

impl Kind {
    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            // A reader that has seen enough (`| head`) is no error.
            Self::OutputClosed => 0,
            Self::Differs | Self::Rejected | Self::Failed => 1,
            Self::Trouble => 2,
            Self::Usage | Self::Document => 64,
            Self::Unavailable => 69,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
        }
    }
}

/// A failure with its text, one complaint per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which exit code it gets.
    pub(crate) kind: Kind,
    /// What to tell the operator; empty for silence.
    pub(crate) message: String,
}

/// What commands return.
pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure of any kind.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Exit code 1.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// Exit code 64.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Exit code 64 with every complaint about a configuration.
    pub(crate) fn complaints<T: fmt::Display>(complaints: &[T]) -> Self {
        let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        Self::usage(lines.join("\n"))
    }

    /// The same text with a hint after it.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.message.push_str("; ");
        self.message.push_str(hint);
        self
    }

    /// Says why, if there is anything to say, and returns the exit code.
    pub(crate) fn report(&self, stderr: &mut dyn io::Write) -> ExitCode {
        for line in self.message.lines() {
            // With stderr gone there is nobody left to tell.
            drop(writeln!(stderr, "error: {line}"));
        }
        ExitCode::from(self.kind.code())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Self::new(Kind::OutputClosed, ""),
            _ => Self::failed(format!("{error:#}")),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Kind::OutputClosed, ""),
            _ => Self::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_that_can_happen_is_documented() {
        let kinds = [
            Kind::Differs,
            Kind::Rejected,
            Kind::Failed,
            Kind::Usage,
            Kind::Document,
            Kind::Unavailable,
            Kind::TimedOut,
            Kind::Interrupted,
        ];
        for kind in kinds {
            assert!(EXIT_CODES.contains(&format!("{:>5}  ", kind.code())), "{kind:?}");
        }
        assert!(EXIT_CODES.contains("2 trouble"));
        assert_eq!(Kind::Trouble.code(), 2);
    }

    #[test]
    fn each_complaint_is_a_line_of_its_own() {
        let mut stderr = Vec::new();
        Failure::complaints(&["--listen: a", "--threads: b"]).report(&mut stderr);
        assert_eq!(String::from_utf8(stderr).unwrap(), "error: --listen: a\nerror: --threads: b\n");
    }

    #[test]
    fn a_closed_output_is_silent_success() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.kind.code(), failure.message.as_str()), (0, ""));
        let wrapped = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("print");
        assert_eq!(Failure::from(wrapped).kind, Kind::OutputClosed);
    }
}
