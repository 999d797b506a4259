//! Linker arguments of the shared library.

fn main() {
    // The reporter's thread may outlive the application's use of the library, so the code must never be unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfpga_hook.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
