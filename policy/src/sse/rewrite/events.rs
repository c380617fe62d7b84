//! Server-sent events, line by line (payloads.md §5.2). Lines are independent: an event of several data lines is not joined.

use super::hide_usage::is_usage_frame;
use super::{Handler, Output};
use crate::sse::line::{Lines, Piece};

/// Rewrites one stream.
#[derive(Debug)]
pub(super) struct Events {
    lines: Lines,
    rules: Rules,
}

/// What is done to lines, and where in an event the next one stands.
#[derive(Debug)]
struct Rules {
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
    Changed(Vec<u8>),
}

impl Events {
    pub(super) fn new(handler: Option<Handler>, hides_usage: bool) -> Self {
        Self { lines: Lines::default(), rules: Rules { handler, hides_usage, is_first: true, is_taken_out: false } }
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
                Piece::Line(line) => (line, self.rules.fate(line)),
                Piece::TooLong(part) => (part, self.rules.passes()),
            };
            if out.is_none() && fate == Fate::Same {
                same += bytes.len();
                continue;
            }
            let out = out.get_or_insert_with(|| beginning(chunk, same));
            match fate {
                Fate::Same => out.extend_from_slice(bytes),
                Fate::Gone => {}
                Fate::Changed(changed) => out.extend_from_slice(&changed),
            }
        }
        match out {
            None if same == chunk.len() => Output::Same,
            None => Output::Changed(beginning(chunk, same)),
            Some(out) => Output::Changed(out),
        }
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        let last = self.lines.end();
        match self.rules.fate(&last) {
            Fate::Same => last,
            Fate::Gone => Vec::new(),
            Fate::Changed(changed) => changed,
        }
    }
}

fn beginning(chunk: &[u8], bytes: usize) -> Vec<u8> {
    chunk.get(..bytes).unwrap_or_default().to_vec()
}

impl Rules {
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
        let Some((payload, ending)) = data_of(line) else { return self.passes() };
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
                Fate::Changed([b"data: ", edited.as_bytes(), ending].concat())
            }
        }
    }
}

/// The payload of a data line without the spaces around it, and the line's ending; `None` when there is nothing to rewrite.
fn data_of(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let data = line.strip_prefix(b"data:")?;
    let without = data.strip_suffix(b"\n").map_or(data, |data| data.strip_suffix(b"\r").unwrap_or(data));
    let (_, ending) = data.split_at_checked(without.len())?;
    let payload = without.trim_ascii();
    // `[DONE]`, and whatever else is no object.
    payload.starts_with(b"{").then_some((payload, ending))
}
