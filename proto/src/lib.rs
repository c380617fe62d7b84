//! The wire between the parts: the generated code of package `router.v1`, and (in [`convert`]) its one mapping to and from
//! policy types.
//!
//! The .proto files hold the documentation of each message. Generated types go no further than `convert` and the gRPC edges.

/// Package `router.v1`, generated from the files in `proto/router/v1`.
pub mod v1 {
    #![allow(
        clippy::pedantic,
        clippy::allow_attributes_without_reason,
        clippy::clone_on_ref_ptr,
        missing_docs,
        unreachable_pub,
        reason = "generated"
    )]
    tonic::include_proto!("router.v1");
}
pub mod convert;
