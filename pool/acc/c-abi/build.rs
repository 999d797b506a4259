//! Linker arguments of the shared library.

fn main() {
    // The library's threads may outlive the program's use of it, so the code must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfpga_acc.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
