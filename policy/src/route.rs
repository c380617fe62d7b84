//! Route documents: as written ([`raw`]), checked ([`spec`], [`validate`]), compared ([`diff`]).

pub mod diff;
pub mod priority;
pub mod raw;
pub mod spec;
pub mod validate;

pub use diff::{Action, FieldChange, RouteChange};
pub use priority::Priority;
pub use spec::{BackendSpec, RouteSpec};
pub use validate::{Complaint, Complaints, check_all, parse_document, parse_route};
