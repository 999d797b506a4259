//! The domain of kube-fpga, pure: events and what is made of them, what pods ask for, how nodes are ranked.
//!
//! Nothing here reads a clock, opens a socket or knows Kubernetes: time is an argument, and the extender, the
//! collector, the device manager and the simulator call the same functions.
#![forbid(unsafe_code)]

pub mod bitstream;
pub mod board_kind;
pub mod boards_now;
pub mod catalog;
pub mod decide;
pub mod device;
pub mod dispatch;
pub mod event;
pub mod expected_load;
pub mod health;
pub mod ledger;
pub mod locality;
pub mod matching;
pub mod names;
pub mod node_facts;
pub mod node_labels;
pub mod node_state;
pub mod pacing;
pub mod per_slot;
pub mod pool;
pub mod qos;
pub mod rank;
pub mod rebalance;
pub mod record;
pub mod replicas;
pub mod requirement;
pub mod reuse;
pub mod router;
pub mod score;
pub mod signals;
pub mod slots;
pub mod staleness;
pub mod ternary;
pub mod units;
pub mod window;

mod steps;

#[cfg(test)]
mod fixtures;
