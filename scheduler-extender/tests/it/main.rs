//! The extender, as kube-scheduler, collectors and people meet it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of these tests fail by panicking, as the tests do"
)]

mod contract;
mod extender;
mod process;
mod record;
mod stream;
mod stream_identity;
mod tls;
