//! The bitstream of each program: identified by the digest of its bytes, with the name that the environment gives it.

use fpga_core::bitstream::{BitstreamId, Digest};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name for work whose bitstream is unknown. No accelerator has this name, since those come from files.
const SOURCE_NAME: &str = "kube-fpga/source";

/// Maximum number of programs in memory, far more than applications create. When it is reached, all are forgotten,
/// and each is known again when it is created again.
const MAX_PROGRAMS: usize = 4096;

#[derive(Debug, PartialEq, Eq)]
pub struct Bitstream {
    /// The name, or the digest if there is no name.
    pub id: BitstreamId,
    /// The digest, if it is known.
    pub digest: Option<Digest>,
}

/// The bitstreams of the application's programs.
#[derive(Debug)]
pub struct Bitstreams {
    names: BTreeMap<Digest, String>,
    unknown: Arc<Bitstream>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    programs: HashMap<usize, Program>,
    /// The bitstream that was used last; transfers count for it.
    last: Arc<Bitstream>,
}

#[derive(Debug, Clone)]
enum Program {
    /// A program of this source that is not built yet.
    Source(Digest),
    /// A program of this bitstream; `source` is set if it was built from one.
    Is { bitstream: Arc<Bitstream>, source: Option<Digest> },
}

impl Bitstreams {
    /// An empty collection, with the names of bitstreams.
    pub fn new(names: BTreeMap<Digest, String>) -> Self {
        let unknown = Arc::new(Bitstream { id: BitstreamId::Name(SOURCE_NAME.to_owned()), digest: None });
        let inner = Inner { programs: HashMap::new(), last: Arc::clone(&unknown) };
        Self { names, unknown, inner: Mutex::new(inner) }
    }

    /// The bitstream with this digest.
    pub fn identify(&self, digest: Digest) -> Arc<Bitstream> {
        let name = self.names.get(&digest).cloned().map(BitstreamId::Name);
        Arc::new(Bitstream { id: name.unwrap_or(BitstreamId::Digest(digest)), digest: Some(digest) })
    }

    /// Records a program that was created from this bitstream.
    pub fn made_of(&self, program: *mut c_void, bitstream: &Arc<Bitstream>) {
        let mut inner = self.lock();
        inner.last = Arc::clone(bitstream);
        inner.insert(program, Program::Is { bitstream: Arc::clone(bitstream), source: None });
    }

    /// Records a program that was created from this source.
    pub fn made_of_source(&self, program: *mut c_void, source: Digest) {
        self.lock().insert(program, Program::Source(source));
    }

    /// Records a program of unknown origin.
    pub fn made_otherwise(&self, program: *mut c_void) {
        self.lock().programs.remove(&(program as usize));
    }

    /// Records that a program was built with these options; returns its bitstream if it was created from source.
    pub fn built(&self, program: *mut c_void, options: &[u8]) -> Option<Arc<Bitstream>> {
        let source = match self.lock().programs.get(&(program as usize))? {
            Program::Source(source) => *source,
            Program::Is { source, .. } => (*source)?,
        };
        let bitstream = self.identify(digest_of([source.as_bytes().as_slice(), options]));
        let built = Program::Is { bitstream: Arc::clone(&bitstream), source: Some(source) };
        self.lock().insert(program, built);
        Some(bitstream)
    }

    /// The bitstream of a kernel's program; it becomes the last used one.
    pub fn used(&self, program: *mut c_void) -> Arc<Bitstream> {
        let mut inner = self.lock();
        let used = match inner.programs.get(&(program as usize)) {
            Some(Program::Is { bitstream, .. }) => bitstream,
            Some(Program::Source(_)) | None => &self.unknown,
        };
        let used = Arc::clone(used);
        inner.last = Arc::clone(&used);
        used
    }

    pub fn last(&self) -> Arc<Bitstream> {
        Arc::clone(&self.lock().last)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn insert(&mut self, program: *mut c_void, what: Program) {
        if self.programs.len() >= MAX_PROGRAMS {
            self.programs.clear();
        }
        self.programs.insert(program as usize, what);
    }
}

/// The SHA-256 digest of all `parts` in order.
pub fn digest_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Digest::from_bytes(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_known_by_digest_or_by_the_name_given_to_it() {
        let named = digest_of([b"bytes".as_slice()]);
        let bitstreams = Bitstreams::new(BTreeMap::from([(named, "sobel".to_owned())]));
        assert_eq!(bitstreams.identify(named).id.to_string(), "sobel");
        let other = digest_of([b"others".as_slice()]);
        assert_eq!(bitstreams.identify(other).id, BitstreamId::Digest(other));
    }

    #[test]
    fn a_source_is_another_bitstream_with_other_options_and_transfers_count_for_the_last_used() {
        let bitstreams = Bitstreams::new(BTreeMap::new());
        let program = 16 as *mut c_void;
        assert_eq!(bitstreams.used(program).id.to_string(), SOURCE_NAME);
        bitstreams.made_of_source(program, digest_of([b"kernel".as_slice()]));
        let plain = bitstreams.built(program, b"").unwrap();
        let fast = bitstreams.built(program, b"-O3").unwrap();
        assert_ne!(plain, fast);
        assert_eq!(bitstreams.used(program), fast);
        assert_eq!(bitstreams.last(), fast);
        bitstreams.made_otherwise(program);
        assert!(bitstreams.built(program, b"").is_none());
    }
}
