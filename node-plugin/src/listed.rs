//! The library as the gate knows it: the API server's last answer about each namespace with boards. A manager that asks for
//! many bitstreams makes no more requests to the API server than one that asks for one.
//!
//! Without an answer of the API server the last one counts, however old it is: the gate needs no API server for
//! containers that run. The answers are kept on disk, for a plugin that starts again.

use crate::checkpoint::replace_durably;
use crate::library::{Bitstreams, LibraryError};
use fpga_core::library::Library;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// Pause after the API server gave no answer, before it is asked again about the same namespace.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a question waits for the API server although an earlier answer is known.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for which a question waits for the first answer.
const FIRST_PATIENCE: Duration = Duration::from_secs(8);

/// What the API server told about a namespace: its library; `None` where it has no Bitstreams.
type Answer = Option<Arc<Library>>;

/// What pods of each namespace may name by digest.
pub(crate) struct Listed {
    bitstreams: Arc<Bitstreams>,
    /// Folder with a file for each namespace.
    folder: PathBuf,
    by_namespace: Mutex<BTreeMap<String, Arc<Namespace>>>,
}

/// What is known of a namespace.
#[derive(Default)]
struct Namespace {
    known: Mutex<Known>,
    /// Held while the API server is asked: questions about one namespace share one request.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    answer: Option<Answer>,
    /// When the API server answered; `None` where an earlier plugin asked.
    answered: Option<Instant>,
    /// Why it gave no answer the last time.
    failure: Option<(String, Instant)>,
}

/// An answer on disk.
#[derive(Serialize, Deserialize)]
struct Kept<L> {
    library: Option<L>,
}

impl Listed {
    /// The answers that an earlier plugin kept in this folder, and those to come.
    pub(crate) fn new(bitstreams: Arc<Bitstreams>, folder: PathBuf) -> Self {
        Self { bitstreams, folder, by_namespace: Mutex::default() }
    }

    /// The library of a namespace, read within the last `age` if the API server answers, else as it was the last time.
    ///
    /// # Errors
    /// The API server gives no answer, and never gave one.
    pub(crate) async fn of_namespace(
        self: &Arc<Self>,
        namespace: &str,
        age: Duration,
    ) -> Result<Answer, LibraryError> {
        let of = {
            let mut all = self.by_namespace.lock();
            let new = || Arc::new(Namespace::new(self.read(namespace)));
            Arc::clone(all.entry(namespace.to_owned()).or_insert_with(new))
        };
        if of.known.lock().is_to_be_read(age) {
            let patience = if of.known.lock().answer.is_some() { PATIENCE } else { FIRST_PATIENCE };
            let (listed, of, namespace) = (Arc::clone(self), Arc::clone(&of), namespace.to_owned());
            // The request goes on although nobody waits for it any more.
            let asking = tokio::spawn(async move { listed.ask(&namespace, &of, age).await });
            let _ = timeout(patience, asking).await;
        }
        let known = of.known.lock();
        known.answer.clone().ok_or_else(|| {
            let reason = known.failure.as_ref().map(|(reason, _)| reason.clone());
            LibraryError::NotKnown(reason.unwrap_or_else(|| "the API server has not answered yet".to_owned()))
        })
    }

    /// Forgets all namespaces but these.
    pub(crate) fn retain(&self, namespaces: &BTreeSet<String>) {
        self.by_namespace.lock().retain(|namespace, _| namespaces.contains(namespace));
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if !file.file_name().to_str().is_some_and(|name| namespaces.contains(name)) {
                // A file that stays costs room on the disk and nothing else.
                let _ = fs::remove_file(file.path());
            }
        }
    }

    async fn ask(&self, namespace: &str, of: &Namespace, age: Duration) {
        let _turn = of.asking.lock().await;
        if !of.known.lock().is_to_be_read(age) {
            return;
        }
        let answer = self.bitstreams.of_namespace(namespace).await;
        let mut known = of.known.lock();
        match answer {
            Ok(library) => {
                let answer = library.map(Arc::new);
                if known.failure.take().is_some() {
                    info!(namespace, "The API server answers the gate again");
                }
                if known.answer.as_ref() != Some(&answer)
                    && let Err(error) = self.keep(namespace, &answer)
                {
                    warn!(namespace, %error, "A plugin that starts again will not know this library");
                }
                (known.answer, known.answered) = (Some(answer), Some(Instant::now()));
            }
            Err(error) => {
                if known.failure.is_none() {
                    warn!(namespace, %error, "The API server does not answer the gate: its last answer counts");
                }
                known.failure = Some((error.to_string(), Instant::now()));
            }
        }
    }

    fn keep(&self, namespace: &str, library: &Answer) -> io::Result<()> {
        let text = serde_json::to_vec(&Kept { library: library.as_deref() })?;
        replace_durably(&self.folder.join(namespace), &text)
    }

    /// The answer that an earlier plugin kept.
    fn read(&self, namespace: &str) -> Option<Answer> {
        let text = fs::read(self.folder.join(namespace)).ok()?;
        let kept = serde_json::from_slice::<Kept<Library>>(&text);
        // Another version of the plugin may have written it. The API server tells it again.
        let kept = kept.inspect_err(|error| warn!(namespace, %error, "A kept library can't be read"));
        kept.ok().map(|kept| kept.library.map(Arc::new))
    }
}

impl Namespace {
    fn new(answer: Option<Answer>) -> Self {
        Self { known: Mutex::new(Known { answer, ..Known::default() }), ..Self::default() }
    }
}

impl Known {
    /// Whether the API server is to be asked for an answer of at most this age.
    fn is_to_be_read(&self, age: Duration) -> bool {
        let is_young = self.answered.is_some_and(|at| at.elapsed() < age);
        let has_just_failed = self.failure.as_ref().is_some_and(|(_, at)| at.elapsed() < RETRY_INTERVAL);
        !is_young && !has_just_failed
    }
}
