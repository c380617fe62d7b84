//! Aligned columns without borders, and the words and units that tables use.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};

use super::json::BackendView;

/// Columns with a heading each.
pub(crate) struct Columns {
    table: Table,
    rows: usize,
}

impl Columns {
    /// A table with these headings. One that starts with `>` is a number's: aligned to the right.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(headings.iter().map(|heading| heading.trim_start_matches('>')));
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table, rows: 0 }
    }

    /// Adds a row.
    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.table.add_row(cells.into_iter().map(Into::<String>::into));
        self.rows += 1;
    }

    /// Prints it, or `empty` when it has no rows.
    pub(crate) fn print(&self, out: &mut dyn Write, indent: &str, empty: &str) -> io::Result<()> {
        if self.rows == 0 {
            return writeln!(out, "{indent}{empty}");
        }
        for line in self.table.lines() {
            writeln!(out, "{indent}{}", line.trim_end())?;
        }
        Ok(())
    }

    /// Prints it with a paragraph below each row.
    pub(crate) fn print_with_notes(&self, out: &mut dyn Write, notes: &[&str]) -> io::Result<()> {
        let mut lines = self.table.lines();
        if let Some(heading) = lines.next() {
            writeln!(out, "{}", heading.trim_end())?;
        }
        for (row, note) in self.table.row_iter().zip(notes) {
            let height = row.cell_iter().map(|cell| cell.content().lines().count()).max().unwrap_or(1).max(1);
            for line in lines.by_ref().take(height) {
                writeln!(out, "{}", line.trim_end())?;
            }
            print_wrapped(out, "    ", note)?;
        }
        Ok(())
    }
}

/// Prints `key  value` lines with the values aligned.
pub(crate) fn print_pairs(out: &mut dyn Write, pairs: &[(&str, String)]) -> io::Result<()> {
    let width = pairs.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in pairs {
        writeln!(out, "{}", format!("{key:<width$}  {value}").trim_end())?;
    }
    Ok(())
}

/// Prints a paragraph in lines of at most 100 characters.
pub(crate) fn print_wrapped(out: &mut dyn Write, indent: &str, text: &str) -> io::Result<()> {
    let mut line = String::new();
    for word in text.split_ascii_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + 1 + word.len() > 100 {
            writeln!(out, "{indent}{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    writeln!(out, "{indent}{line}")
}

/// The table of backends that several verbs print.
pub(crate) fn print_backends(
    out: &mut dyn Write,
    indent: &str,
    backends: &[BackendView],
    with_route: bool,
) -> io::Result<()> {
    // Only where some backend states them.
    let with_tier = backends.iter().any(|backend| backend.priority != 0);
    let with_models = backends.iter().any(|backend| !backend.models.is_empty());
    let headings = [
        (with_route, "ROUTE"),
        (true, "BACKEND"),
        (true, "NAME"),
        (with_tier, ">TIER"),
        (with_models, "MODELS"),
        (true, "STATE"),
        (true, ">IN FLIGHT"),
        (true, ">SESSIONS"),
        (true, ">GRANTED"),
        (true, ">FAILURES"),
        (true, "REASON"),
    ];
    let shown: Vec<&str> = headings.iter().filter(|(is_shown, _)| *is_shown).map(|(_, heading)| *heading).collect();
    let mut columns = Columns::new(&shown);
    for backend in backends {
        let cells = [
            backend.route.clone(),
            backend.address.clone(),
            or_dash(backend.name.as_deref()),
            backend.priority.to_string(),
            // One below the other: their names may be long.
            backend.models.join(",\n"),
            state_words(backend),
            format!("{}/{}", backend.in_flight, backend.limit),
            backend.sessions.to_string(),
            backend.granted_total.to_string(),
            backend.failures_total.to_string(),
            backend.reason.clone().unwrap_or_default(),
        ];
        columns.row(cells.into_iter().zip(headings).filter(|(_, (is_shown, _))| *is_shown).map(|(cell, _)| cell));
    }
    columns.print(out, indent, "no backends")
}

/// A text, or `-` for none.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

/// `ready`, or everything that stands in the way.
fn state_words(backend: &BackendView) -> String {
    let ban_left = backend.ban_left_ms.map(|left| format!(" for {}", span(left))).unwrap_or_default();
    backend
        .states
        .iter()
        .map(|state| if *state == "banned" { format!("banned{ban_left}") } else { (*state).to_owned() })
        .collect::<Vec<_>>()
        .join(", ")
}

/// A time in its largest whole unit: `45s`, `12m`, `3h`, `9d`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 if ms > 0 => format!("{ms}ms"),
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago a moment was.
pub(crate) fn ago(unix_ms: u64, now_unix_ms: u64) -> String {
    match unix_ms {
        0 => "never".to_owned(),
        _ => format!("{} ago", span(now_unix_ms.saturating_sub(unix_ms))),
    }
}

/// `1 route`, `2 routes`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
