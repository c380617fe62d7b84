//! A stream cut into its lines, whatever its chunks. A line that stands whole in a chunk is not copied; one that a chunk's
//! end cuts is held until its rest comes.

use memchr::memchr;

/// The longest line, its ending included, in bytes. A longer one is not held: it passes in pieces as they come
/// (conventions §2).
pub(super) const LINE_MAX: usize = 1 << 20;

/// Room in bytes that is kept for the next line that is cut.
const ROOM_KEPT: usize = 16 << 10;

/// What a stream is handed out as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A line with its ending: `\n`, or `\r\n`. A `\r` alone ends nothing.
    Line(&'a [u8]),
    /// A line that is too long, or a part of one.
    TooLong(&'a [u8]),
}

/// Cuts one stream.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// What is held was handed out, and goes with the next call.
    is_handed_out: bool,
    /// The line whose end has not come is too long.
    is_too_long: bool,
    had_too_long: bool,
}

impl Lines {
    /// Whether the beginning of a line is held back.
    pub(super) fn holds_some(&self) -> bool {
        !self.is_handed_out && !self.held.is_empty()
    }

    /// Whether any line was too long.
    pub(super) fn had_too_long(&self) -> bool {
        self.had_too_long
    }

    /// The next piece of a chunk, of which `rest` is left. `None` once it is used up; what was the beginning of a line is held
    /// then.
    pub(super) fn next<'a, 'c: 'a>(&'a mut self, rest: &mut &'c [u8]) -> Option<Piece<'a>> {
        if std::mem::take(&mut self.is_handed_out) {
            self.held.clear();
            self.held.shrink_to(ROOM_KEPT);
        }
        if rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', rest).map(|at| at + 1);
        let (part, after) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        *rest = after;
        let is_end = end.is_some();
        if self.is_too_long {
            self.is_too_long = !is_end;
            return Some(Piece::TooLong(part));
        }
        let fits = self.held.len() + part.len() <= LINE_MAX;
        if !fits {
            self.is_too_long = !is_end;
            self.had_too_long = true;
        }
        let as_piece = if fits { Piece::Line } else { Piece::TooLong };
        let is_whole = is_end || !fits;
        if self.held.is_empty() && is_whole {
            return Some(as_piece(part));
        }
        self.held.extend_from_slice(part);
        self.is_handed_out = is_whole;
        is_whole.then_some(as_piece(&self.held))
    }

    /// The stream has ended; what is held is its last line, which has no ending.
    pub(super) fn end(&mut self) -> Vec<u8> {
        if self.holds_some() { std::mem::take(&mut self.held) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line or not, and how many bytes, of a stream in these chunks.
    fn pieces(chunks: &[&[u8]]) -> Vec<(bool, usize)> {
        let mut lines = Lines::default();
        let mut pieces = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            while let Some(piece) = lines.next(&mut rest) {
                pieces.push(match piece {
                    Piece::Line(line) => (true, line.len()),
                    Piece::TooLong(part) => (false, part.len()),
                });
            }
            assert!(lines.held.len() <= LINE_MAX);
        }
        let last = lines.end();
        pieces.extend((!last.is_empty()).then_some((true, last.len())));
        pieces
    }

    #[test]
    fn lines_end_with_a_line_feed_and_nothing_else() {
        assert_eq!(pieces(&[b"a\n\r\nb\rc\n"]), [(true, 2), (true, 2), (true, 4)]);
        assert_eq!(pieces(&[b"a", b"", b"b\r", b"\nc", b"\n", b"d"]), [(true, 4), (true, 2), (true, 1)]);
        assert_eq!(pieces(&[]), []);
    }

    #[test]
    fn a_line_up_to_the_limit_is_a_line_however_it_is_cut() {
        let mut text = vec![b'x'; LINE_MAX - 1];
        text.extend_from_slice(b"\nshort\n");
        let whole = [(true, LINE_MAX), (true, 6)];
        assert_eq!(pieces(&[&text]), whole);
        for at in [1, LINE_MAX / 2, LINE_MAX - 1, LINE_MAX, LINE_MAX + 1] {
            let (before, after) = text.split_at(at);
            assert_eq!(pieces(&[before, after]), whole, "{at}");
        }
    }

    #[test]
    fn a_longer_one_passes_and_holds_no_memory() {
        let mut text = vec![b'x'; LINE_MAX];
        text.extend_from_slice(b"\nshort\n");
        assert_eq!(pieces(&[&text]), [(false, LINE_MAX + 1), (true, 6)]);
        for at in [1, LINE_MAX / 2, LINE_MAX] {
            let (before, after) = text.split_at(at);
            assert_eq!(pieces(&[before, after]), [(false, LINE_MAX + 1), (true, 6)], "{at}");
        }
        let endless = [b'x'; 1000];
        let mut lines = Lines::default();
        let mut passed = 0;
        for _ in 0..3000 {
            let mut rest = &endless[..];
            while let Some(piece) = lines.next(&mut rest) {
                let Piece::TooLong(part) = piece else { panic!("no line: it has no end") };
                passed += part.len();
            }
            assert!(lines.held.capacity() <= 2 * LINE_MAX);
        }
        assert!(lines.had_too_long());
        assert_eq!(passed, 3_000_000, "all of it");
        assert!(lines.held.capacity() <= ROOM_KEPT, "{}", lines.held.capacity());
        // It ends some time, and then lines are lines.
        let mut rest = &b"\nnext\n"[..];
        assert_eq!(lines.next(&mut rest), Some(Piece::TooLong(b"\n")));
        assert_eq!(lines.next(&mut rest), Some(Piece::Line(b"next\n")));
        assert_eq!(lines.next(&mut rest), None);
    }
}
