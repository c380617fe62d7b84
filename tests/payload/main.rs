//! Bodies as real clients send them, and what becomes of them on their way: sessions, transforms, rules, rewritten answers, the
//! body log.
//!
//! What clients send is recorded by running them (`clients/`), not typed by hand.
#![cfg(test)]

mod corpus;
mod everything_on;
mod naive;
mod real_bodies;
mod switches;
