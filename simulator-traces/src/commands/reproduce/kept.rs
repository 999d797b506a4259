//! Outcomes of runs in a folder, so that an interrupted command continues where it stopped.

use crate::outcome::Outcome;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The folder; `None` if outcomes are not kept.
pub(super) struct Kept(Option<PathBuf>);

#[derive(Serialize, Deserialize)]
struct File {
    metrics: Vec<(String, f64)>,
    remarks: Vec<String>,
}

impl Kept {
    /// Keeps outcomes in `folder`, or not at all without one.
    ///
    /// # Errors
    /// If the folder can't be created.
    pub(super) fn new(folder: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(Self(folder))
    }

    /// The kept outcome of the run with these changes, if there is one.
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

    /// Keeps an outcome.
    ///
    /// # Errors
    /// If its file can't be written.
    pub(super) fn write(&self, changes: &[String], outcome: &Outcome) -> anyhow::Result<()> {
        let Some(path) = self.path(changes) else { return Ok(()) };
        let file = File { metrics: outcome.metrics.clone(), remarks: outcome.remarks.clone() };
        // Renaming a complete file makes sure that an interrupted command leaves no partial one.
        let part = path.with_extension("part");
        let write = || -> anyhow::Result<()> {
            std::fs::write(&part, serde_json::to_vec(&file)?)?;
            Ok(std::fs::rename(&part, &path)?)
        };
        write().with_context(|| path.display().to_string())
    }

    fn path(&self, changes: &[String]) -> Option<PathBuf> {
        // The path of the trace can't be part of a file name; all outcomes of a folder are of one trace.
        let named = changes.iter().filter(|change| !change.starts_with("trace.path="));
        let name = named.map(String::as_str).collect::<Vec<_>>().join(",").replace(['/', ' '], "-");
        Some(self.0.as_ref()?.join(format!("{name}.json")))
    }
}
