//! End to end: each promise of the README, on real processes. One file per promise, named after the behaviour.
#![cfg(test)]

mod affinity;
mod apply_and_export;
mod bad_request;
mod bad_route;
mod bad_start;
mod context_window;
mod disconnect;
mod drain;
mod exact_limit;
mod forwarding;
mod http2;
mod keys;
mod placement;
mod queue;
mod shutdown;
mod stream_bytes;
mod surface;
mod up_and_demo;
