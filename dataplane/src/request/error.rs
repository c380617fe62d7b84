//! Why a request is not answered by a backend. Causes only: statuses and texts are `error_response`'s.

use router_policy::header::InvalidContextWindow;

use super::payload::Rejected;
use crate::coordinate::Refused;

/// Each cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The path names no route.
    #[error("no route answers this path")]
    NoRoute,
    /// Bare `/v1/...`, and no route is the default.
    #[error("no default route")]
    NoDefaultRoute,
    /// HTTP/1.1 without `Host`, or more than one.
    #[error("not exactly one host header")]
    BadHost,
    /// Dot segments, plain or encoded.
    #[error("path with dot segments")]
    BadPath,
    #[error("missing or invalid api key")]
    Unauthorized,
    /// `x-model-context-window` is no positive integer.
    #[error(transparent)]
    InvalidContextWindow(#[from] InvalidContextWindow),
    #[error("request body over {limit} bytes")]
    BodyTooLarge { limit: u64 },
    /// The client stopped sending its body.
    #[error("request body stopped")]
    BodyTimeout,
    /// The client's body broke off or was malformed.
    #[error("request body broke off")]
    BodyBroken,
    /// `reject_rules_unreadable`: rules are on, and they can't read it.
    #[error("request body is no JSON")]
    BodyNotJson,
    /// No snapshot yet.
    #[error("not ready")]
    NotReady,
    /// One of the route's reject rules.
    #[error("refused by rule {}", .0.rule)]
    RejectedByRule(Rejected),
    #[error("refused by {}", .0.gate)]
    Refused(Refused),
    /// No connection to the backend, or one that ended before a response head.
    #[error("no answer from the backend")]
    BackendUnreachable,
    /// No response head in time.
    #[error("the backend stayed silent")]
    BackendSilent,
    /// `answer_501_for`: clients are not to see the backend's status.
    #[error("the backend answered {status}")]
    HiddenStatus { status: u16 },
    /// The list of models was answered with this status, or with what is no list.
    #[error("the backend's answer is no list of models")]
    BackendBadAnswer { status: u16 },
    /// The engines know no `/v1/models`.
    #[error("no backend has a list of models")]
    NoModelList,
    /// No backend that answered lists it.
    #[error("no backend has the model")]
    ModelNotFound,
}
