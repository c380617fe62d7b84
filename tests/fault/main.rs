//! Faults: what each death looks like from outside, one file per row of the fault table in the design.
#![cfg(test)]

mod backend_dies;
mod collector_dies;
mod control_plane_dies;
mod database_dies;
mod dataplane_dies;
mod partition;
