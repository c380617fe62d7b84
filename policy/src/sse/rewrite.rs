//! Handlers that rewrite answers, one file each; a new one is a file and a line in [`HANDLERS`].

/// A way to rewrite answers.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    /// As the option `postprocess` calls it.
    pub name: &'static str,
}

/// Every handler.
const HANDLERS: [Handler; 2] = [Handler { name: "strip_actual_usage" }, Handler { name: "vllm_format" }];

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
}

impl PartialEq for Handler {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
