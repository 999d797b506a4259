//! What the tests of all crates share.
//!
//! - [`until`] and [`until_async`] wait for a condition. All waits of all tests have one limit, [`patience`].
//! - [`on_paused_clock`] runs a test whose subject is time.
//! - [`Program`] is a program under test. [`Manager`] and [`Collector`] are programs with their flags, folders and ports.
//! - [`Server`], [`CollectorStandIn`], [`Kubelet`], [`Proxy`] and [`TunnelProxy`] are peers of a program under test.
//! - [`programs`] finds the workspace's programs and libraries.
//!
//! A failure of anything here is a panic that says what was expected and what was there instead.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]
#![allow(missing_docs, reason = "for tests")]

mod api_server;
mod authority;
pub mod collector;
mod collector_stand_in;
mod envoy;
pub mod http;
mod kubelet;
pub mod manager;
pub mod metrics;
pub mod processes;
mod program;
pub mod programs;
mod proxy;
mod server;
mod tunnel;
mod wait;

pub use api_server::{kubeconfig, status};
pub use authority::{Authority, Identity};
pub use collector::Collector;
pub use collector_stand_in::{CollectorStandIn, Seen, Shared};
pub use envoy::{envoy_config, envoy_ext_proc, envoy_program};
pub use kubelet::Kubelet;
pub use manager::Manager;
pub use program::{Program, output};
pub use proxy::{Cut, Proxy, Way};
pub use server::Server;
pub use tunnel::TunnelProxy;
pub use wait::{Look, on_paused_clock, patience, until, until_async};
