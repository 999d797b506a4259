//! What a container with boards gets: mounts and one variable. It needs no right and no file of its own.

use crate::allocations::AllocationId;
use crate::api::device_plugin::{ContainerAllocateResponse, Mount};
use crate::layout::{
    BITSTREAMS_IN_CONTAINER, CLAIM_IN_CONTAINER, ICD_IN_CONTAINER, LIBRARY_IN_CONTAINER, Layout,
    MANAGERS_IN_CONTAINER, NODE_BITSTREAMS_IN_CONTAINER,
};
use crate::node_bitstreams::NodeBitstreams;
use std::path::PathBuf;

/// The variable from which the client library learns its managers and its token.
const CLAIM_VARIABLE: &str = "FPGA_CLAIM_DIR";

/// The answer to `Allocate` for one container. The kubelet keeps it as long as the pod exists.
pub(crate) fn of(
    id: &AllocationId,
    layout: &Layout,
    bitstreams: &NodeBitstreams,
) -> ContainerAllocateResponse {
    let mut mounts = vec![
        (CLAIM_IN_CONTAINER, layout.claim(id)),
        (MANAGERS_IN_CONTAINER, layout.managers()),
        (LIBRARY_IN_CONTAINER, layout.library_folder()),
        (ICD_IN_CONTAINER, layout.icd()),
    ];
    let of_node = |place| bitstreams.folder.clone().map(|folder| (place, folder));
    if bitstreams.library.is_some() {
        mounts.push((BITSTREAMS_IN_CONTAINER, layout.bitstreams_of(id)));
        mounts.extend(of_node(NODE_BITSTREAMS_IN_CONTAINER));
    } else {
        mounts.extend(of_node(BITSTREAMS_IN_CONTAINER));
    }
    let mount = |(container_path, host_path): (&str, PathBuf)| Mount {
        container_path: container_path.to_owned(),
        host_path: host_path.display().to_string(),
        read_only: true,
    };
    ContainerAllocateResponse {
        envs: [(CLAIM_VARIABLE.to_owned(), CLAIM_IN_CONTAINER.to_owned())].into(),
        mounts: mounts.into_iter().map(mount).collect(),
        ..ContainerAllocateResponse::default()
    }
}
