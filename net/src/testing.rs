//! What tests of several crates share: a certificate authority, a server on a thread of its own, and the forms of an
//! API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(missing_docs, reason = "for tests")]

mod api_server;
mod authority;
mod server;

pub use api_server::{kubeconfig, status};
pub use authority::{Authority, Identity};
pub use server::Server;
