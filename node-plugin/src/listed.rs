//! The library as the gate knows it: as the API server told it a moment ago. A manager that asks for many bitstreams makes
//! no more requests to the API server than one that asks for one.

use crate::library::{Bitstreams, LibraryError};
use fpga_core::library::Library;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// Pause after the API server gave no answer, before it is asked again about the same namespace.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Age up to which an answer counts while the API server gives no newer one.
const LONGEST_KEPT: Duration = Duration::from_secs(600);
/// Most namespaces whose libraries are kept: far more than pods of a node have.
const MAX_NAMESPACES: usize = 512;

/// What pods of each namespace may name by digest; `None` where the API server has no Bitstreams.
#[derive(Default)]
pub(crate) struct Listed {
    by_namespace: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Known>>>>,
}

/// What the API server has told about a namespace.
#[derive(Default)]
struct Known {
    answer: Option<(Option<Arc<Library>>, Instant)>,
    /// Why it gave no answer the last time.
    failure: Option<(String, Instant)>,
}

impl Listed {
    /// The library of a namespace, read within the last `age` if the API server answers.
    ///
    /// # Errors
    /// The API server gives no answer, and gave none for long.
    pub(crate) async fn of_namespace(
        &self,
        bitstreams: &Bitstreams,
        namespace: &str,
        age: Duration,
    ) -> Result<Option<Arc<Library>>, LibraryError> {
        let known = {
            let mut all = self.by_namespace.lock();
            if all.len() >= MAX_NAMESPACES && !all.contains_key(namespace) {
                all.clear();
            }
            Arc::clone(all.entry(namespace.to_owned()).or_default())
        };
        // Questions about one namespace share one request.
        let mut known = known.lock().await;
        if !known.is_younger_than(age) && !known.has_just_failed() {
            match bitstreams.of_namespace(namespace).await {
                Ok(library) => known.answer = Some((library.map(Arc::new), Instant::now())),
                Err(error) => {
                    warn!(namespace, %error, "The gate does not know the library of now");
                    known.failure = Some((error.to_string(), Instant::now()));
                }
            }
        }
        match &*known {
            Known { answer: Some((library, at)), .. } if at.elapsed() < LONGEST_KEPT => Ok(library.clone()),
            Known { failure, .. } => {
                let reason = failure.as_ref().map(|(reason, _)| reason.clone());
                Err(LibraryError::NotKnown(reason.unwrap_or_default()))
            }
        }
    }
}

impl Known {
    fn is_younger_than(&self, age: Duration) -> bool {
        self.answer.as_ref().is_some_and(|(_, at)| at.elapsed() < age)
    }

    fn has_just_failed(&self) -> bool {
        self.failure.as_ref().is_some_and(|(_, at)| at.elapsed() < RETRY_INTERVAL)
    }
}
