//! Which session a request belongs to: ordered sources ([`extract`]) and the one-way name of what they find
//! ([`fingerprint`]). Runs in the dataplane only; session ids never leave it.

pub mod extract;
pub mod fingerprint;

pub use extract::{Found, Search, Source, SourceList};
pub use fingerprint::Fingerprinter;
