//! Context windows.

use super::super::OptionDef;
use super::{CONTEXT_MAX, option};
use crate::option::kind::Kind;

const GROUP: &str = "context";

pub(super) const ENTRIES: &[OptionDef] = &[
    option(
        "model_context_limit",
        GROUP,
        Kind::IntOr { min: 1, max: CONTEXT_MAX, word: "none" },
        "none",
        "Context window in tokens that every backend has at least. `/v1/models` answers have `max_model_len` \
         lowered to it, never raised. Backends with a larger window serve clients that ask for it with \
         `x-model-context-window`.",
    )
    .unit("tokens"),
    option(
        "backend_context_limits",
        GROUP,
        Kind::Ports { min: 1, max: CONTEXT_MAX },
        "none",
        "Context windows in tokens by backend port, for backends that state no `context_limit` of their own. A \
         request with `x-model-context-window: N` (input and output) only goes to backends with N or more.",
    )
    .unit("tokens"),
];
