//! Linker arguments of the shared library.

fn main() {
    // Threads of the library may run longer than the application uses it, so the code must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfpga_opencl_icd.so");
    println!("cargo::rerun-if-changed=build.rs");
}
