//! Why a control plane does not start, and why an operator's call is turned down.

use router_policy::route::Complaints;

use crate::store::{OpenError, StoreError};

/// Why the process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another control plane runs on this database.
    #[error("another control plane runs on this database; stop it first")]
    InUse,
    /// The database failed while the stored state was read.
    #[error("read stored state: {0}")]
    Load(StoreError),
    /// The bootstrap file is not valid.
    #[error("bootstrap file: {0}")]
    Bootstrap(String),
    /// A listener failed.
    #[error("serve {what}: {problem}")]
    Serve {
        /// `grpc` or `http`.
        what: &'static str,
        /// What went wrong.
        problem: String,
    },
}

/// Why an operator's call is turned down. But for `Unfinished`, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// A document or a value is not valid.
    #[error("{0}")]
    Invalid(#[from] Complaints),
    /// One argument is not valid.
    #[error("{field}: {problem}")]
    Argument {
        /// Which.
        field: &'static str,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// No such thing.
    #[error("no {what} '{name}'")]
    NotFound {
        /// `route`, `backend`, `key`, `session`.
        what: &'static str,
        /// As asked for.
        name: String,
    },
    /// A selection of backends means none.
    #[error("no backend {selection}")]
    NothingSelected {
        /// What was asked for, in words: `with port 19003 in route chat`.
        selection: String,
    },
    /// There is one already.
    #[error("{what} '{name}' exists already")]
    Exists {
        /// `route`, `backend`, `key`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// Something must be done first.
    #[error("{0}")]
    Precondition(String),
    /// Its task ended before the change did.
    #[error("the change did not come to its end; look at the control plane's log")]
    Unfinished,
    /// The database failed; the call may be repeated.
    #[error("{0}")]
    Store(#[from] StoreError),
}
