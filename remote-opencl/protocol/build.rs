//! Compiles the .proto file without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/remote_opencl.proto"], ["proto"])?;
    // `Bytes` fields are slices of the received frame: bulk data is not copied by decoding.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
