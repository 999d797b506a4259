//! The broker behind a real port, with scripted managers and clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bed;
mod connections;
mod grants;
mod hostile;
mod takeover;
mod tenants;
mod two_brokers;
