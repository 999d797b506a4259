//! Linker arguments of the shared library.

fn main() {
    // The layer's threads and callbacks may outlive the loader's use of the library, so the code must never be
    // unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfpga_opencl_layer.so");
    println!("cargo::rerun-if-changed=build.rs");
}
