//! One session of remote OpenCL: objects, commands, transfers and tasks of one client, over any transport and over the
//! vendor's runtime.
//!
//! Floors, the lowest first: accounts and limits (`governor`, `quota`, `settings`, `quotas`, `metrics`); what all sessions
//! share of the board (`store`, `catalogue`, `reporting`, `dispatcher`, `gate`, `health`, `quiesce`, `builds`, `printed`); objects
//! (`context` … `kernel`, `objects`); commands and their order (`transfers`, `commands`, `dependencies`, `execute`);
//! what goes to the client (`report`, `outgoing`, `command_ring`); calls (`calls`); and the session (`router`,
//! `session`).

mod arguments;
mod backlog;
mod buffer;
pub mod builds;
mod calls;
pub mod catalogue;
mod clock;
pub mod command_ring;
mod commands;
pub mod config;
pub mod configuration_port;
pub mod confine;
mod context;
mod dependencies;
mod device_clock;
pub mod dispatcher;
mod doze;
mod execute;
mod flow;
pub mod gate;
pub mod governor;
pub mod health;
mod helper_thread;
mod images;
pub mod includes;
pub mod incoming;
pub mod inventory;
pub mod isolate;
mod kernel;
mod kinds;
pub mod locality;
pub mod metrics;
pub mod model;
mod moments;
mod objects;
pub mod outgoing;
mod pipes;
pub mod printed;
pub mod programs;
mod queue;
pub mod quiesce;
pub mod quota;
pub mod quotas;
mod rects;
mod report;
pub mod reporting;
pub mod router;
pub mod segments;
pub mod session;
pub mod settings;
pub mod shorten;
pub mod shutdown;
pub mod side_socket;
pub mod store;
mod sub_devices;
mod task;
pub mod trace;
pub mod traced;
mod transfers;
