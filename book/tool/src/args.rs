//! The command line.

use crate::{layout, reference, repository};
use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Writes the reference chapters of the book from the code, and lays the book out for mdBook.
#[derive(Debug, Parser)]
#[command(version, after_help = "Examples:\n  fpga-book reference\n  fpga-book layout build/book/source")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Writes the chapters of book/reference that the code tells.
    Reference,
    /// Copies the documents that book/SUMMARY.md names into a folder, as mdBook wants them.
    Layout {
        /// The folder, which is made anew.
        folder: PathBuf,
    },
}

impl Args {
    /// Does what the command line says.
    ///
    /// # Errors
    /// A source that the generator does not understand, a document that is missing, or a file that can't be written.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Reference => {
                for page in reference::pages(repository())? {
                    let path = repository().join("book/reference").join(page.name);
                    std::fs::write(&path, page.text).with_context(|| path.display().to_string())?;
                }
                Ok(())
            }
            Command::Layout { folder } => layout::write(repository(), &folder),
        }
    }
}
