//! The way to the backends: pooled connections ([`client`]), what crosses in headers ([`headers`]), one exchange up to
//! the response's head ([`forward`]), and the body that owns lease and connection ([`stream`]).

pub(crate) mod client;
pub(crate) mod forward;
pub(crate) mod headers;
pub(crate) mod stream;
