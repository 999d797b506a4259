//! The device manager: one per board, it runs remote OpenCL sessions over the board's vendor runtime.
//!
//! Sessions arrive by gRPC; their tasks start as the dispatcher says; the collector of the node hears how long each
//! held a slot. The vendor's OpenCL is reached through the system's ICD loader only, never through our own ICD.

pub mod args;
pub mod arguments;
pub mod backlog;
pub mod board;
pub mod build_bitstream;
pub mod builds;
pub mod calls;
pub mod catalogue;
pub mod clock;
pub mod command_ring;
pub mod commands;
pub mod config;
pub mod confine;
pub mod connections;
pub mod dispatcher;
pub mod exec;
pub mod execute;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod governor;
pub mod greeting;
pub mod health;
pub mod humane;
pub mod images;
pub mod includes;
pub mod inventory;
pub mod isolation;
pub mod keepalive;
pub mod kinds;
pub mod lender;
pub mod link;
pub mod listen;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod metrics_server;
pub mod objects;
pub mod outgoing;
pub mod peer;
pub mod pipes;
pub mod process;
pub mod programs;
pub mod quotas;
pub mod ready;
pub mod rects;
pub mod reporting;
pub mod router;
pub mod runtime;
pub mod segments;
pub mod serve;
pub mod server;
pub mod session;
pub mod settings;
pub mod shutdown;
pub mod signals;
pub mod store;
pub mod sub_devices;
pub mod task;
pub mod tokens;
pub mod trace;
pub mod transfers;
pub mod vendor;
