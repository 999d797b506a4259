//! The store: one place where its contents change, and the downloads that callers share.

use crate::contents::{Contents, Full, Item};
use crate::download::{self, FetchError, Partial, Progress};
use crate::files::Folder;
use crate::options::StoreOptions;
use crate::source::Wanted;
use fpga_core::bitstream::Digest;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tracing::{info, warn};

/// Number of downloads at the same time. Others wait for their turn.
const MAX_DOWNLOADS: usize = 16;
/// Time for which a failure is told again without another try: many pods may wait for one bitstream.
const FAILURE_COUNTS_FOR: Duration = Duration::from_secs(5);

/// A folder of bitstreams by digest.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    folder: Folder,
    state: Mutex<State>,
    turns: Semaphore,
    counts: Counts,
}

#[derive(Debug)]
struct State {
    contents: Contents,
    /// Files whose digest was compared since the start.
    compared: BTreeSet<Digest>,
    jobs: HashMap<Wanted, Job>,
    /// Failures that count still, with the times when they happened.
    failures: HashMap<Wanted, (Instant, StoreError)>,
}

#[derive(Debug, Clone)]
struct Job {
    done: watch::Receiver<Option<Result<(), StoreError>>>,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Counts {
    downloads: AtomicU64,
    failures: AtomicU64,
    evictions: AtomicU64,
    /// Bytes of downloads that have ended.
    fetched_bytes: AtomicU64,
}

/// What a store counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of bytes that the files have at most.
    pub limit_bytes: u64,
    /// Number of whole files.
    pub files: u64,
    /// Downloads that have ended well.
    pub downloads: u64,
    /// Downloads that have ended otherwise, and those for which there was no room.
    pub failures: u64,
    /// Whole files that went for others.
    pub evictions: u64,
    /// Bytes that came, of downloads that have ended.
    pub fetched_bytes: u64,
}

/// The reason why the store does not give a bitstream.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no room.
    #[error(transparent)]
    Full(#[from] Full),
    /// The bytes can't be fetched.
    #[error("{digest} can't be fetched from {place}: {reason}")]
    Fetch {
        /// The digest.
        digest: Digest,
        /// Where it was looked for.
        place: String,
        /// The reason.
        reason: String,
    },
    /// The folder can't be read or written.
    #[error("the node's store of bitstreams: {0}")]
    Disk(String),
}

impl StoreError {
    fn disk(error: &io::Error) -> Self {
        Self::Disk(error.to_string())
    }
}

impl Store {
    /// Opens the store in the folder, which is made if there is none.
    ///
    /// # Errors
    /// The folder can't be made or read.
    pub fn open(options: StoreOptions) -> io::Result<Arc<Self>> {
        let folder = Folder::make(&options.folder)?;
        let contents = folder.contents()?;
        info!(files = contents.whole(), bytes = contents.bytes(), "The store of bitstreams is open");
        let state =
            State { contents, compared: BTreeSet::new(), jobs: HashMap::new(), failures: HashMap::new() };
        Ok(Arc::new(Self {
            options,
            folder,
            state: Mutex::new(state),
            turns: Semaphore::new(MAX_DOWNLOADS),
            counts: Counts::default(),
        }))
    }

    /// The path of the file with the bytes that are wanted. What is not there is fetched, once for all callers that want
    /// it at the same time; a download goes on although its callers stop waiting. The store fetches bytes
    /// again if no source of this owner has ever delivered them. So a digest alone gives no bytes.
    ///
    /// `in_use` says whether the file with a digest must stay. The caller sees to it that the wanted one must, from before
    /// the call until the file is used no more; `in_use` must not wait for a caller of this function.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn get(
        self: &Arc<Self>,
        wanted: &Wanted,
        in_use: impl Fn(&Digest) -> bool,
    ) -> Result<PathBuf, StoreError> {
        let item = Item::Whole(wanted.digest);
        let path = self.folder.path(&item);
        let mut done = {
            let mut state = self.state.lock();
            let is_delivered = || self.folder.is_delivered(wanted.digest, &wanted.owner);
            if state.compared.contains(&wanted.digest) && path.exists() && is_delivered() {
                state.contents.touch(&item);
                self.folder.touch(wanted.digest);
                return Ok(path);
            }
            match state.jobs.get(wanted) {
                Some(job) => job.done.clone(),
                None => self.begin(&mut state, wanted, in_use)?,
            }
        };
        let ended = done.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(Ok(()))) => Ok(path),
            Ok(Some(Err(error))) => Err(error.clone()),
            Ok(None) | Err(_) => Err(StoreError::Disk("the download was cut off".to_owned())),
        }
    }

    /// Number of bytes that have come of what is being fetched; `None` if it is not being fetched.
    #[must_use]
    pub fn come(&self, wanted: &Wanted) -> Option<u64> {
        let state = self.state.lock();
        state.jobs.get(wanted).map(|job| job.progress.there.load(Ordering::Relaxed))
    }

    /// What the store has counted.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (bytes, files) = {
            let state = self.state.lock();
            (state.contents.bytes(), state.contents.whole() as u64)
        };
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { downloads, failures, evictions, fetched_bytes } = &self.counts;
        Figures {
            bytes,
            limit_bytes: self.options.limit_bytes,
            files,
            downloads: count(downloads),
            failures: count(failures),
            evictions: count(evictions),
            fetched_bytes: count(fetched_bytes),
        }
    }

    /// Makes room and begins a download.
    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        wanted: &Wanted,
        in_use: impl Fn(&Digest) -> bool,
    ) -> Result<watch::Receiver<Option<Result<(), StoreError>>>, StoreError> {
        state.failures.retain(|_, (when, _)| when.elapsed() < FAILURE_COUNTS_FOR);
        if let Some((_, error)) = state.failures.get(wanted) {
            return Err(error.clone());
        }
        let (item, partial) = (Item::Whole(wanted.digest), Item::Partial(wanted.key()));
        if !state.contents.has(&item) || !self.folder.is_delivered(wanted.digest, &wanted.owner) {
            // What has come already is part of the room that is taken now.
            let mut contents = state.contents.clone();
            contents.remove(&partial);
            let going = contents.make_room(wanted.bytes, self.options.limit_bytes, in_use);
            let going = going.inspect_err(|error| {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                warn!(%error, digest = %wanted.digest, "No room for a bitstream");
            })?;
            state.contents = contents;
            for item in going {
                self.folder.remove(&item).map_err(|error| StoreError::disk(&error))?;
                state.contents.remove(&item);
                if let Item::Whole(digest) = item {
                    state.compared.remove(&digest);
                    self.counts.evictions.fetch_add(1, Ordering::Relaxed);
                    info!(%digest, "A bitstream goes for another one");
                }
            }
        }
        state.contents.reserve(wanted.bytes);
        let (sender, done) = watch::channel(None);
        let job = Job { done: done.clone(), progress: Arc::default() };
        state.jobs.insert(wanted.clone(), job.clone());
        let (store, wanted) = (Arc::clone(self), wanted.clone());
        tokio::spawn(async move {
            let result = store.run(&wanted, &job.progress).await;
            // Nobody may be waiting any more.
            let _ = sender.send(Some(result));
        });
        Ok(done)
    }

    /// Compares what is there with its digest, or fetches it.
    async fn run(self: &Arc<Self>, wanted: &Wanted, progress: &Progress) -> Result<(), StoreError> {
        let (item, partial) = (Item::Whole(wanted.digest), Item::Partial(wanted.key()));
        let (folder, digest) = (self.folder.clone(), wanted.digest);
        let is_whole = tokio::task::spawn_blocking(move || folder.is_whole(digest)).await.unwrap_or(false);
        let fetched = if is_whole && self.folder.is_delivered(digest, &wanted.owner) {
            Ok(())
        } else {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            info!(%digest, place = %wanted.source, bytes = wanted.bytes, "A bitstream is fetched");
            let path = self.folder.path(&partial);
            let fetched = download::run(&self.options, wanted, &path, progress).await;
            fetched.and_then(|()| {
                let finished = if is_whole {
                    self.folder.remove(&partial)
                } else {
                    self.folder.finish(&wanted.key(), digest)
                };
                let noted = finished.and_then(|()| self.folder.delivered(digest, &wanted.owner));
                noted.map_err(|error| (FetchError::Disk(error), Partial::Removed))
            })
        };
        self.counts.fetched_bytes.fetch_add(progress.came.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.jobs.remove(wanted);
        state.contents.release(wanted.bytes);
        if is_whole {
            state.compared.insert(digest);
        }
        match fetched {
            Ok(()) => {
                if !is_whole {
                    self.counts.downloads.fetch_add(1, Ordering::Relaxed);
                    info!(%digest, "A bitstream is there");
                }
                let bytes =
                    std::fs::metadata(self.folder.path(&item)).map_or(wanted.bytes, |file| file.len());
                state.contents.add(item, bytes);
                state.compared.insert(digest);
                Ok(())
            }
            Err((error, kept)) => {
                if kept == Partial::Kept {
                    state.contents.add(partial, progress.there.load(Ordering::Relaxed));
                }
                // The file that was there had other bytes, and went.
                if state.contents.has(&item) && !state.compared.contains(&digest) {
                    let _ = self.folder.remove(&item);
                    state.contents.remove(&item);
                }
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                warn!(%error, %digest, place = %wanted.source, "A bitstream can't be fetched");
                let error =
                    StoreError::Fetch { digest, place: wanted.source.to_string(), reason: error.to_string() };
                state.failures.insert(wanted.clone(), (Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}
