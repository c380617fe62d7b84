//! Byte edits of a text: parts of it are replaced, taken out or moved, in one pass into one buffer. What no edit names stays
//! as it is.

use std::borrow::Cow;
use std::ops::Range;

/// What one transform's edits may add to a text, in bytes, on top of the text's own length. Without a bound a body with one long name and
/// many short references to it would grow with the square of its length.
const MAX_ADDED: usize = 64 << 10;

/// Edits of one text, in any order. Those inside the range of another that starts before them are part of what it moves, or
/// fall away with it; otherwise they do not overlap.
#[derive(Debug)]
pub(crate) struct Edits<'t> {
    text: &'t str,
    list: Vec<Edit>,
    /// By the transform that is at it.
    added: usize,
    /// By those before it.
    added_before: usize,
}

#[derive(Debug)]
struct Edit {
    range: Range<usize>,
    with: With,
}

#[derive(Debug)]
enum With {
    One(Cow<'static, str>),
    Pieces(Vec<Piece>),
}

/// A part of what is put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// These words; made by [`Edits::words`].
    New(&'static str),
    /// What stands there in the text, with the edits inside it. It stands inside the range of an edit that starts before
    /// it, and is moved once.
    Moved(Range<usize>),
}

/// More would be added than [`MAX_ADDED`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

impl<'t> Edits<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, list: Vec::new(), added: 0, added_before: 0 }
    }

    /// Whether too much is added already: further edits are for nothing.
    pub(super) fn is_too_long(&self) -> bool {
        self.added > self.text.len() + MAX_ADDED
    }

    /// Lets one transform make its edits; `None`, and none of them is kept, when they would add too much. Those of others
    /// stay.
    pub(super) fn attempt<T>(&mut self, transform: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.added_before = self.added_before.saturating_add(std::mem::take(&mut self.added));
        let kept = self.list.len();
        let done = transform(self);
        if !self.is_too_long() {
            return Some(done);
        }
        self.list.truncate(kept);
        self.added = 0;
        None
    }

    /// Takes a part out.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        self.replace(range, "");
    }

    /// Puts words in.
    pub(super) fn insert(&mut self, at: usize, new: impl Into<Cow<'static, str>>) {
        self.replace(at..at, new);
    }

    /// Replaces a part by words.
    pub(crate) fn replace(&mut self, range: Range<usize>, new: impl Into<Cow<'static, str>>) {
        let new = new.into();
        self.added = self.added.saturating_add(new.len());
        self.push(Edit { range, with: With::One(new) });
    }

    /// Words for [`Edits::rearrange`]. They count here, so that who collects many can stop in time.
    pub(super) fn words(&mut self, new: &'static str) -> Piece {
        self.added = self.added.saturating_add(new.len());
        Piece::New(new)
    }

    /// Replaces a part by words and other parts.
    pub(super) fn rearrange(&mut self, range: Range<usize>, pieces: Vec<Piece>) {
        self.push(Edit { range, with: With::Pieces(pieces) });
    }

    fn push(&mut self, edit: Edit) {
        if !self.is_too_long() {
            self.list.push(edit);
        }
    }

    /// The text with all edits; `None` when there are none.
    pub(crate) fn apply(mut self) -> Result<Option<String>, TooLong> {
        if self.is_too_long() {
            return Err(TooLong);
        }
        if self.list.is_empty() {
            return Ok(None);
        }
        // Stable: of two at one place the first comes first. Each transform's edits are in order, so this is a merge.
        self.list.sort_by_key(|edit| edit.range.start);
        let mut out = String::with_capacity(self.text.len() + self.added_before + self.added);
        self.write(0..self.text.len(), &mut out);
        Ok(Some(out))
    }

    /// Writes a part of the text with the edits inside it.
    fn write(&self, part: Range<usize>, out: &mut String) {
        let first = self.list.partition_point(|edit| edit.range.start < part.start);
        let mut at = part.start;
        for edit in self.list.get(first..).unwrap_or_default() {
            if edit.range.end > part.end {
                break;
            }
            if edit.range.start < at {
                continue;
            }
            out.push_str(self.text.get(at..edit.range.start).unwrap_or_default());
            match &edit.with {
                With::One(new) => out.push_str(new),
                With::Pieces(pieces) => pieces.iter().for_each(|piece| match piece {
                    Piece::New(new) => out.push_str(new),
                    Piece::Moved(from) => self.write(from.clone(), out),
                }),
            }
            at = edit.range.end;
        }
        out.push_str(self.text.get(at..part.end).unwrap_or_default());
    }
}

/// Where a part stands in the text that it was borrowed from; an empty range at the end if it was not.
pub(crate) fn place(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    let end = start.wrapping_add(part.len());
    if start <= end && end <= text.len() { start..end } else { text.len()..text.len() }
}

#[cfg(test)]
#[path = "edit/tests.rs"]
mod tests;
