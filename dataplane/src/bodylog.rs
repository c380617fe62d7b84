//! The body log: what clients sent and were answered, kept by a collector outside the replicas (payloads.md §6, §7). Bodies
//! go from a replica to the collector and nowhere else.
//!
//! | module | is |
//! | --- | --- |
//! | [`collector`] | the other end, a process of its own |
//! | `frame` | one record on the wire; both sides use it |
//! | `zone` | times with their offset; both sides use it |

pub mod collector;
pub(crate) mod frame;
pub(crate) mod zone;
