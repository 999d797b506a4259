//! The documents of the repository, and the blocks of commands in them.
//!
//! The line before each block says who runs it: `<!-- run -->`, a test that runs all such blocks of a document one after
//! the other; `<!-- run: TEST -->`, the named test; `<!-- not run: REASON -->`, nobody.

mod shell;

pub use shell::Shell;

use crate::testbed::programs::repository;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// Who runs a block of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// The test that runs all documents.
    Documents,
    /// The test of this name.
    Test(String),
    /// Nobody, for this reason.
    Nobody(String),
    /// The document does not say.
    Unsaid,
}

/// A block of commands for a shell.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of the document on which it begins, counted from 1.
    pub line: usize,
    /// Who runs it.
    pub runner: Runner,
    /// The commands.
    pub text: String,
}

/// The documents of the repository, without what was built or fetched, by their paths in it.
///
/// # Errors
/// A folder can't be read.
pub fn all() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![repository()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_ours = !name.starts_with('.') && !["build", "target", "node_modules"].contains(&name);
            if path.is_dir() && !path.is_symlink() && is_ours {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path.strip_prefix(repository())?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a document of the repository.
///
/// # Errors
/// The document can't be read.
pub fn text(document: &Path) -> Result<String> {
    std::fs::read_to_string(repository().join(document)).with_context(|| document.display().to_string())
}

/// The blocks of commands in a document's text: those of the language `sh`.
#[must_use]
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut before = "";
    while let Some((index, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            let commands: String = inside
                .map(|line| format!("{}\n", line.get(indent..).unwrap_or_else(|| line.trim_start())))
                .collect();
            if language.trim() == "sh" {
                blocks.push(Block { line: index + 1, runner: runner(before), text: commands });
            }
        }
        before = line;
    }
    blocks
}

/// What the line before a block says.
fn runner(line: &str) -> Runner {
    let said =
        line.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->")).map_or("", str::trim);
    if said == "run" {
        Runner::Documents
    } else if let Some(test) = said.strip_prefix("run:") {
        Runner::Test(test.trim().to_owned())
    } else if let Some(reason) = said.strip_prefix("not run:") {
        Runner::Nobody(reason.trim().to_owned())
    } else {
        Runner::Unsaid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_commands_without_the_indent_and_what_the_line_before_says() {
        let text = "<!-- run -->\n```sh\na\n  b\n```\n1. x\n   <!-- run: a_test -->\n   ```sh\n   c\n   ```\n```yaml\nd\n```\n\
                    <!-- not run: why -->\n```sh\ne\n```\n```sh\nf\n```\n";
        let block = |line, runner, text: &str| Block { line, runner, text: text.to_owned() };
        let expected = [
            block(2, Runner::Documents, "a\n  b\n"),
            block(8, Runner::Test("a_test".to_owned()), "c\n"),
            block(15, Runner::Nobody("why".to_owned()), "e\n"),
            block(18, Runner::Unsaid, "f\n"),
        ];
        assert_eq!(blocks(text), expected);
    }
}
