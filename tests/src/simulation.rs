//! A fleet of inference backends under load, simulated in seconds: the decision core of the router is the real one
//! (`router_policy::admit`, `router_policy::flow`, options as a route writes them); engines and clients are models
//! (`docs/simulation.md` describes them). No process, no clock, no network: the same seed gives the same numbers everywhere.
//!
//! | module | is |
//! | --- | --- |
//! | [`random`] | numbers from a seed, the same on every machine |
//! | [`workload`] | which sessions come, when, and what their turns are |
//! | [`prefix_cache`], [`engine`] | one backend: its KV memory, prefill, decoding |
//! | [`waiters`], [`router`] | the queue, and the pool: decide, judge, grant, as the control plane does |
//! | [`setting`] | the routes that are compared, as option texts |
//! | [`events`], [`world`] | what happens next, and the run |
//! | [`tally`], [`report`], [`plot`] | what is counted, and how it is shown |

pub mod engine;
pub mod events;
pub mod plot;
pub mod prefix_cache;
pub mod random;
pub mod report;
pub mod router;
pub mod setting;
pub mod tally;
pub mod waiters;
pub mod workload;
pub mod world;

/// Simulated microseconds since the start.
pub type Us = u64;

/// One second.
pub const SECOND: Us = 1_000_000;

/// A session's place in the workload.
pub type Session = usize;
