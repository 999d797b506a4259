//! Bitstreams as OCI artifacts (T-3): an accelerator's bitstreams for several kinds of boards under one digest, in any
//! registry of container images.
//!
//! [`Artifact`] says what an artifact has, [`Packed`] is its form as manifest and configuration, [`Layout`] a folder
//! with all of it, [`Registry`] a registry. `README.md` has the form for those who read or write it by other tools.
//!
//! A registry is not trusted: lengths are bounded before bytes are read, and bytes count by their digest alone.
#![forbid(unsafe_code)]

mod artifact;
mod credentials;
mod layout;
mod manifest;
mod reference;
mod registry;
mod sha256;

pub use artifact::{Artifact, InvalidArtifact, MAX_BITSTREAM_BYTES, MAX_VARIANTS, Variant};
pub use credentials::{Credentials, CredentialsError};
pub use layout::{Layout, LayoutError};
pub use manifest::{
    ARTIFACT_TYPE, CONFIG_TYPE, Descriptor, InvalidManifest, LAYER_TYPE, MAX_CONFIG_BYTES,
    MAX_MANIFEST_BYTES, Manifest, Packed,
};
pub use reference::{InvalidReference, Reference, Target};
pub use registry::{Download, Host, Hosts, InvalidHost, PlainHttp, Registry, RegistryError, RegistryOptions};
pub use sha256::{Hasher, of_bytes, of_file};
