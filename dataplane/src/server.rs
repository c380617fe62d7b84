//! Sockets and the process's life: connections ([`accept`]), the admin port ([`admin`]), readiness ([`readiness`]) and the
//! way down ([`drain`]).

pub(crate) mod accept;
pub(crate) mod admin;
pub(crate) mod drain;
pub(crate) mod reader;
pub(crate) mod readiness;
pub(crate) mod stall;
