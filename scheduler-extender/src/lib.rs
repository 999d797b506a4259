//! The extender of an unmodified kube-scheduler: filters nodes for a pod, scores them, and narrows the candidates of
//! preemption.
//!
//! ```text
//!   collectors ─────────── stream ─────┐
//!   API server ──watch──► reflector ──► index (memory) ◄── verbs ◄── wire ◄── HTTP ◄── kube-scheduler
//!   API server ──watch──► pod_reflector ──► expectations ◄────┤
//!                                      └──► board_pods ◄──────┤
//!   API server ──watch──► library (Bitstreams) ◄──────────────┤
//!                                                            └──► fpga_core::decide
//! ```
//! Decisions read memory only: none calls the API server, and each reads the clock at most once. A restart loses
//! nothing that would have to be kept, and replicas share nothing.
#![forbid(unsafe_code)]

mod admin;
pub mod app;
pub mod args;
pub mod board_pods;
mod certificates;
pub mod clock;
pub mod config;
mod expectations;
mod explain;
mod free_time;
mod in_use;
pub mod index;
pub mod library;
pub mod metrics;
mod placed_pod;
mod pod_reflector;
pub mod ports;
mod preempt;
pub mod record;
mod reflector;
mod replay;
mod response;
pub mod routes;
mod rules_args;
pub mod settings;
pub mod stream;
pub mod verbs;
mod waking;
pub mod wire;
