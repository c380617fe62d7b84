//! Reading the logs of processes under test: a line of level WARN or ERROR that the test didn't declare fails it.

use std::fmt::Write as _;
use std::io::Write as _;

/// Lines shown of each log when a test fails.
const TAIL_LINES: usize = 40;

/// Takes out terminal colours.
pub fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' {
            // `ESC [ … letter`
            for next in chars.by_ref() {
                if next.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            plain.push(char);
        }
    }
    plain
}

/// Writes text to the test's own stderr.
pub fn show(text: &str) {
    // There is nothing left to do when stderr is gone.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The last lines of a log under a heading.
pub fn tail(name: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let skipped = lines.len().saturating_sub(TAIL_LINES);
    let mut text = format!("--- log of {name}, last {} of {} lines\n", lines.len() - skipped, lines.len());
    for line in lines.iter().skip(skipped) {
        // Writing to a String doesn't fail.
        let _ = writeln!(text, "{line}");
    }
    text
}

/// The lines at WARN or ERROR, and panics, that contain none of `declared`.
pub fn undeclared<'a>(log: &'a str, declared: &[String]) -> Vec<&'a str> {
    let is_loud = |line: &&str| {
        let head = line.get(..60).unwrap_or(line);
        let level = |word: &str| head.split_whitespace().any(|part| part == word);
        level("WARN")
            || level("ERROR")
            || line.contains("panicked at")
            || line.contains("\"level\":\"WARN\"")
            || line.contains("\"level\":\"ERROR\"")
    };
    log.lines().filter(is_loud).filter(|line| !declared.iter().any(|piece| line.contains(piece.as_str()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:00Z  INFO a: started\n\
                       2026-01-01T00:00:00Z  WARN b: link lost error=x\n\
                       2026-01-01T00:00:00Z ERROR c: disk full\n\
                       thread 'main' panicked at src/main.rs\n\
                       2026-01-01T00:00:00Z  INFO d: a client said WARN in a long sentence that goes past the level column";

    #[test]
    fn warnings_errors_and_panics_are_found() {
        assert_eq!(undeclared(LOG, &[]).len(), 3 + usize::from(LOG.lines().last().unwrap()[..60].contains(" WARN ")));
    }

    #[test]
    fn declared_ones_are_not() {
        let declared = ["link lost", "disk full", "panicked", "a client said"].map(str::to_owned);
        assert_eq!(undeclared(LOG, &declared), Vec::<&str>::new());
    }

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(without_colours("\u{1b}[33m WARN\u{1b}[0m x"), " WARN x");
    }
}
