//! The harness of the end-to-end, fault and SDK suites: real processes of the real `routerctl`, looked at from outside.
//!
//! Suites use [`cluster::Cluster`]; everything else is what it is made of. Nothing here links a plane: the wire
//! (`router-proto`) and HTTP are all that the suites share with the product. Only [`simulation`] starts nothing: it runs the
//! decisions (`router-policy`) against modelled engines.

pub mod admin;
pub mod await_event;
pub mod binary;
pub mod builder;
pub mod chat;
pub mod client;
pub mod cluster;
pub mod ctl;
pub mod database;
pub mod engine;
pub mod front_proxy;
pub mod key_store;
pub mod log;
pub mod partition;
pub mod postgres;
pub mod process;
pub mod raw;
pub mod script;
pub mod simulation;
pub mod suite;
pub mod traffic;
