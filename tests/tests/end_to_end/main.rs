//! Whole programs against one another: a real control plane, the services, the runtimes below the device managers.
//!
//! One program for all, since each would link the same libraries: `cargo test -p fpga-tests --test end_to_end demo::` runs
//! those of one module.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod alerts;
mod any_cluster;
mod artifacts;
mod autoscaling;
mod bitstream_store;
mod bitstreams;
mod chart;
mod cluster_scheduler;
mod cordon;
mod dashboards;
mod demo;
mod documents;
mod endpoint_picker;
mod extender;
mod faults;
mod full_loop;
mod functions;
mod gateway_examples;
mod health;
mod herd;
mod hostile_callers;
mod manifests;
mod measured;
mod operators;
mod own_scheduler;
mod picker;
mod pool;
mod pool_in_cluster;
mod preemption;
mod readers;
mod registry;
mod replicas;
mod rights;
mod router;
mod scale;
mod smoke;
mod stand_in_node;
mod stream;
mod stream_identity;
mod tenants;
mod tls;
mod traces;
mod watching;
mod web_rights;
