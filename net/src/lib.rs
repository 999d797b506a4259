//! What our services share: ports with TLS whose certificates are read anew when they change, HTTP/1.1 with bounds on
//! connections, heads and silence, how metrics' labels and durations are written, and how much memory a process may use; with `sockets`
//! also what both ends of a remote OpenCL session are connected by. Peers are taken for hostile; what a request means is
//! the services' matter.
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
