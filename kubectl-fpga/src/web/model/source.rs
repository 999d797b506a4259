//! Where the page's data comes from, and whether it comes.

use crate::problem::Problem;
use serde::Serialize;

/// A source of the page's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nodes, by a watch of the API server.
    Nodes,
    /// Pods, by a watch of the API server.
    Pods,
    /// The extender's view of the nodes, and its decisions.
    Extender,
    /// The endpoint picker's functions.
    Picker,
}

/// Whether data comes from a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", rename_all_fields = "camelCase", tag = "state")]
pub enum State {
    /// Nothing has come yet.
    Connecting,
    /// The source answers, and the page shows its data.
    Live {
        /// What is left out, and why; empty if nothing is.
        message: String,
    },
    /// The user may not read the source.
    Forbidden {
        /// The right that is missing, and the command that grants it.
        message: String,
    },
    /// The cluster does not have it.
    Absent {
        /// How to install it.
        message: String,
    },
    /// The page has no cluster in which the source could be.
    Unconfigured {
        /// How to name one.
        message: String,
    },
    /// The source does not answer any more, or has not answered yet.
    Lost {
        /// What failed.
        message: String,
    },
}

impl Source {
    /// The name, which is the key of the source's row.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Extender => "extender",
            Self::Picker => "picker",
        }
    }
}

impl State {
    /// Everything comes.
    #[must_use]
    pub const fn live() -> Self {
        Self::Live { message: String::new() }
    }
}

impl From<&Problem> for State {
    fn from(problem: &Problem) -> Self {
        let message = problem.to_string();
        match problem {
            Problem::Forbidden { .. } | Problem::Unauthorized(_) | Problem::NoReader { .. } => {
                Self::Forbidden { message }
            }
            Problem::NoReplica { .. } => Self::Absent { message },
            Problem::NotConfigured(_) | Problem::Kubeconfig(_) => Self::Unconfigured { message },
            _ => Self::Lost { message },
        }
    }
}
