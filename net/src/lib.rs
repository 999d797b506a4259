//! Code that the services share: ports with TLS whose certificates are read again when they change; HTTP/1.1 with
//! bounds on connections, heads and idle time; the text of metric labels and of durations; and the memory limit of
//! the process. With the feature `sockets` also the sockets between both ends of a remote OpenCL session. Peers are
//! treated as hostile. The meaning of a request is up to the services.
#![cfg_attr(not(feature = "sockets"), forbid(unsafe_code))]
#![deny(unsafe_code)]

#[cfg(feature = "sockets")]
pub mod descriptor;
#[cfg(feature = "sockets")]
pub mod doorbell;
pub mod duration;
pub mod http;
mod labels;
pub mod memory;
#[cfg(feature = "sockets")]
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
