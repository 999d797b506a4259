//! One session of remote OpenCL: objects, commands, transfers and tasks of one client, over any transport and over the
//! vendor's runtime.
//!
//! Floors, the lowest first: accounts and limits (`governor`, `quota`, `settings`, `quotas`, `metrics`); what all sessions
//! share of the board (`store`, `catalogue`, `reporting`, `dispatcher`, `gate`, `health`, `board`, `builds`); objects
//! (`context` … `kernel`, `objects`); commands and their order (`transfers`, `commands`, `ready`, `execute`); what goes to
//! the client (`report`, `outgoing`, `command_ring`); calls (`calls`); and the session (`router`, `session`).

pub mod arguments;
pub mod backlog;
pub mod buffer;
pub mod builds;
pub mod calls;
pub mod catalogue;
pub mod clock;
pub mod command_ring;
pub mod commands;
pub mod config;
pub mod confine;
pub mod context;
pub mod dependencies;
pub mod dispatcher;
pub mod execute;
pub mod flow;
pub mod gate;
pub mod governor;
pub mod health;
pub mod helper_thread;
pub mod images;
pub mod includes;
pub mod incoming;
pub mod inventory;
pub mod isolate;
pub mod kernel;
pub mod kinds;
pub mod locality;
pub mod metrics;
pub mod moments;
pub mod objects;
pub mod outgoing;
pub mod pipes;
pub mod programs;
pub mod queue;
pub mod quiesce;
pub mod quota;
pub mod quotas;
pub mod rects;
pub mod report;
pub mod reporting;
pub mod router;
pub mod segments;
pub mod session;
pub mod settings;
pub mod shorten;
pub mod shutdown;
pub mod side_socket;
pub mod store;
pub mod sub_devices;
pub mod task;
pub mod trace;
pub mod transfers;
