//! Code that the services share: ports with TLS whose certificates are read again when they change; HTTP/1.1 with
//! bounds on connections, heads and idle time; the text of metric labels, durations and sizes; pauses between
//! attempts; the ready file; signals; and the memory limit of the process. With the feature `service` also the flags
//! of the log, token files and `/metrics`; with `sockets` the sockets between both ends of a remote OpenCL session.
//! Peers are treated as hostile. The meaning of a request is up to the services.
#![cfg_attr(not(feature = "sockets"), forbid(unsafe_code))]
#![deny(unsafe_code)]

pub mod backoff;
#[cfg(feature = "sockets")]
pub mod descriptor;
#[cfg(feature = "sockets")]
pub mod doorbell;
pub mod duration;
pub mod http;
pub mod jitter;
mod labels;
#[cfg(feature = "service")]
pub mod log;
pub mod memory;
pub mod ready_file;
pub mod signals;
pub mod size;
#[cfg(feature = "sockets")]
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
#[cfg(feature = "service")]
pub mod token_file;
