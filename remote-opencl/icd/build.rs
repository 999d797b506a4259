//! Linker arguments of the shared library.

fn main() {
    // Threads of ours may outlive the application's interest in us: the code must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfpga_opencl_icd.so");
    println!("cargo::rerun-if-changed=build.rs");
}
