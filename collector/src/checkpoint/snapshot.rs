//! The whole state in one file: written beside the old one and put in its place at once, so that there is always one.

use super::frame::crc32;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "snapshot";
const NEW_FILE: &str = "snapshot.new";
const DAMAGED_FILE: &str = "snapshot.damaged";
/// Starts the first line; the checksum of the rest ends it.
const MAGIC: &str = "fpga-collector-checkpoint-1 ";

/// A state, and the journal that goes on from it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Number of the journal whose records are not in the state.
    pub journal: u64,
    /// All that was known.
    pub state: State,
}

/// What lies in the folder.
#[derive(Debug)]
pub enum Found {
    /// A snapshot.
    Whole(Box<Snapshot>),
    /// No file.
    Nothing,
    /// A file that can't be read; it was put aside.
    Damaged,
}

/// Writes `snapshot` to `dir` for good.
///
/// # Errors
/// What the file system says; the old snapshot is still there then.
pub fn write(dir: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let json = serde_json::to_vec(snapshot)?;
    let new = dir.join(NEW_FILE);
    let mut file = File::create(&new)?;
    file.write_all(format!("{MAGIC}{:08x}\n", crc32(&json)).as_bytes())?;
    file.write_all(&json)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(FILE))?;
    sync_dir(dir)
}

/// Reads the snapshot in `dir`.
///
/// # Errors
/// What the file system says; that there is none is no error.
pub fn read(dir: &Path) -> io::Result<Found> {
    let path = dir.join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    match parse(&bytes) {
        Some(snapshot) => Ok(Found::Whole(Box::new(snapshot))),
        None => {
            fs::rename(&path, dir.join(DAMAGED_FILE))?;
            Ok(Found::Damaged)
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Snapshot> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let crc = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix(MAGIC)?;
    let json = &bytes[end + 1..];
    if u32::from_str_radix(crc, 16).ok()? != crc32(json) {
        return None;
    }
    serde_json::from_slice(json).ok()
}

/// Makes the names in `dir` last.
///
/// # Errors
/// What the file system says.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
