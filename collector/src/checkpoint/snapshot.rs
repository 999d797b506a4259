//! The whole state in one file. A new snapshot is written beside the old one and renamed, so that one always exists.

use super::frame::crc32;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

const FILE: &str = "snapshot";
const NEW_FILE: &str = "snapshot.new";
const DAMAGED_FILE: &str = "snapshot.damaged";
/// Start of the first line; the checksum of the rest follows.
const MAGIC: &str = "fpga-collector-checkpoint-1 ";

/// A state and the number of the journal that continues it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Number of the journal whose records are not in the state.
    pub journal: u64,
    pub state: State,
}

/// The result of reading a snapshot.
#[derive(Debug)]
pub enum Found {
    Whole(Box<Snapshot>),
    Nothing,
    /// The file can't be decoded; it was renamed.
    Damaged,
}

/// Writes `snapshot` to `dir` and syncs it.
///
/// # Errors
/// The file system's error; the old snapshot is still there then.
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
/// The file system's error. A missing file is [`Found::Nothing`].
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

/// Syncs the directory `dir`, so that created and renamed files survive a crash.
///
/// # Errors
/// The file system's error.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
