//! Answers: tables for people, JSON and YAML for scripts. Data goes to stdout, everything else to stderr; both are passed in.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::{Failure, Outcome};

pub(crate) mod diff;
pub(crate) mod json;
pub(crate) mod table;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    // Plain comments: in help these words need no explanation.
    #[default]
    Table,
    Json,
    Yaml,
}

/// An answer: its fields are the JSON and YAML form.
pub(crate) trait Answer: Serialize {
    /// The form for people. `now_unix_ms` is for ages.
    fn print(&self, out: &mut dyn Write, now_unix_ms: u64) -> io::Result<()>;
}

/// Where a verb prints.
pub(crate) struct Out<'a> {
    /// Data.
    pub(crate) stdout: &'a mut dyn Write,
    /// Everything else.
    pub(crate) stderr: &'a mut dyn Write,
    /// As asked for by `-o`.
    pub(crate) format: Format,
    /// Whether a person watches stderr: progress may be drawn.
    pub(crate) is_live: bool,
    /// Whether a person can be asked.
    pub(crate) can_ask: bool,
    /// The wall clock.
    pub(crate) now_unix_ms: u64,
}

impl Out<'_> {
    /// Prints an answer in the format asked for.
    pub(crate) fn answer(&mut self, answer: &impl Answer) -> Outcome {
        match self.format {
            Format::Table => answer.print(self.stdout, self.now_unix_ms)?,
            Format::Json => write_json(self.stdout, answer)?,
            Format::Yaml => write_yaml(self.stdout, answer)?,
        }
        Ok(self.stdout.flush()?)
    }

    /// Says something that is not data. A stderr that is gone changes nothing.
    pub(crate) fn note(&mut self, text: &str) {
        drop(writeln!(self.stderr, "{text}"));
    }

    /// Asks before something is lost. Without a person to ask, `--yes` must have said so.
    pub(crate) fn confirm(&mut self, question: &str) -> Outcome {
        if !self.can_ask {
            return Err(Failure::usage(format!("{question} Pass --yes to confirm")));
        }
        drop(write!(self.stderr, "{question} [y/N] "));
        drop(self.stderr.flush());
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::failed("not confirmed; nothing was changed")),
        }
    }
}

/// Indented JSON with a line end.
pub(crate) fn write_json(out: &mut dyn Write, value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::failed(format!("print json: {error}")))?;
    Ok(writeln!(out, "{text}")?)
}

/// YAML.
pub(crate) fn write_yaml(out: &mut dyn Write, value: &impl Serialize) -> Outcome {
    let text = serde_saphyr::to_string(value).map_err(|error| Failure::failed(format!("print yaml: {error}")))?;
    Ok(writeln!(out, "{}", text.trim_end())?)
}

#[cfg(test)]
mod tests;
