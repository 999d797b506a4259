//! The registry (B-5, B-8, S-11): tells on each Bitstream where it is valid and who uses it, and moves pods that had
//! better be elsewhere. No decision of the scheduler, of a node plugin or of a device manager waits for it.
//!
//! Several replicas watch; the one that holds a Lease ([`fpga_net::election`]) writes. All state is in the API server: the registry may be
//! killed at any moment, and the next leader goes on. [`cluster`] is what is watched, [`status`], [`own_bitstreams`] and [`moves`] decide
//! without I/O what is to be written.
#![forbid(unsafe_code)]

pub mod args;
pub mod cluster;
pub mod leader;
pub mod metrics;
pub mod moves;
pub mod own_bitstreams;
pub mod probes;
pub mod status;
