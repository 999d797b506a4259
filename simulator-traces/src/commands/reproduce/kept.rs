//! Outcomes of runs in a folder, so that what takes an hour and was stopped goes on where it was.

use crate::outcome::Outcome;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The folder, if there is one.
pub(super) struct Kept(Option<PathBuf>);

#[derive(Serialize, Deserialize)]
struct File {
    metrics: Vec<(String, f64)>,
    remarks: Vec<String>,
}

impl Kept {
    /// In this folder; nothing is kept without one.
    ///
    /// # Errors
    /// If it can't be made.
    pub(super) fn new(folder: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(Self(folder))
    }

    /// What came of the run with these changes, if it is known.
    ///
    /// # Errors
    /// If its file can't be read.
    pub(super) fn read(&self, changes: &[String]) -> anyhow::Result<Option<Outcome>> {
        let Some(path) = self.path(changes).filter(|path| path.exists()) else { return Ok(None) };
        let read = || -> anyhow::Result<File> { Ok(serde_json::from_slice(&std::fs::read(&path)?)?) };
        let File { metrics, remarks } =
            read().with_context(|| format!("{}: remove it, and it will be made anew", path.display()))?;
        Ok(Some(Outcome { metrics, remarks, ..Outcome::default() }))
    }

    /// Keeps it.
    ///
    /// # Errors
    /// If its file can't be written.
    pub(super) fn write(&self, changes: &[String], outcome: &Outcome) -> anyhow::Result<()> {
        let Some(path) = self.path(changes) else { return Ok(()) };
        let file = File { metrics: outcome.metrics.clone(), remarks: outcome.remarks.clone() };
        // Renamed when it is whole: it may be stopped at any time.
        let part = path.with_extension("part");
        let write = || -> anyhow::Result<()> {
            std::fs::write(&part, serde_json::to_vec(&file)?)?;
            Ok(std::fs::rename(&part, &path)?)
        };
        write().with_context(|| path.display().to_string())
    }

    fn path(&self, changes: &[String]) -> Option<PathBuf> {
        // The path of a trace has no place in a name; one folder is for one trace.
        let named = changes.iter().filter(|change| !change.starts_with("trace.path="));
        let name = named.map(String::as_str).collect::<Vec<_>>().join(",").replace(['/', ' '], "-");
        Some(self.0.as_ref()?.join(format!("{name}.json")))
    }
}
