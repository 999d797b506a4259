//! What our services share at their ports: TLS whose certificates are read anew when they change, and HTTP/1.1 with bounds on
//! connections, heads and silence, and how their metrics' labels are written; with `sockets` also what both ends of a
//! remote OpenCL session are connected by. Peers are taken for hostile; what a request means is the services' matter.
#![cfg_attr(not(feature = "sockets"), forbid(unsafe_code))]
#![deny(unsafe_code)]

#[cfg(feature = "sockets")]
pub mod descriptor;
#[cfg(feature = "sockets")]
pub mod doorbell;
pub mod http;
mod labels;
#[cfg(feature = "sockets")]
pub mod socket;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
