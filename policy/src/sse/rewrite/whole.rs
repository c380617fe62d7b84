//! An answer that is one JSON document: held until it is complete (payloads.md §5.2).

use super::{Handler, Output};

/// The largest that is held, in bytes. Of a larger one, all that is held is sent and the rest passes.
pub const HELD_MAX: usize = 8 << 20;

/// Rewrites one answer.
#[derive(Debug)]
pub(super) struct Whole {
    handler: Handler,
    held: Vec<u8>,
    is_too_large: bool,
}

impl Whole {
    pub(super) fn new(handler: Handler) -> Self {
        Self { handler, held: Vec::new(), is_too_large: false }
    }

    /// See [`super::Rewriter::gave_up`].
    pub(super) fn gave_up(&self) -> bool {
        self.is_too_large
    }

    pub(super) fn push(&mut self, chunk: &[u8]) -> Output {
        if self.is_too_large {
            return Output::Same;
        }
        self.held.extend_from_slice(chunk);
        if self.held.len() <= HELD_MAX {
            return Output::First(0);
        }
        Output::Changed(self.give_up())
    }

    /// See [`super::Rewriter::give_up`].
    pub(super) fn give_up(&mut self) -> Vec<u8> {
        self.is_too_large = true;
        std::mem::take(&mut self.held)
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        if self.is_too_large {
            return held;
        }
        self.handler.apply(&held).map_or(held, String::into_bytes)
    }
}
