//! The state on disk: what is acknowledged is here first, so that `kill -9` loses nothing that was acknowledged.
//!
//! A folder holds a snapshot and the journal of what came after it. A snapshot names its journal by number, so that at
//! every moment exactly one pair of them belongs together:
//! ```text
//!   journal-7 grows … make journal-8 (empty) → write snapshot, which names 8 → remove journal-7
//! ```
//! A journal that is cut off in the middle of a record ends before that record: nobody was told that it is safe.

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
/// A journal of so many bytes is worth a snapshot: it is read in well under a second.
const COMPACT_AT_BYTES: u64 = 4 * 1024 * 1024;
/// How long to wait for a predecessor that still ends.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// The open checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    /// None where the disk has been full since the start.
    journal: Option<File>,
    number: u64,
    bytes: u64,
    /// Records that are to be written together.
    group: Vec<u8>,
    /// Held as long as the checkpoint is open.
    _lock: File,
}

/// What a checkpoint folder gave.
#[derive(Debug)]
pub struct Recovered {
    /// The state.
    pub state: State,
    /// Records that were read from the journal.
    pub records: u64,
    /// Bytes at the journal's end that were no whole record.
    pub torn_bytes: u64,
    /// Whether a damaged snapshot was put aside.
    pub damaged: bool,
}

/// Why a checkpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system says no.
    #[error("the checkpoint folder {dir} can't be used: {source}")]
    Io {
        /// The folder.
        dir: PathBuf,
        /// What the file system says.
        #[source]
        source: io::Error,
    },
    /// Another collector uses it.
    #[error("the checkpoint folder {0} is in use by another collector; give each its own --checkpoint-dir")]
    InUse(PathBuf),
    /// The window's length.
    #[error(transparent)]
    Length(#[from] InvalidLength),
    /// A record can't be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Checkpoint {
    /// Opens the checkpoint in `dir`, makes it where there is none, and recovers what it holds.
    ///
    /// # Errors
    /// [`CheckpointError`] when the folder can't be used; damage is not an error but is told in [`Recovered`]. On a full disk
    /// it opens, and the first commit fails.
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
        // A journal of its own for this process: nothing is ever written after a torn end.
        let number = number + 1;
        let journal = match begin_journal(dir, number, &state) {
            Ok(journal) => Some(journal),
            // What was recovered can be published all the same.
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
    /// [`EncodeError`]; the group is as before then.
    pub fn add(&mut self, source: Source<'_>, at: WallTime) -> Result<(), EncodeError> {
        frame::encode(source, at, &mut self.group)
    }

    /// Bytes in the group that is written next.
    pub fn group_bytes(&self) -> usize {
        self.group.len()
    }

    /// Writes the group, and returns when it lasts. After a failure only [`Self::compact`] makes it usable again: what
    /// the file then holds is anyone's guess.
    ///
    /// # Errors
    /// What the file system says.
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

    /// Whether the journal is long enough for a snapshot.
    pub fn wants_compaction(&self) -> bool {
        self.bytes >= COMPACT_AT_BYTES
    }

    /// Bytes in the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes `state`, which must hold all that was added, as a snapshot, and begins a new journal.
    ///
    /// # Errors
    /// What the file system says. Which pair of snapshot and journal is valid then is not known, but either holds all
    /// that was committed: nothing may be committed until this succeeds.
    pub fn compact(&mut self, state: &State) -> io::Result<()> {
        // The number is used again when this fails: whatever the snapshot names then, the journal of this number is empty,
        // and a disk that stays full gets no file per try.
        let number = self.number + 1;
        let journal = begin_journal(&self.dir, number, state)?;
        (self.number, self.journal, self.bytes) = (number, Some(journal), 0);
        self.group.clear();
        Ok(())
    }
}

/// Whether there is no more room on the disk, or none for us: that passes, and is nobody's mistake.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// An empty journal, and the snapshot that it goes on from.
fn begin_journal(dir: &Path, number: u64, state: &State) -> io::Result<File> {
    let journal = create_journal(dir, number)?;
    write_snapshot(dir, number, state)?;
    Ok(journal)
}

/// Puts a snapshot of `state` in place to which the journal `number` belongs, and removes the journals before.
fn write_snapshot(dir: &Path, number: u64, state: &State) -> io::Result<()> {
    snapshot::write(dir, &Snapshot { journal: number, state: state.clone() })?;
    for (older, path) in journals(dir)? {
        if older < number {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Applies the whole records at the start of `journal`; says how many they are and where they end.
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
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < patience => {
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

/// The journals in `dir`.
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

/// A number above those of all journals in `dir`: none of them goes on from an empty state.
fn next_number(dir: &Path) -> io::Result<u64> {
    Ok(journals(dir)?.iter().map(|(number, _)| number + 1).max().unwrap_or(0))
}
