//! The extender's answers for people and their tools: what the extender writes and kubectl-fpga reads.
//!
//! The default type parameters are those of a reader. Its enums are texts and it ignores unknown fields, so that an
//! extender of another version can be asked too. The extender puts its own types there, so that it copies nothing of
//! what it has in memory.
#![forbid(unsafe_code)]

mod config;
mod decision;
mod explanation;
mod influence;
mod node;

pub use config::{ConfigView, FileProblem, FileStatus, Policy, Rules};
pub use decision::{BestNode, DecisionView};
pub use explanation::{Decided, ExpectedShare, Explanation, Filtered, Measured, Score, Scored};
pub use influence::ScoreInfluence;
pub use node::{KnownState, NodeChanges, NodeView};

/// Audience of the tokens that readers show the extender.
pub const READ_AUDIENCE: &str = "fpga-scheduler-extender-read";
