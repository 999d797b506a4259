//! The custom resource `Bitstream` (T-3): an accelerator, the boards that it was built for, and where its bytes are.
//!
//! `manifests/chart/custom-resources/` has the CustomResourceDefinition as [`definitions`] returns it. Values are
//! checked by the API server, with rules that say what to write; a reader still parses what it uses, since a cluster may
//! have an older definition. [`MoveRecords`] is what the registry keeps of its moves.
#![forbid(unsafe_code)]

mod bitstream;
mod eviction;
mod fpga_pod;
mod interface;
mod library;
mod moves;
mod schema;
mod terms;

pub use bitstream::{
    AllowedNamespaces, Bitstream, BitstreamSpec, BitstreamStatus, FromNamespaces, Source, Variant,
};
pub use eviction::evict;
pub use fpga_pod::{Controller, FpgaPod};
pub use interface::{AcceleratorInterface, InterfaceParameter, InterfaceTail};
pub use library::{ACCEPTED, InvalidOwnBitstreams, LibraryRules, OwnBitstreams, library_bitstream};
pub use moves::{
    HELD_KEY, HeldMove, MOVES_CONFIG_MAP, MOVES_KEY, MoveOutcome, MoveRecord, MoveRecords, ReplicasBefore,
};
pub use terms::{node_terms, pod_terms};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The definitions of all our custom resources.
#[must_use]
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![Bitstream::crd()]
}
