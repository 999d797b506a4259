//! The allocations on disk: one file, replaced as a whole and made durable before anything is done.

use crate::allocations::Allocations;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Version of the file's format.
const VERSION: u32 = 1;

/// The file.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Saved<A> {
    version: u32,
    allocations: A,
}

/// The reason why a checkpoint can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// The file can't be read or written.
    #[error("the checkpoint {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has another content than a checkpoint.
    #[error(
        "the checkpoint {} can't be understood ({reason}). Remove it: containers that run keep their boards until \
         they restart, and pods with boards must then be deleted", .path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The parser's error, or the version that this program does not know.
        reason: String,
    },
}

impl Checkpoint {
    /// The checkpoint in this file, and the allocations in it; none if there is no file.
    ///
    /// # Errors
    /// [`CheckpointError`], if the file can't be read or understood.
    pub(crate) fn open(path: &Path) -> Result<(Self, Allocations), CheckpointError> {
        let path = path.to_owned();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Self { path }, Allocations::default()));
            }
            Err(source) => return Err(CheckpointError::Io { path, source }),
        };
        match serde_json::from_slice::<Saved<Allocations>>(&text) {
            Ok(Saved { version: VERSION, allocations }) => Ok((Self { path }, allocations)),
            Ok(Saved { version, .. }) => {
                let reason = format!("it has version {version}, and this plugin reads version {VERSION}");
                Err(CheckpointError::Content { path, reason })
            }
            Err(error) => Err(CheckpointError::Content { path, reason: error.to_string() }),
        }
    }

    /// Saves the allocations. Afterwards they survive a crash of the machine.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], if the file can't be written. The previous content stays then.
    pub(crate) fn save(&self, allocations: &Allocations) -> Result<(), CheckpointError> {
        self.write(allocations).map_err(|source| CheckpointError::Io { path: self.path.clone(), source })
    }

    fn write(&self, allocations: &Allocations) -> io::Result<()> {
        replace_durably(&self.path, &serde_json::to_vec(&Saved { version: VERSION, allocations })?)
    }
}

/// Replaces a file as a whole. Afterwards it survives a crash of the machine.
///
/// # Errors
/// The file can't be written. The previous content stays then.
pub(crate) fn replace_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(&partial, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::{AllocationId, Event, InstanceId};

    #[test]
    fn what_was_saved_is_read_and_what_is_no_checkpoint_is_refused_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("allocations.json");
        let (checkpoint, mut allocations) = Checkpoint::open(&path).unwrap();
        assert_eq!(allocations, Allocations::default());
        let instances = [InstanceId::of_board("b0", 1)].into();
        allocations.decide(Event::Allocated { id: AllocationId::of("a1"), instances }).unwrap();
        checkpoint.save(&allocations).unwrap();
        assert_eq!(Checkpoint::open(&path).unwrap().1, allocations);
        for text in ["", "{}", r#"{"version":2,"allocations":{"next":0,"byId":{}}}"#] {
            fs::write(&path, text).unwrap();
            let error = Checkpoint::open(&path).unwrap_err().to_string();
            assert!(error.contains("Remove it"), "{error}");
        }
    }
}
