//! Compiles the .proto files with protox, so that a build needs no `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files =
        ["router/v1/common.proto", "router/v1/coordinator.proto", "router/v1/watch.proto", "router/v1/admin.proto"];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".router.v1").compile_fds(descriptors)?;
    Ok(())
}
