//! Compiles the .proto file without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/ext_proc.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // Bodies and headers are not copied out of the received message.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
