//! A shell in which the commands of a document run, as a reader runs them: at the top of the repository, one after the other, with an
//! empty home folder.

use crate::testbed::programs::repository;
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// A shell for the commands of one document.
#[derive(Debug)]
pub struct Shell {
    home: tempfile::TempDir,
    path: OsString,
    variables: Vec<(String, OsString)>,
}

impl Shell {
    /// A shell that finds programs in these folders first, and then where this program finds them.
    ///
    /// # Errors
    /// The home folder can't be made.
    pub fn new(folders: &[&Path]) -> Result<Self> {
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let folders = folders.iter().map(|folder| folder.to_path_buf()).chain(std::env::split_paths(&rest));
        Ok(Self {
            home: tempfile::tempdir().context("can't make a home folder")?,
            path: std::env::join_paths(folders).context("the name of a folder has a colon")?,
            variables: Vec::new(),
        })
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// The path of a file in the home folder.
    #[must_use]
    pub fn home(&self, file: &str) -> PathBuf {
        self.home.path().join(file)
    }

    /// Runs commands, and returns what they print, the commands themselves included. Programs that the commands leave running in the
    /// background end with them.
    ///
    /// # Errors
    /// A command fails, or the commands take longer than `limit`; the error has what they printed.
    pub async fn run(&self, commands: &str, limit: Duration) -> Result<String> {
        let output = self.home(".output");
        let file = std::fs::File::create(&output).context("can't write to the home folder")?;
        let mut shell = Command::new("bash")
            .args(["-euxo", "pipefail", "-c", commands])
            .current_dir(repository())
            .env("HOME", self.home.path())
            .env("PATH", &self.path)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("can't start bash")?;
        let id = shell.id().context("the shell has ended")?;
        let group = Pid::from_raw(i32::try_from(id)?);
        let ended = tokio::time::timeout(limit, shell.wait()).await;
        // The only possible error is that no process of the group is left.
        let _ = killpg(group, Signal::SIGKILL);
        let said = String::from_utf8_lossy(&std::fs::read(output)?).into_owned();
        let status = ended.with_context(|| format!("the commands took longer than {limit:?}:\n{said}"))??;
        ensure!(status.success(), "{status}:\n{said}");
        Ok(said)
    }
}
