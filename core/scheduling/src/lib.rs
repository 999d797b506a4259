//! The domain of kube-fpga: events, node states, what pods ask for, how nodes are ranked, how boards are shared.
//!
//! The crate is pure. Nothing in it reads a clock, opens a socket or depends on Kubernetes: time is an argument. The
//! extender, the collector, the device manager and the simulator call the same functions.
#![forbid(unsafe_code)]

pub mod bitstream;
pub mod board_kind;
pub mod board_pods;
pub mod board_request;
pub(crate) mod boards_now;
pub mod catalog;
pub mod cordon;
pub mod decide;
pub mod device;
pub mod event;
pub mod expected_load;
pub mod gate;
pub mod ledger;
pub mod library;
pub(crate) mod locality;
pub mod matching;
pub mod moved_off;
pub mod names;
pub mod node_facts;
pub mod node_labels;
pub mod node_state;
pub mod node_terms;
pub mod pacing;
pub(crate) mod per_slot;
pub mod preemption;
pub mod rank;
pub mod record;
pub mod redistribution;
pub mod requirement;
pub mod residency;
pub mod score;
pub mod signals;
pub mod staleness;
pub(crate) mod ternary;
pub mod units;
pub mod utilization;
pub mod window;

mod steps;

#[doc(hidden)]
pub mod fixtures;
