//! What tests of several crates share: a certificate authority, a server on a thread of its own, the forms of an API
//! server, and Envoy's configuration.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(missing_docs, reason = "for tests")]

mod api_server;
mod authority;
mod envoy;
mod server;

pub use api_server::{kubeconfig, status};
pub use authority::{Authority, Identity};
pub use envoy::{envoy_config, envoy_ext_proc, envoy_program};
pub use server::Server;
