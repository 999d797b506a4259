//! A cluster on one machine: a real control plane, stand-in nodes, and our own programs on them.
//!
//! Each test bed has its own loopback network ([`network`]), so that test beds of different tests and of different
//! people don't use the same ports.

pub mod any_cluster;
pub mod artifacts;
pub mod bitstreams;
pub mod browser;
pub mod certificates;
pub mod chance;
pub mod cluster;
pub mod control_plane;
pub mod documents;
pub mod endpoint_slices;
pub mod envoy;
pub mod extender;
pub mod fake_api;
pub mod function_service;
pub mod helm;
pub mod http_client;
pub mod identity;
pub mod invoke;
pub mod kube_router;
pub mod manifests;
pub mod memory;
pub mod network;
pub mod node;
pub mod observer;
pub mod oci_registry;
pub mod picker;
pub mod pool;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod real_cluster;
pub mod real_node;
pub mod registry;
pub mod restricted;
pub mod routed_function;
pub mod router;
pub mod run_dir;
pub mod scale;
pub mod shipped;
pub mod stand_in_site;
pub mod trace_collector;
pub mod valve;
pub mod wait;
pub mod web;
pub mod workload;
