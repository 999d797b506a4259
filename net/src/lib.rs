//! What our services share at their ports: TLS whose certificates are read anew when they change, and HTTP/1.1 with bounds on
//! connections, heads and silence, and how their metrics' labels are written. Peers are taken for hostile; what a request
//! means is the services' matter.
#![forbid(unsafe_code)]

pub mod http;
mod labels;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
