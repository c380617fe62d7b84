//! Which session a request belongs to: ordered sources ([`extract`]), the one-way name of what they find ([`fingerprint`]),
//! and the backend that it belongs to where the id alone decides that ([`hash`]). Clients' ids never leave the dataplane; the
//! control plane runs this only for an operator who asks about an id, and keeps nothing of it.

pub mod extract;
pub mod fingerprint;
pub mod hash;

pub use extract::{Found, Search, Source, SourceList};
pub use fingerprint::Fingerprinter;
