//! Server-sent events, line by line (payloads.md §5.2). Lines are independent: an event of several data lines is not joined.

use super::hide_usage::is_usage_frame;
use super::{Handler, Output};
use crate::sse::line::{Lines, Piece};

/// How a changed line starts.
const DATA: &[u8] = b"data: ";
/// Bytes that a changed chunk may be longer, without its buffer being moved.
const SLACK: usize = 64;

/// Rewrites one stream.
#[derive(Debug)]
pub(super) struct Events {
    lines: Lines,
    editor: LineEditor,
}

/// What is done to lines, and where in an event the next one stands.
#[derive(Debug)]
struct LineEditor {
    handler: Option<Handler>,
    hides_usage: bool,
    /// The next line is the first of an event.
    is_first: bool,
    /// An event was taken out, so a blank line that follows goes too.
    is_taken_out: bool,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Same,
    Gone,
    /// Another payload; the line's ending stays.
    Changed(String),
}

impl Events {
    pub(super) fn new(handler: Option<Handler>, hides_usage: bool) -> Self {
        Self {
            lines: Lines::default(),
            editor: LineEditor { handler, hides_usage, is_first: true, is_taken_out: false },
        }
    }

    /// See [`super::Rewriter::gave_up`].
    pub(super) fn gave_up(&self) -> bool {
        self.lines.had_too_long()
    }

    pub(super) fn push(&mut self, chunk: &[u8]) -> Output {
        let mut rest = chunk;
        // Made with the first difference; until then the beginning of the chunk is what goes out.
        let mut out = self.lines.holds_some().then(Vec::new);
        let mut same = 0;
        while let Some(piece) = self.lines.next(&mut rest) {
            let (bytes, fate) = match piece {
                Piece::Line(line) => (line, self.editor.fate(line)),
                Piece::TooLong(part) => (part, self.editor.passes()),
            };
            if out.is_none() && fate == Fate::Same {
                same += bytes.len();
                continue;
            }
            fate.write(bytes, out.get_or_insert_with(|| beginning(chunk, same)));
        }
        match out {
            None if same == chunk.len() => Output::Same,
            None => Output::First(same),
            Some(out) => Output::Changed(out),
        }
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        let last = self.lines.end();
        match self.editor.fate(&last) {
            Fate::Same => last,
            fate => {
                let mut out = Vec::new();
                fate.write(&last, &mut out);
                out
            }
        }
    }
}

impl Fate {
    /// Writes what goes out for a line.
    fn write(&self, line: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Same => out.extend_from_slice(line),
            Self::Gone => {}
            Self::Changed(payload) => {
                for part in [DATA, payload.as_bytes(), ending_of(line)] {
                    out.extend_from_slice(part);
                }
            }
        }
    }
}

/// The start of a chunk, with room for the rest of it.
fn beginning(chunk: &[u8], bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(chunk.len() + SLACK);
    out.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
    out
}

impl LineEditor {
    fn passes(&mut self) -> Fate {
        self.is_first = false;
        self.is_taken_out = false;
        Fate::Same
    }

    fn fate(&mut self, line: &[u8]) -> Fate {
        if matches!(line, b"\n" | b"\r\n") {
            self.is_first = true;
            return if std::mem::take(&mut self.is_taken_out) { Fate::Gone } else { Fate::Same };
        }
        let Some(payload) = data_of(line) else { return self.passes() };
        if self.hides_usage && is_usage_frame(payload) {
            // Another line of the event, such as its id, has left: then its blank line must end it.
            self.is_taken_out = self.is_first;
            return Fate::Gone;
        }
        let edited = self.handler.and_then(|handler| handler.apply(payload));
        match edited {
            None => self.passes(),
            Some(edited) => {
                self.passes();
                Fate::Changed(edited)
            }
        }
    }
}

/// The payload of a data line without the spaces around it; `None` when there is nothing to rewrite.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let payload = line.strip_prefix(b"data:")?.trim_ascii();
    // `[DONE]`, and whatever else is no object.
    payload.starts_with(b"{").then_some(payload)
}

fn ending_of(line: &[u8]) -> &'static [u8] {
    if line.ends_with(b"\r\n") {
        b"\r\n"
    } else if line.ends_with(b"\n") {
        b"\n"
    } else {
        b""
    }
}
