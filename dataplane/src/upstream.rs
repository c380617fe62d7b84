//! The way to the backends: pooled connections ([`client`]), what crosses in headers ([`headers`]), one exchange up to
//! the response's head ([`forward`]), the body that owns lease and connection ([`stream`]), what is learnt
//! from it as it passes ([`sample`]), what its client is sent in its place ([`rewrite`]), and small answers that the router
//! reads for itself ([`whole`]).

pub(crate) mod client;
pub(crate) mod forward;
pub(crate) mod headers;
pub(crate) mod rewrite;
pub(crate) mod sample;
pub(crate) mod stream;
pub(crate) mod whole;
