//! Container images as archives, from files of this machine: no registry, no container builder, no daemon.
//!
//! [`FileTree`] collects the files of a layer, [`Image`] adds what a runtime must know and writes the archive, which
//! `ctr images import`, `docker load`, `podman load` and `skopeo copy oci-archive:` read. [`Shipped`] are the images of
//! our own programs, which the chart installs and the tests on real nodes run.
//!
//! The same files give the same archive, byte by byte: entries are sorted, times are zero.
//!
//! The layers with Debian's files have its packages' entries in dpkg's database, and each image has a bill of materials.

mod archive;
mod debian;
mod elf;
mod error;
mod file_tree;
mod image;
mod sbom;
mod shipped;

pub use archive::{Compression, Size, Written, sha256_of};
pub use error::ImageError;
pub use file_tree::FileTree;
pub use image::Image;
pub use shipped::{ClientLibraries, Parts, Shipped};
