//! Puts figures on stdout, as a table or as JSON.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use serde::Serialize;

/// The middle value; of an even count the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = values.get(middle.wrapping_sub(1)).copied().unwrap_or(upper);
    f64::midpoint(lower, upper)
}

/// Writes `rows` under `header`, the first column to the left, the others to the right.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> anyhow::Result<()> {
    let header = header.map(str::to_owned);
    let lines = || std::iter::once(&header).chain(rows);
    let mut text = String::new();
    for line in lines() {
        for (column, cell) in line.iter().enumerate() {
            let cells = lines().filter_map(|line| line.get(column));
            let width = cells.map(String::len).max().unwrap_or(0);
            // Writing to a String cannot fail.
            if column == 0 {
                let _ = write!(text, "{cell:<width$}");
            } else {
                let _ = write!(text, "  {cell:>width$}");
            }
        }
        text.push('\n');
    }
    std::io::stdout().lock().write_all(text.as_bytes()).context("write to stdout")
}

/// Writes `value` as JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("make JSON")?;
    writeln!(std::io::stdout().lock(), "{text}").context("write to stdout")
}

/// Writes a line of progress to stderr.
pub(crate) fn progress(line: &str) {
    // Progress that nobody can read is no reason to stop.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, expected) in [(vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0, 2.0, 3.0], 2.5), (vec![], 0.0)] {
            assert!((median(values) - expected).abs() < 1e-9);
        }
    }
}
