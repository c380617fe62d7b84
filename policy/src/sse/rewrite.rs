//! Answers rewritten for clients (payloads.md §5): the handlers that an operator can name, one file each, and the rewriter
//! that takes an answer through one of them chunk by chunk.
//!
//! Nothing here fails: what can't be read or is too large passes as it is, byte for byte.

mod events;
mod hide_usage;
mod strip_actual_usage;
mod vllm_format;
mod whole;

#[cfg(test)]
mod tests;

use self::events::Events;
pub use self::whole::HELD_MAX;
use self::whole::Whole;
use crate::body::edit::Edits;

/// A way to rewrite answers.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    /// As the option `postprocess` calls it.
    pub name: &'static str,
    /// Names of fields, in groups. Where none of them stands, nothing is to be changed, and nothing is parsed.
    looks_for: &'static [&'static [&'static str]],
    /// Notes what is to be changed in one JSON text, a frame or a whole answer.
    edit: fn(&str, &mut Edits<'_>),
}

/// Every handler: a new one is its file and a line here.
const HANDLERS: [Handler; 2] = [strip_actual_usage::HANDLER, vllm_format::HANDLER];

/// The words of the option.
pub(crate) const HANDLER_NAMES: [&str; HANDLERS.len() + 1] = names();

#[expect(clippy::indexing_slicing, reason = "evaluated when compiled: a bad index is no program")]
const fn names() -> [&'static str; HANDLERS.len() + 1] {
    let mut names = ["none"; HANDLERS.len() + 1];
    let mut at = 0;
    while at < HANDLERS.len() {
        names[at + 1] = HANDLERS[at].name;
        at += 1;
    }
    names
}

impl Handler {
    /// The handler of that name.
    pub fn named(name: &str) -> Option<Self> {
        HANDLERS.into_iter().find(|handler| handler.name == name)
    }

    /// The edited text; `None`: it stays as it is.
    fn apply(&self, text: &[u8]) -> Option<String> {
        if !self.concerns(text) {
            return None;
        }
        let text = simdutf8::basic::from_utf8(text).ok()?;
        let mut edits = Edits::new(text);
        (self.edit)(text, &mut edits);
        edits.apply().ok().flatten()
    }

    /// Whether one of the names stands between two quotes that follow each other, as each field's name does.
    fn concerns(&self, text: &[u8]) -> bool {
        let mut after_quote = None;
        memchr::memchr_iter(b'"', text).any(|at| {
            let start: Option<usize> = after_quote.replace(at + 1);
            let between = start.and_then(|start| text.get(start..at));
            between
                .is_some_and(|between| self.looks_for.iter().copied().flatten().any(|name| name.as_bytes() == between))
        })
    }
}

impl PartialEq for Handler {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// What goes out for a chunk that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The chunk as it is.
    Same,
    /// So many bytes of the chunk, from its start; none when all of it is held for now.
    First(usize),
    /// This in its place; empty when all of it is taken out.
    Changed(Vec<u8>),
}

/// Takes one answer to its client. Its memory is bounded: up to 1 MiB of a line, or [`HELD_MAX`] of a JSON answer, are held.
#[derive(Debug)]
pub struct Rewriter(Mode);

#[derive(Debug)]
enum Mode {
    Events(Events),
    Whole(Whole),
}

impl Rewriter {
    /// For an event stream. `hides_usage`: the frame that only tells token counts is taken out. Whole lines leave with the
    /// chunk that ends them.
    pub fn events(handler: Option<Handler>, hides_usage: bool) -> Self {
        Self(Mode::Events(Events::new(handler, hides_usage)))
    }

    /// For a JSON answer. It leaves with its end.
    pub fn json(handler: Handler) -> Self {
        Self(Mode::Whole(Whole::new(handler)))
    }

    /// The next chunk.
    pub fn push(&mut self, chunk: &[u8]) -> Output {
        match &mut self.0 {
            Mode::Events(events) => events.push(chunk),
            Mode::Whole(whole) => whole.push(chunk),
        }
    }

    /// The answer is complete. What is still to be sent, often nothing.
    pub fn end(&mut self) -> Vec<u8> {
        match &mut self.0 {
            Mode::Events(events) => events.end(),
            Mode::Whole(whole) => whole.end(),
        }
    }

    /// No more is to be held of a JSON answer: what is, to be sent; the rest passes as it is. An event stream has nothing to
    /// give up.
    pub fn give_up(&mut self) -> Vec<u8> {
        match &mut self.0 {
            Mode::Events(_) => Vec::new(),
            Mode::Whole(whole) => whole.give_up(),
        }
    }

    /// Whether something passed as it is for being too large to be held.
    pub fn gave_up(&self) -> bool {
        match &self.0 {
            Mode::Events(events) => events.gave_up(),
            Mode::Whole(whole) => whole.gave_up(),
        }
    }
}
