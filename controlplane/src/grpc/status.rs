//! The one place where an error becomes a gRPC status.

use tonic::{Code, Status};

use crate::error::AdminError;

impl From<AdminError> for Status {
    fn from(error: AdminError) -> Self {
        let code = match &error {
            AdminError::Invalid(_) | AdminError::Argument { .. } => Code::InvalidArgument,
            AdminError::NotFound { .. } | AdminError::NothingSelected { .. } => Code::NotFound,
            AdminError::Exists { .. } => Code::AlreadyExists,
            AdminError::Precondition(_) => Code::FailedPrecondition,
            AdminError::Store(store) if store.is_transient() => Code::Unavailable,
            AdminError::Store(_) | AdminError::Unfinished => Code::Internal,
        };
        Status::new(code, error.to_string())
    }
}
