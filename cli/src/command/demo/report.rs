//! What the demo prints as it goes, and the same as data for `-o json`.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Outcome;
use crate::output::Answer;

/// Width of labels, so that all values of the report stand in one column.
const LABEL_WIDTH: usize = 28;

/// One claim and whether it held.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) claim: String,
    pub(crate) passed: bool,
    pub(crate) detail: String,
}

/// A number that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Everything that was shown.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) checks: Vec<Check>,
    pub(crate) values: Vec<Measured>,
    #[serde(skip)]
    is_spoken: bool,
}

impl Report {
    /// An empty report; a spoken one is printed line by line.
    pub(crate) fn new(is_spoken: bool) -> Self {
        Self { checks: Vec::new(), values: Vec::new(), is_spoken }
    }

    /// A heading.
    pub(crate) fn title(&mut self, text: &str) -> Outcome {
        self.say(&format!("\n{text}"))
    }

    /// A line of explanation.
    pub(crate) fn line(&mut self, text: &str) -> Outcome {
        self.say(&format!("  {text}"))
    }

    /// A number with its name.
    pub(crate) fn value(&mut self, name: &str, value: &str) -> Outcome {
        self.values.push(Measured { name: name.to_owned(), value: value.to_owned() });
        self.say(&format!("  {name:<LABEL_WIDTH$}  {value}"))
    }

    /// A claim, whether it held, and the numbers behind it.
    pub(crate) fn check(&mut self, passed: bool, claim: &str, detail: &str) -> Outcome {
        self.checks.push(Check { claim: claim.to_owned(), passed, detail: detail.to_owned() });
        self.say(&format!("  {}  {claim}: {detail}", word(passed)))
    }

    /// How many claims were checked.
    pub(crate) fn total(&self) -> usize {
        self.checks.len()
    }

    /// How many did not hold.
    pub(crate) fn failed(&self) -> usize {
        self.checks.iter().filter(|check| !check.passed).count()
    }

    fn say(&self, line: &str) -> Outcome {
        if self.is_spoken {
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "{line}")?;
            stdout.flush()?;
        }
        Ok(())
    }
}

fn word(passed: bool) -> &'static str {
    if passed { "PASS" } else { "FAIL" }
}

impl Answer for Report {
    fn print(&self, out: &mut dyn Write, _now_unix_ms: u64) -> io::Result<()> {
        for check in &self.checks {
            writeln!(out, "{}  {}: {}", word(check.passed), check.claim, check.detail)?;
        }
        Ok(())
    }
}
