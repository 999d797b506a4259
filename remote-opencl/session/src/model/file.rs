//! The file of `--model`: what the modelled board is called, and how long it takes.
//!
//! ```toml
//! board = "PAC A10, figures of table 2"
//! reconfiguration = "1200ms"
//!
//! [[kernel]]
//! bitstream = "sobel"
//! name = "sobel"
//! launch = "150us"
//! items_per_second = 4.2e8
//! dma_items_per_second = 2.1e9
//! ```
//!
//! `items_per_second` is the speed of a slot. `dma_items_per_second` is that of the board's only DMA engine, which serves
//! the launches of all slots one after the other: a launch ends when both have done their part.

use fpga_net::duration;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Longest time of a launch. Whoever asks for more work items gets this time.
const LONGEST: Duration = Duration::from_secs(3600);

/// The times of a board.
#[derive(Debug, Clone, PartialEq)]
pub struct BoardModel {
    board: String,
    reconfiguration: Option<Duration>,
    kernels: Vec<KernelTime>,
}

#[derive(Debug, Clone, PartialEq)]
struct KernelTime {
    bitstream: Option<String>,
    name: Option<String>,
    launch: Duration,
    /// Seconds per work item in the slot.
    item_seconds: f64,
    /// Seconds per work item at the board's DMA engine.
    dma_item_seconds: f64,
}

/// How long a launch takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaunchTime {
    /// In its slot.
    pub slot: Duration,
    /// At the board's DMA engine, which serves one launch at a time.
    pub dma: Duration,
}

/// The reason why a model can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The content of the file is not valid.
    #[error("{}, line {line}: {reason}", .path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The fault of the line, and what to write instead.
        reason: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    board: Spanned<String>,
    reconfiguration: Option<Spanned<String>>,
    #[serde(default)]
    kernel: Vec<Spanned<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bitstream: Option<String>,
    name: Option<String>,
    launch: Option<Spanned<String>>,
    items_per_second: Option<Spanned<f64>>,
    dma_items_per_second: Option<Spanned<f64>>,
}

/// An error at a byte of the text.
type At = (usize, String);

impl BoardModel {
    /// Reads a model.
    ///
    /// # Errors
    /// [`ModelError`], with the line and what to write there.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = read(path).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|(at, reason)| {
            let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
            ModelError::Content { path: path.to_owned(), line, reason }
        })
    }

    fn parse(text: &str) -> Result<Self, At> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            (at, format!("{}; {EXAMPLE}", error.message()))
        })?;
        let board = file.board.get_ref().trim();
        if board.is_empty() {
            let reason = "the board has no name; write for example board = \"PAC A10, figures of table 2\"";
            return Err((file.board.span().start, reason.to_owned()));
        }
        if file.kernel.is_empty() {
            return Err((text.len(), format!("no kernel has a time; {EXAMPLE}")));
        }
        Ok(Self {
            board: board.to_owned(),
            reconfiguration: file.reconfiguration.as_ref().map(time).transpose()?,
            kernels: file.kernel.into_iter().map(kernel).collect::<Result<_, _>>()?,
        })
    }

    /// Name of the board.
    #[must_use]
    pub fn board(&self) -> &str {
        &self.board
    }

    /// Number of kernels that have a time.
    #[must_use]
    pub fn kernels(&self) -> usize {
        self.kernels.len()
    }

    /// Time to load a bitstream, if the file has it.
    #[must_use]
    pub fn reconfiguration(&self) -> Option<Duration> {
        self.reconfiguration
    }

    /// Time of a launch of `items` work items, by the first entry that fits; `bitstreams` are the names of the
    /// program's bitstreams. `None` if no entry fits.
    #[must_use]
    pub fn time_of(&self, bitstreams: &[String], kernel: &str, items: u64) -> Option<LaunchTime> {
        let fits = |entry: &&KernelTime| {
            entry.bitstream.as_ref().is_none_or(|name| bitstreams.contains(name))
                && entry.name.as_ref().is_none_or(|name| name == kernel)
        };
        let entry = self.kernels.iter().find(fits)?;
        // Beyond 2^53 work items a launch takes the longest time anyway.
        let of_items = |seconds: f64| {
            Duration::try_from_secs_f64(items as f64 * seconds).unwrap_or(LONGEST).min(LONGEST)
        };
        let slot = entry.launch.saturating_add(of_items(entry.item_seconds)).min(LONGEST);
        Some(LaunchTime { slot, dma: of_items(entry.dma_item_seconds) })
    }
}

const EXAMPLE: &str =
    "write for example [[kernel]] with name = \"sobel\", launch = \"150us\" and items_per_second = 4.2e8";

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

fn time(text: &Spanned<String>) -> Result<Duration, At> {
    duration::parse(text.get_ref()).map_err(|error| (text.span().start, error.to_string()))
}

fn kernel(entry: Spanned<Entry>) -> Result<KernelTime, At> {
    let at = entry.span().start;
    let Entry { bitstream, name, launch, items_per_second, dma_items_per_second } = entry.into_inner();
    if launch.is_none() && items_per_second.is_none() && dma_items_per_second.is_none() {
        let reason = "the kernel has no time; write launch = \"150us\", items_per_second = 4.2e8, or both";
        return Err((at, reason.to_owned()));
    }
    let item_seconds = seconds_per_item(items_per_second, "items_per_second")?;
    let dma_item_seconds = seconds_per_item(dma_items_per_second, "dma_items_per_second")?;
    let launch = launch.as_ref().map(time).transpose()?.unwrap_or_default();
    Ok(KernelTime { bitstream, name, launch, item_seconds, dma_item_seconds })
}

/// Seconds per work item at a rate; 0 without one.
fn seconds_per_item(rate: Option<Spanned<f64>>, key: &str) -> Result<f64, At> {
    match rate {
        None => Ok(0.0),
        Some(rate) if rate.get_ref().is_finite() && *rate.get_ref() > 0.0 => Ok(1.0 / rate.get_ref()),
        Some(rate) => {
            let reason =
                format!("{key}: write how many work items the board does in a second, for example 4.2e8");
            Err((rate.span().start, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
board = "PAC A10"
reconfiguration = "1200ms"

[[kernel]]
bitstream = "sobel"
name = "sobel"
launch = "100us"
items_per_second = 1e6

[[kernel]]
bitstream = "sobel"
launch = "1ms"

[[kernel]]
items_per_second = 1000
dma_items_per_second = 2000
"#;

    #[test]
    fn the_first_entry_that_fits_gives_the_time() {
        let model = BoardModel::parse(GOOD).unwrap();
        assert_eq!((model.board(), model.kernels()), ("PAC A10", 3));
        assert_eq!(model.reconfiguration(), Some(Duration::from_millis(1200)));
        let (sobel, other) = (["sobel".to_owned()], ["other".to_owned()]);
        let time = |names: &[String], kernel, items| {
            model.time_of(names, kernel, items).map(|time| (time.slot, time.dma))
        };
        let [no_time, ms] = [0, 1].map(Duration::from_millis);
        assert_eq!(time(&sobel, "sobel", 1000), Some((Duration::from_micros(1100), no_time)));
        assert_eq!(time(&sobel, "other", 1000), Some((ms, no_time)));
        assert_eq!(time(&other, "sobel", 1000), Some((Duration::from_secs(1), ms * 500)));
        assert_eq!(time(&[], "any", u64::MAX), Some((LONGEST, LONGEST)));
    }

    #[test]
    fn a_kernel_that_no_entry_fits_has_no_time() {
        let model = BoardModel::parse("board = \"b\"\n[[kernel]]\nname = \"a\"\nlaunch = \"1ms\"").unwrap();
        assert_eq!(model.time_of(&[], "b", 1), None);
    }

    #[test]
    fn errors_name_the_line_and_what_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.toml");
        let kernel = "[[kernel]]\nlaunch = \"1ms\"\n";
        for (text, line, words) in [
            (String::new(), 1, "missing field `board`"),
            ("board = \"b\"\n".to_owned(), 2, "no kernel has a time; write for example [[kernel]]"),
            (format!("board = \"\"\n{kernel}"), 1, "write for example board ="),
            (format!("board = \"b\"\nslots = 4\n{kernel}"), 2, "unknown field `slots`"),
            (
                format!("board = \"b\"\nreconfiguration = \"fast\"\n{kernel}"),
                2,
                "\"fast\" is no duration; write",
            ),
            ("board = \"b\"\n\n[[kernel]]\nname = \"a\"\n".to_owned(), 3, "write launch ="),
            (
                "board = \"b\"\n[[kernel]]\nitems_per_second = 0.0\n".to_owned(),
                3,
                "how many work items the board does in a second",
            ),
            (
                "board = \"b\"\n[[kernel]]\ndma_items_per_second = -1\n".to_owned(),
                3,
                "dma_items_per_second: write how",
            ),
            ("board = \"b\"\n[[kernel]]\nlaunch = 3\n".to_owned(), 3, "expected a string"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = BoardModel::read(&path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}, line {line}: ", path.display())), "{text}: {error}");
            assert!(error.contains(words), "{text}: {error}");
        }
        let missing = folder.path().join("missing");
        assert!(BoardModel::read(&missing).unwrap_err().to_string().contains("cannot read"));
    }
}
