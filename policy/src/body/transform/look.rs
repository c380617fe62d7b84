//! A look for a word costs next to nothing beside a parse.

use memchr::memmem::Finder;

/// Looks for a word that is, or is part of, a key or a string of a JSON text.
#[derive(Debug)]
pub(super) struct Look {
    word: Finder<'static>,
    escape: Finder<'static>,
}

impl Look {
    /// For a word of ASCII characters.
    pub(super) fn new(word: &'static str) -> Self {
        // Any letter of the word may be written as an escape, and those of ASCII all start alike.
        Self { word: Finder::new(word), escape: Finder::new("\\u00") }
    }

    /// `false`: the text does not hold it.
    pub(super) fn may_find(&self, text: &str) -> bool {
        self.word.find(text.as_bytes()).is_some() || self.escape.find(text.as_bytes()).is_some()
    }
}
