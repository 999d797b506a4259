//! The store: one place where its contents change, and the downloads that callers share.

use crate::contents::{Contents, Full, Item};
use crate::download::{self, Cancellation, FetchError, Partial, Progress};
use crate::files::Folder;
use crate::options::StoreOptions;
use crate::source::Wanted;
use crate::turns::{Asker, Joined, Turns};
use fpga_core::bitstream::Digest;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

/// Time for which a failure is told again without another try: many pods may wait for one bitstream.
const FAILURE_COUNTS_FOR: Duration = Duration::from_secs(5);

/// A folder of bitstreams by digest.
#[derive(Debug)]
pub struct Store {
    options: StoreOptions,
    folder: Folder,
    state: Mutex<State>,
    counts: Counts,
}

#[derive(Debug)]
struct State {
    contents: Contents,
    /// Files whose digest was compared since the start.
    compared: BTreeSet<Digest>,
    jobs: HashMap<Wanted, Job>,
    turns: Turns<Wanted>,
    /// Failures that count still, with the times when they happened.
    failures: HashMap<Wanted, (Instant, StoreError)>,
}

/// How a download has ended; `None` before.
type Done = watch::Receiver<Option<Result<(), StoreError>>>;
/// Whether the file with a digest must stay.
type InUse = Arc<dyn Fn(&Digest) -> bool + Send + Sync>;

/// A download as its callers see it.
#[derive(Debug)]
struct Job {
    done: Done,
    progress: Arc<Progress>,
    /// Tells that it has its turn.
    turn: Option<oneshot::Sender<()>>,
    cancelled: watch::Sender<bool>,
}

/// A download as it works.
struct Work {
    wanted: Wanted,
    progress: Arc<Progress>,
    has_turn: oneshot::Receiver<()>,
    cancellation: Cancellation,
    in_use: InUse,
}

/// What a caller finds.
enum Found {
    /// The file is there.
    There,
    /// The file comes by this download.
    Download(Done, Joined),
}

#[derive(Debug, Default)]
struct Counts {
    downloads: AtomicU64,
    failures: AtomicU64,
    evictions: AtomicU64,
    comparisons: AtomicU64,
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
    /// Files that were read to compare them with their digests, or looked for.
    pub comparisons: u64,
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
    /// All pods that wanted the bytes have ended.
    #[error("{0} is not fetched any more: the pods that wanted it have ended")]
    Cancelled(Digest),
    /// The folder can't be read or written.
    #[error("the node's store of bitstreams: {0}")]
    Disk(String),
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
        let state = State {
            contents,
            compared: BTreeSet::new(),
            jobs: HashMap::new(),
            turns: Turns::default(),
            failures: HashMap::new(),
        };
        Ok(Arc::new(Self { options, folder, state: Mutex::new(state), counts: Counts::default() }))
    }

    /// The path of the file with the bytes that are wanted. What is not there is fetched, once for all callers that want
    /// it at the same time; a download goes on although its callers stop waiting, until [`Store::retain`] says that no
    /// asker wants it. The store fetches bytes again if no source of this owner has ever delivered them. So a digest alone
    /// gives no bytes (`registry/README.md`).
    ///
    /// `in_use` says whether the file with a digest must stay. The caller sees to it that the wanted one must, from before
    /// the call until the file is used no more; `in_use` must not wait for a caller of this function.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn get(
        self: &Arc<Self>,
        wanted: &Wanted,
        asker: &Asker,
        in_use: impl Fn(&Digest) -> bool + Send + Sync + 'static,
    ) -> Result<PathBuf, StoreError> {
        let in_use: InUse = Arc::new(in_use);
        loop {
            let (mut done, joined) = match self.join(wanted, asker, &in_use)? {
                Found::There => return Ok(self.folder.path(&Item::Whole(wanted.digest))),
                Found::Download(done, joined) => (done, joined),
            };
            let ended = done.wait_for(Option::is_some).await;
            match (joined, ended.as_deref()) {
                // Another one begins.
                (Joined::Ending, _) => {}
                (_, Ok(Some(Ok(())))) => return Ok(self.folder.path(&Item::Whole(wanted.digest))),
                (_, Ok(Some(Err(error)))) => return Err(error.clone()),
                (_, Ok(None) | Err(_)) => {
                    return Err(StoreError::Disk("the download was cut off".to_owned()));
                }
            }
        }
    }

    /// The asker with this id wants only the files for which `still` is true. Downloads that no asker wants any more end.
    pub fn retain(&self, asker: &str, still: impl Fn(&Wanted) -> bool) {
        let mut state = self.state.lock();
        for wanted in state.turns.retain(asker, still) {
            if let Some(job) = state.jobs.get(&wanted) {
                job.cancelled.send_replace(true);
            }
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
        let Counts { downloads, failures, evictions, comparisons, fetched_bytes } = &self.counts;
        Figures {
            bytes,
            limit_bytes: self.options.limit_bytes,
            files,
            downloads: count(downloads),
            failures: count(failures),
            evictions: count(evictions),
            comparisons: count(comparisons),
            fetched_bytes: count(fetched_bytes),
        }
    }

    /// Finds the file, or the download that the asker waits for.
    fn join(self: &Arc<Self>, wanted: &Wanted, asker: &Asker, in_use: &InUse) -> Result<Found, StoreError> {
        let mut state = self.state.lock();
        let item = Item::Whole(wanted.digest);
        let is_delivered = || self.folder.is_delivered(wanted.digest, &wanted.owner);
        if state.compared.contains(&wanted.digest) && self.folder.path(&item).exists() && is_delivered() {
            state.contents.touch(&item);
            self.folder.touch(wanted.digest);
            return Ok(Found::There);
        }
        state.failures.retain(|_, (when, _)| when.elapsed() < FAILURE_COUNTS_FOR);
        if let Some((_, error)) = state.failures.get(wanted) {
            return Err(error.clone());
        }
        let joined = state.turns.join(wanted, wanted.source.host(), asker);
        // The asker's namespace may have a turn for a download that waits.
        state.begin_due();
        let done = match state.jobs.get(wanted) {
            Some(job) => job.done.clone(),
            None => self.begin(&mut state, wanted, in_use),
        };
        Ok(Found::Download(done, joined))
    }

    /// Begins a download.
    fn begin(self: &Arc<Self>, state: &mut State, wanted: &Wanted, in_use: &InUse) -> Done {
        let (result, done) = watch::channel(None);
        let (turn, has_turn) = oneshot::channel();
        let (cancelled, cancellation) = watch::channel(false);
        let progress = Arc::<Progress>::default();
        let job = Job { done: done.clone(), progress: Arc::clone(&progress), turn: Some(turn), cancelled };
        state.jobs.insert(wanted.clone(), job);
        let (store, wanted, in_use) = (Arc::clone(self), wanted.clone(), Arc::clone(in_use));
        tokio::spawn(async move {
            let work = Work { wanted, progress, has_turn, cancellation: Cancellation(cancellation), in_use };
            let ended = store.run(work).await;
            // Nobody may be waiting any more.
            let _ = result.send(Some(ended));
        });
        done
    }

    /// Compares what is there with its digest, or fetches it.
    async fn run(&self, work: Work) -> Result<(), StoreError> {
        let (wanted, progress) = (work.wanted.clone(), Arc::clone(&work.progress));
        let is_whole = self.compare(wanted.digest).await;
        let (room, fetched) = if is_whole && self.folder.is_delivered(wanted.digest, &wanted.owner) {
            (0, Ok(()))
        } else {
            self.fetch(work, is_whole).await
        };
        self.counts.fetched_bytes.fetch_add(progress.came.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.jobs.remove(&wanted);
        state.turns.end(&wanted);
        state.contents.release(room);
        state.begin_due();
        match fetched {
            Ok(()) => {
                if !is_whole {
                    self.counts.downloads.fetch_add(1, Ordering::Relaxed);
                    info!(digest = %wanted.digest, "A bitstream is there");
                }
                let item = Item::Whole(wanted.digest);
                let bytes =
                    std::fs::metadata(self.folder.path(&item)).map_or(wanted.bytes, |file| file.len());
                state.contents.add(item, bytes);
                state.compared.insert(wanted.digest);
                Ok(())
            }
            Err((error, kept)) => {
                if room > 0 && kept == Partial::Kept {
                    let partial = Item::Partial(wanted.key());
                    state.contents.add(partial, progress.there.load(Ordering::Relaxed));
                }
                Err(self.failed(&mut state, wanted, error))
            }
        }
    }

    /// Notes why a download has failed.
    fn failed(&self, state: &mut State, wanted: Wanted, error: FetchError) -> StoreError {
        let digest = wanted.digest;
        if matches!(error, FetchError::Cancelled) {
            info!(%digest, place = %wanted.source, "A download ends: no pod wants it any more");
            return StoreError::Cancelled(digest);
        }
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        warn!(%error, %digest, place = %wanted.source, "A bitstream can't be fetched");
        match error {
            // There may be room a moment later.
            FetchError::Full(full) => full.into(),
            error => {
                let place = wanted.source.to_string();
                let error = StoreError::Fetch { digest, place, reason: error.to_string() };
                state.failures.insert(wanted, (Instant::now(), error.clone()));
                error
            }
        }
    }

    /// Whether a whole file is there with the bytes of its name. One with other bytes is removed.
    async fn compare(&self, digest: Digest) -> bool {
        // Each owner and source without a note asks: a file is read once.
        let is_compared = self.state.lock().compared.contains(&digest);
        if is_compared && self.folder.path(&Item::Whole(digest)).exists() {
            return true;
        }
        self.counts.comparisons.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.clone();
        let is_whole = tokio::task::spawn_blocking(move || folder.is_whole(digest)).await.unwrap_or(false);
        let (mut state, item) = (self.state.lock(), Item::Whole(digest));
        if is_whole {
            state.compared.insert(digest);
        } else if state.contents.has(&item) && !state.compared.contains(&digest) {
            // A file that can't be removed is replaced by the one that comes.
            let _ = self.folder.remove(&item);
            state.contents.remove(&item);
        }
        is_whole
    }

    /// Waits for a turn and fetches the bytes. Returns the room that they have been given, too.
    async fn fetch(&self, work: Work, is_whole: bool) -> (u64, Result<(), (FetchError, Partial)>) {
        let Work { wanted, progress, has_turn, mut cancellation, in_use } = work;
        {
            let mut state = self.state.lock();
            state.turns.wait(&wanted);
            state.begin_due();
        }
        // The sender is there as long as the download.
        let turn = async { has_turn.await.map_err(|_| FetchError::Cancelled) };
        let begun = match cancellation.or(turn).await {
            Ok(()) => self.make_room(&wanted, &*in_use),
            Err(error) => Err(error),
        };
        if let Err(error) = begun {
            return (0, Err((error, Partial::Kept)));
        }
        let digest = wanted.digest;
        info!(%digest, place = %wanted.source, bytes = wanted.bytes, "A bitstream is fetched");
        let partial = Item::Partial(wanted.key());
        let path = self.folder.path(&partial);
        let fetched = download::run(&self.options, &wanted, &path, &progress, &mut cancellation).await;
        let fetched = fetched.and_then(|()| {
            let finished = if is_whole {
                self.folder.remove(&partial)
            } else {
                self.folder.finish(&wanted.key(), digest)
            };
            let noted = finished.and_then(|()| self.folder.delivered(digest, &wanted.owner));
            noted.map_err(|error| (FetchError::Disk(error), Partial::Removed))
        });
        (wanted.bytes, fetched)
    }

    /// Takes room for a download that begins.
    fn make_room(
        &self,
        wanted: &Wanted,
        in_use: &(dyn Fn(&Digest) -> bool + Send + Sync),
    ) -> Result<(), FetchError> {
        let mut state = self.state.lock();
        // What has come already is part of the room that is taken now.
        let mut contents = state.contents.clone();
        contents.remove(&Item::Partial(wanted.key()));
        let going = contents.make_room(wanted.bytes, self.options.limit_bytes, in_use)?;
        state.contents = contents;
        for item in going {
            self.folder.remove(&item)?;
            state.contents.remove(&item);
            if let Item::Whole(digest) = item {
                state.compared.remove(&digest);
                self.counts.evictions.fetch_add(1, Ordering::Relaxed);
                info!(%digest, "A bitstream goes for another one");
            }
        }
        state.contents.reserve(wanted.bytes);
        Ok(())
    }
}

impl State {
    /// Lets the downloads begin that have their turn.
    fn begin_due(&mut self) {
        for wanted in self.turns.begin() {
            if let Some(turn) = self.jobs.get_mut(&wanted).and_then(|job| job.turn.take()) {
                // A download that has just ended needs no turn.
                let _ = turn.send(());
            }
        }
    }
}
