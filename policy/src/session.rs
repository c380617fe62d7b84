//! Which session a request belongs to: ordered sources ([`extract`]), the one-way name of what they find ([`fingerprint`]),
//! and the backend that it belongs to where the id alone decides that ([`hash`]). Runs in the dataplane only; session ids
//! never leave it.

pub mod extract;
pub mod fingerprint;
pub mod hash;

pub use extract::{Found, Search, Source, SourceList};
pub use fingerprint::Fingerprinter;
