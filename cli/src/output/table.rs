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
    let route = if with_route { vec!["ROUTE"] } else { vec![] };
    let rest = ["BACKEND", "NAME", "STATE", ">IN FLIGHT", ">SESSIONS", ">GRANTED", ">FAILURES", "REASON"];
    let headings: Vec<&str> = route.into_iter().chain(rest).collect();
    let mut columns = Columns::new(&headings);
    for backend in backends {
        let route = with_route.then(|| backend.route.clone());
        let cells = [
            backend.address.clone(),
            backend.name.clone().unwrap_or_else(|| "-".to_owned()),
            state_words(backend),
            format!("{}/{}", backend.in_flight, backend.limit),
            backend.sessions.to_string(),
            backend.granted_total.to_string(),
            backend.failures_total.to_string(),
            backend.reason.clone().unwrap_or_default(),
        ];
        columns.row(route.into_iter().chain(cells));
    }
    columns.print(out, indent, "no backends")
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
