//! Code that our programs share to talk to each other. Peers are treated as hostile. The meaning of a request is up to
//! the services.
//!
//! Without features: token files, how long a proof holds, pauses between attempts, the text of metric labels, durations
//! and sizes, the ready file, and the memory limit of the process. The features add:
//! - `tls`: TLS whose certificates are read again when they change;
//! - `listen`: ports that take callers of both address families;
//! - `service`: ports with HTTP/1.1 and bounds on connections, heads and idle time, `/metrics`, signals, the flags of
//!   the log, and the runtime of services on nodes;
//! - `grpc`: connections for a gRPC server, with TLS and a bound on their number;
//! - `grpc-client`: connections of a gRPC client, with TLS;
//! - `own-key`: TLS with a key that is made at the start, for clients that know it;
//! - `kube`: the way to the API server, and events;
//! - `proxy`: proxies of the environment;
//! - `election`: which of several replicas works, by a Kubernetes Lease;
//! - `token-review`: whose token of a service account it is, by the API server;
//! - `read-access`: who may read at a port for people, by the API server;
//! - `sockets`: the sockets between both ends of a remote OpenCL session.
#![cfg_attr(not(feature = "sockets"), forbid(unsafe_code))]
#![deny(unsafe_code)]

pub mod backoff;
#[cfg(feature = "sockets")]
pub mod descriptor;
#[cfg(feature = "sockets")]
pub mod doorbell;
pub mod duration;
#[cfg(feature = "election")]
pub mod election;
#[cfg(feature = "sockets")]
pub mod futex;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "grpc-client")]
pub mod grpc_client;
#[cfg(feature = "service")]
pub mod http;
pub mod jitter;
#[cfg(feature = "kube")]
pub mod kube_config;
#[cfg(feature = "kube")]
pub mod kube_events;
mod labels;
#[cfg(feature = "listen")]
pub mod listen;
#[cfg(feature = "service")]
pub mod log;
pub mod memory;
pub mod proof;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "read-access")]
pub mod read_access;
pub mod ready_file;
#[cfg(feature = "service")]
pub mod runtime;
#[cfg(feature = "service")]
pub mod signals;
pub mod size;
#[cfg(feature = "sockets")]
pub mod socket;
#[cfg(feature = "tls")]
pub mod tls;
pub mod token_file;
#[cfg(feature = "token-review")]
pub mod token_review;
#[cfg(feature = "token-review")]
pub mod turns;
