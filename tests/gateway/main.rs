//! The session gateway, promise by promise: one file per section of the reference's behaviour that `preset: gateway` keeps,
//! on real processes.
#![cfg(test)]

mod section_10_front_proxy;
mod section_11_replicas;
mod section_11_up;
mod section_1_entry_point;
mod section_2_session_identity;
mod section_3_choosing_a_backend;
mod section_4_retries;
mod section_5_health;
mod section_6_keys;
mod section_7_context_windows;
mod section_8_data_parallel_ranks;
mod section_9_drain;

use router_tests::builder::ClusterBuilder;
use router_tests::cluster::Cluster;
use router_tests::database::DatabaseKind;

/// A cluster whose route has the gateway's defaults, but for the key check and quick probes.
fn gateway(kind: DatabaseKind) -> ClusterBuilder {
    Cluster::builder(kind).preset("gateway")
}
