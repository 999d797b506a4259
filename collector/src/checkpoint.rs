//! The state on disk. A report is acknowledged only after it is on disk, so that `kill -9` loses nothing that was
//! acknowledged.
//!
//! A folder holds a snapshot and the journal of the records after it. A snapshot names its journal by number, so at
//! every moment exactly one snapshot and one journal belong together:
//! ```text
//!   journal-7 grows … make journal-8 (empty) → write snapshot, which names 8 → remove journal-7
//! ```
//! A journal that is cut off in the middle of a record ends before that record, which was never acknowledged.

pub mod frame;
pub mod snapshot;
#[cfg(test)]
mod tests;

use crate::state::State;
use fpga_core::units::{Millis, WallTime};
use fpga_core::window::InvalidLength;
use frame::{EncodeError, Source};
use snapshot::{Found, Snapshot, sync_dir};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCK_FILE: &str = "lock";
const JOURNAL_PREFIX: &str = "journal-";
/// Size of the journal, in bytes, from which on it is replaced by a snapshot; one of this size is read in well under
/// a second.
const COMPACT_AT_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum wait for a predecessor that is still ending.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    /// The current journal; `None` if the disk has been full since the start.
    journal: Option<File>,
    number: u64,
    bytes: u64,
    /// Encoded records that the next commit writes together.
    group: Vec<u8>,
    /// Locked while the checkpoint is open.
    _lock: File,
}

/// The content of a checkpoint folder.
#[derive(Debug)]
pub struct Recovered {
    pub state: State,
    /// Number of records read from the journal.
    pub records: u64,
    /// Bytes at the journal's end that are not a whole record.
    pub torn_bytes: u64,
    /// Whether a damaged snapshot was renamed.
    pub damaged: bool,
}

/// Reason why a checkpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system returned an error.
    #[error("the checkpoint folder {dir} can't be used: {source}")]
    Io {
        dir: PathBuf,
        /// The file system's error.
        #[source]
        source: io::Error,
    },
    /// Another collector uses the folder.
    #[error("the checkpoint folder {0} is in use by another collector; give each its own --checkpoint-dir")]
    InUse(PathBuf),
    /// The window cannot have the requested length.
    #[error(transparent)]
    Length(#[from] InvalidLength),
    /// A record cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Checkpoint {
    /// Opens the checkpoint in `dir`, creates it if there is none, and recovers the state.
    ///
    /// # Errors
    /// [`CheckpointError`] if the folder can't be used. Damage is not an error; [`Recovered`] reports it. On a full
    /// disk the checkpoint opens, and the first commit fails.
    pub fn open(dir: &Path, length: Millis, now: WallTime) -> Result<(Self, Recovered), CheckpointError> {
        let io = |source| CheckpointError::Io { dir: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(io)?;
        let lock = lock(dir)?;
        let (found, damaged) = match snapshot::read(dir).map_err(io)? {
            Found::Whole(snapshot) => (Some(*snapshot), false),
            Found::Nothing => (None, false),
            Found::Damaged => (None, true),
        };
        let (number, mut state) = match found {
            Some(Snapshot { journal, state }) => (journal, state),
            None if damaged => (next_number(dir).map_err(io)?, State::new(length)?),
            None => (0, State::new(length)?),
        };
        let bytes = read_if_there(&journal_path(dir, number)).map_err(io)?;
        let (records, whole) = replay(&mut state, &bytes);
        let state = state.with_length(length, now)?;
        // Each process begins a new journal, so that no record is ever written after a torn end.
        let number = number + 1;
        let journal = match begin_journal(dir, number, &state) {
            Ok(journal) => Some(journal),
            // The recovered state can be published all the same.
            Err(error) if is_full(&error) => None,
            Err(error) => return Err(io(error)),
        };
        let checkpoint =
            Self { dir: dir.to_owned(), journal, number, bytes: 0, group: Vec::new(), _lock: lock };
        let torn_bytes = (bytes.len() - whole) as u64;
        Ok((checkpoint, Recovered { state, records, torn_bytes, damaged }))
    }

    /// Adds a record to the group that is written next.
    ///
    /// # Errors
    /// [`EncodeError`]; the group is unchanged then.
    pub fn add(&mut self, source: Source<'_>, at: WallTime) -> Result<(), EncodeError> {
        frame::encode(source, at, &mut self.group)
    }

    /// Bytes in the group that is written next.
    pub fn group_bytes(&self) -> usize {
        self.group.len()
    }

    /// Appends the group to the journal and syncs it to the disk. After a failure the content of the file is unknown,
    /// and only [`Self::compact`] makes the checkpoint usable again.
    ///
    /// # Errors
    /// The file system's error.
    pub fn commit(&mut self) -> io::Result<()> {
        if self.group.is_empty() {
            return Ok(());
        }
        let group = std::mem::take(&mut self.group);
        let Some(journal) = &mut self.journal else { return Err(io::ErrorKind::StorageFull.into()) };
        journal.write_all(&group)?;
        journal.sync_data()?;
        self.bytes += group.len() as u64;
        self.group = group;
        self.group.clear();
        Ok(())
    }

    /// Whether the journal is long enough to be replaced by a snapshot.
    pub fn wants_compaction(&self) -> bool {
        self.bytes >= COMPACT_AT_BYTES
    }

    pub fn journal_bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes `state`, which must contain all added records, as a snapshot, and begins a new journal.
    ///
    /// # Errors
    /// The file system's error. It is then unknown which pair of snapshot and journal is valid, but either contains
    /// all committed records. Nothing may be committed until `compact` succeeds.
    pub fn compact(&mut self, state: &State) -> io::Result<()> {
        // A retry uses the same number: whichever journal the snapshot names, the one with this number is empty, and
        // a disk that stays full does not get a new file per retry.
        let number = self.number + 1;
        let journal = begin_journal(&self.dir, number, state)?;
        (self.number, self.journal, self.bytes) = (number, Some(journal), 0);
        self.group.clear();
        Ok(())
    }
}

/// Whether the disk, or this user's quota, is full: a condition that may pass.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Creates an empty journal and the snapshot that it continues.
fn begin_journal(dir: &Path, number: u64, state: &State) -> io::Result<File> {
    let journal = create_journal(dir, number)?;
    write_snapshot(dir, number, state)?;
    Ok(journal)
}

/// Writes a snapshot of `state` that names the journal `number`, and removes the older journals.
fn write_snapshot(dir: &Path, number: u64, state: &State) -> io::Result<()> {
    snapshot::write(dir, &Snapshot { journal: number, state: state.clone() })?;
    for (older, path) in journals(dir)? {
        if older < number {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Applies the whole records at the start of `journal`; returns their number and the offset of their end.
fn replay(state: &mut State, journal: &[u8]) -> (u64, usize) {
    let (mut records, mut end) = (0, 0);
    while let Some((record, at, length)) = frame::decode(&journal[end..]) {
        state.apply(&record, at);
        records += 1;
        end += length;
    }
    (records, end)
}

fn lock(dir: &Path) -> Result<File, CheckpointError> {
    let io = |source| CheckpointError::Io { dir: dir.to_owned(), source };
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK_FILE)).map_err(io)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => return Err(CheckpointError::InUse(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
    }
}

fn journal_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{JOURNAL_PREFIX}{number}"))
}

fn create_journal(dir: &Path, number: u64) -> io::Result<File> {
    let file = File::create(journal_path(dir, number))?;
    file.sync_all()?;
    sync_dir(dir)?;
    Ok(file)
}

fn read_if_there(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut bytes).map(|_| bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bytes),
        Err(error) => Err(error),
    }
}

/// Number and path of each journal in `dir`.
fn journals(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(JOURNAL_PREFIX)?.parse().ok());
        found.extend(number.map(|number: u64| (number, entry.path())));
    }
    Ok(found)
}

/// A number greater than those of all journals in `dir`, since none of these continues an empty state.
fn next_number(dir: &Path) -> io::Result<u64> {
    Ok(journals(dir)?.iter().map(|(number, _)| number + 1).max().unwrap_or(0))
}
