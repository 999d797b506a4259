//! The reasons for which a scenario has no outcome.

use crate::trace::TraceError;
use std::path::PathBuf;

/// The reasons for which a scenario has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file can't be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The text is no scenario; the message has line and column.
    #[error("the scenario can't be understood: {0}")]
    Toml(#[from] toml::de::Error),
    /// A change has no `=`, no name of a key, or a path through something that is not a table.
    #[error("`{0}` changes nothing of a scenario; write PATH=VALUE, for example `cluster.nodes=20`")]
    Change(String),
    /// The values of the scenario are inconsistent.
    #[error("the scenario makes no sense: {0}")]
    Invalid(String),
    /// The trace can't be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A run broke an invariant of the simulation. The simulator has a bug, and no number of this run can be trusted.
    #[error("broken invariant: {0}")]
    Invariant(String),
}

impl ScenarioError {
    /// The error for a scenario whose values are inconsistent.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}
