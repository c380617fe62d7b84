//! Rows of requests for people.

use std::io::{self, Write};

use serde_json::Value;

use crate::output::table::Columns;

/// A table of rows.
pub(crate) fn print(out: &mut dyn Write, rows: &[Value]) -> io::Result<()> {
    let mut columns = Columns::new(&[
        "ENDED", ">STATUS", "ROUTE", "MODEL", "BACKEND", "STREAM", ">FIRST", ">TIME", ">PROMPT", ">CACHED", ">ANSWER",
        "FINISH", "REQUEST",
    ]);
    for row in rows {
        columns.row(cells(row));
    }
    columns.print(out, "", "no requests")
}

/// One row on a line, for rows that come one by one.
pub(crate) fn print_line(out: &mut dyn Write, row: &Value) -> io::Result<()> {
    let [ended, status, route, model, backend, stream, first, time, prompt, cached, answer, finish, request] =
        cells(row);
    writeln!(
        out,
        "{ended} {status} {route} {model} {backend} stream={stream} first={first} time={time} prompt={prompt} cached={cached} \
         answer={answer} finish={finish} request={request}"
    )
}

fn cells(row: &Value) -> [String; 13] {
    let seconds = |name: &str| match row.get(name).and_then(Value::as_f64) {
        Some(seconds) if seconds > 0.0 => format!("{seconds:.3}s"),
        _ => "-".to_owned(),
    };
    let stream = row.get("stream").and_then(Value::as_bool).map_or("-", |stream| if stream { "yes" } else { "no" });
    let finish = match text(row, "refused").as_str() {
        "-" => text(row, "finish_reason"),
        by => format!("refused:{by}"),
    };
    [
        text(row, "ts_end"),
        number(row, "status"),
        text(row, "route"),
        text(row, "model"),
        text(row, "backend"),
        stream.to_owned(),
        seconds("frt"),
        seconds("rt"),
        number(row, "prompt_tokens"),
        number(row, "cached_tokens"),
        number(row, "completion_tokens"),
        finish,
        text(row, "request_id"),
    ]
}

/// A text of a row. Clients choose some of them, so nothing that a terminal obeys comes through.
pub(crate) fn text(row: &Value, name: &str) -> String {
    let text = row.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.unwrap_or("-").replace(char::is_control, "?")
}

/// A whole number of a row.
pub(crate) fn number(row: &Value, name: &str) -> String {
    row.get(name).and_then(Value::as_u64).unwrap_or(0).to_string()
}
