//! Route options: the catalogue ([`catalogue`]) is the only place that knows their names, kinds, bounds and defaults;
//! [`RouteOptions`] is what the rest of the program reads.

pub mod catalogue;
pub mod kind;
pub mod resolved;

pub use catalogue::{OptionDef, Preset, find};
pub use kind::{Kind, Value};
pub use resolved::{Affinity, AuthMode, OnFull, OptionSet, PassiveBan, RetryTries, RouteOptions};
