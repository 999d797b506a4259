//! What the broker of the pool says with device managers and with the clients of jobs: `proto/pool.proto`, its generated
//! client and server ([`v1`]), the [`limits`] of all fields, and checked conversions to and from the types of the lease
//! protocol ([`fpga_pool_leases`]).
//!
//! Peers are hostile: a conversion from the wire checks every length and every enum, and returns [`Malformed`] for what
//! breaks a bound. What is converted to the wire keeps the bounds if its sender does.
#![forbid(unsafe_code)]

pub mod client;
mod enums;
pub mod hello;
mod lease;
pub mod limits;
mod malformed;
pub mod manager;
mod status;
#[cfg(test)]
mod testing;
mod wire;

pub use malformed::Malformed;

/// Messages, client and server of `proto/pool.proto`.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the .proto file has the comments"
)]
pub mod v1 {
    tonic::include_proto!("fpga.pool.v1");
}
