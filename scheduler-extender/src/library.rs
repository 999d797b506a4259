//! The library of bitstreams in memory: written by watches on Bitstreams and namespaces, read by decisions.
//!
//! The library is optional. Where the API server does not serve Bitstreams, or the extender may not read them, the
//! administrator's list alone decides, and the API server is asked again from time to time.

use crate::metrics::Metrics;
use fpga_core::bitstream::BitstreamId;
use fpga_core::board_kind::BoardKind;
use fpga_core::catalog::Catalog;
use fpga_core::library::Library;
use fpga_core::requirement::Requirement;
use fpga_registry_api::{Bitstream, LibraryRules};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{info, warn};

/// Time until the API server is asked again for what it does not serve or allow.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Time until an API server that does not answer is asked again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The library, as far as it is known.
#[derive(Debug)]
pub struct LibraryIndex {
    rules: LibraryRules,
    library: RwLock<Library>,
    version: RwLock<LibraryVersion>,
    has_bitstreams: AtomicBool,
    has_namespaces: AtomicBool,
    changed: Notify,
}

/// A version of the library. One that is again as it was is another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LibraryVersion {
    /// As [`Library::fingerprint`].
    pub hash: u64,
    /// How often the hash has changed since the start.
    pub changes: u64,
}

impl Default for LibraryVersion {
    /// The version of an empty library.
    fn default() -> Self {
        Self { hash: Library::default().fingerprint(), changes: 0 }
    }
}

impl Default for LibraryIndex {
    /// A library that stays empty.
    fn default() -> Self {
        let (has_bitstreams, has_namespaces) = (AtomicBool::new(true), AtomicBool::new(true));
        let (rules, library, changed) = (LibraryRules::default(), RwLock::default(), Notify::new());
        Self { rules, library, version: RwLock::default(), has_bitstreams, has_namespaces, changed }
    }
}

impl LibraryIndex {
    /// A library that is about to be watched.
    #[must_use]
    pub fn watched(rules: LibraryRules) -> Self {
        Self {
            library: RwLock::new(Library::new(rules.shared.clone())),
            rules,
            version: RwLock::default(),
            has_bitstreams: AtomicBool::new(false),
            has_namespaces: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Waits until the API server has told something of Bitstreams or namespaces since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The library's version; `None` as long as the library is not known.
    #[must_use]
    pub(crate) fn version(&self) -> Option<LibraryVersion> {
        self.is_settled().then(|| *self.version.read())
    }

    /// Takes note of what an event has made of the library, and wakes who waits for a change.
    fn note(&self) {
        let hash = self.library.read().fingerprint();
        let mut version = self.version.write();
        if version.hash != hash {
            *version = LibraryVersion { hash, changes: version.changes + 1 };
        }
        drop(version);
        self.changed.notify_one();
    }

    /// Whether the API server's Bitstreams are known, or there are none to know.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.has_bitstreams.load(Ordering::Relaxed) && self.has_namespaces.load(Ordering::Relaxed)
    }

    /// As [`Library::valid_boards`].
    #[must_use]
    pub fn valid_boards<'b>(
        &self,
        namespace: &str,
        bitstreams: impl IntoIterator<Item = &'b BitstreamId>,
        catalog: &Catalog,
    ) -> Vec<Vec<BoardKind>> {
        self.library.read().valid_boards(namespace, bitstreams, catalog)
    }

    /// As [`Library::synonyms`].
    #[must_use]
    pub fn synonyms(&self, namespace: &str, asked: &Requirement) -> BTreeMap<BitstreamId, Vec<BitstreamId>> {
        self.library.read().synonyms(namespace, asked)
    }

    fn apply(&self, object: &Bitstream) {
        let bitstream = self.rules.bitstream(object);
        self.library.write().insert(&object.namespace().unwrap_or_default(), &object.name_any(), bitstream);
    }
}

/// Updates `index` until a stream of events ends, which happens only if something is broken for good.
pub async fn run(client: Client, index: &LibraryIndex, metrics: &Metrics) {
    tokio::select! {
        () = bitstreams(Api::all(client.clone()), index, metrics) => {}
        () = namespaces(Api::all(client), index, metrics) => {}
    }
}

async fn bitstreams(api: Api<Bitstream>, index: &LibraryIndex, metrics: &Metrics) {
    until_served(&api, "Bitstreams", &index.has_bitstreams, metrics).await;
    let events = watcher(api, watcher::Config::default()).default_backoff();
    follow_bitstreams(events, index, metrics).await;
}

async fn follow_bitstreams(
    events: impl Stream<Item = Result<Event<Bitstream>, watcher::Error>>,
    index: &LibraryIndex,
    metrics: &Metrics,
) {
    let mut events = std::pin::pin!(events);
    let mut seen: HashSet<(String, String)> = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => seen.clear(),
            Ok(Event::InitApply(object)) => {
                seen.insert((object.namespace().unwrap_or_default(), object.name_any()));
                index.apply(&object);
                // The end of the list is noted, and not each of thousands.
                continue;
            }
            Ok(Event::InitDone) => {
                let is_seen =
                    |namespace: &str, name: &str| seen.contains(&(namespace.to_owned(), name.to_owned()));
                index.library.write().retain(is_seen);
                index.has_bitstreams.store(true, Ordering::Relaxed);
                info!(bitstreams = seen.len(), "Bitstreams listed");
                seen.clear();
            }
            Ok(Event::Apply(object)) => index.apply(&object),
            Ok(Event::Delete(object)) => {
                index.library.write().remove(&object.namespace().unwrap_or_default(), &object.name_any());
            }
            Err(error) => {
                metrics.library_watch_errors.inc();
                warn!(%error, "Watching Bitstreams failed, trying again");
            }
        }
        index.note();
    }
}

/// Watches the labels of all namespaces, which the selectors of Bitstreams ask for.
async fn namespaces(api: Api<PartialObjectMeta<Namespace>>, index: &LibraryIndex, metrics: &Metrics) {
    until_served(&api, "namespaces", &index.has_namespaces, metrics).await;
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    let mut listed = BTreeMap::new();
    let labels =
        |namespace: &PartialObjectMeta<Namespace>| namespace.metadata.labels.clone().unwrap_or_default();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(namespace)) => {
                listed.insert(namespace.name_any(), labels(&namespace));
                continue;
            }
            Ok(Event::InitDone) => {
                index.library.write().set_namespaces(std::mem::take(&mut listed));
                index.has_namespaces.store(true, Ordering::Relaxed);
            }
            Ok(Event::Apply(namespace)) => {
                index.library.write().set_namespace(&namespace.name_any(), labels(&namespace));
            }
            Ok(Event::Delete(namespace)) => index.library.write().remove_namespace(&namespace.name_any()),
            Err(error) => {
                metrics.library_watch_errors.inc();
                warn!(%error, "Watching namespaces failed, trying again");
            }
        }
        index.note();
    }
}

/// Waits until the API server serves `what` and allows to read it. That it does not settles the library.
async fn until_served<K>(api: &Api<K>, what: &str, is_known: &AtomicBool, metrics: &Metrics)
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    loop {
        let pause = match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                if !is_known.swap(true, Ordering::Relaxed) {
                    let reason = &status.message;
                    info!(
                        what,
                        reason, "Not served or not allowed; what the administrator lists decides alone"
                    );
                }
                LOOK_AGAIN
            }
            Err(error) => {
                metrics.library_watch_errors.inc();
                warn!(what, %error, "The API server can't be asked, trying again");
                TRY_AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::catalog::Unlisted;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};

    fn object(name: &str, board: &str, allowed: &Value) -> Bitstream {
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1",
            "kind": "Bitstream",
            "metadata": { "namespace": "library", "name": name },
            "spec": {
                "allowedNamespaces": allowed,
                "variants": [{
                    "vendor": "intel", "board": board, "shell": "1", "bytes": 1,
                    "digest": format!("sha256:{}", "0a".repeat(32)),
                    "source": { "https": "https://files.example/x" },
                }],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn rules() -> LibraryRules {
        LibraryRules { shared: Some("library".to_owned()), ..LibraryRules::default() }
    }

    async fn after(index: &LibraryIndex, events: Vec<Event<Bitstream>>) {
        let metrics = Metrics::register(&mut Registry::default());
        follow_bitstreams(futures::stream::iter(events.into_iter().map(Ok)), index, &metrics).await;
    }

    /// The board that a name is valid on for the namespace `pods`.
    fn board(index: &LibraryIndex, name: &str) -> Option<String> {
        let catalog = Catalog::new(Vec::new(), Unlisted::Reject).unwrap();
        let mut lists = index.valid_boards("pods", [&name.parse().unwrap()], &catalog);
        assert_eq!(lists.len(), 1);
        lists.remove(0).pop().and_then(|kind| kind.board)
    }

    #[tokio::test]
    async fn bitstreams_are_known_after_the_first_list_and_who_is_missing_in_a_later_one_is_gone() {
        let index = LibraryIndex::watched(rules());
        index.has_namespaces.store(true, Ordering::Relaxed);
        let sobel = |board: &str| object("sobel", board, &json!({ "from": "All" }));
        let mm = object("mm", "a10", &json!({ "from": "All" }));
        after(&index, vec![Event::Init, Event::InitApply(sobel("a10"))]).await;
        assert!(!index.is_settled());
        after(
            &index,
            vec![Event::Init, Event::InitApply(sobel("a10")), Event::InitApply(mm), Event::InitDone],
        )
        .await;
        assert!(index.is_settled());
        assert_eq!((board(&index, "sobel"), board(&index, "mm")), (Some("a10".into()), Some("a10".into())));
        after(&index, vec![Event::Apply(sobel("s10"))]).await;
        assert_eq!(board(&index, "sobel"), Some("s10".into()));
        after(&index, vec![Event::Init, Event::InitApply(sobel("s10")), Event::InitDone]).await;
        assert_eq!((board(&index, "sobel"), board(&index, "mm")), (Some("s10".into()), None));
        after(&index, vec![Event::Delete(sobel("s10"))]).await;
        assert_eq!(board(&index, "sobel"), None);
    }

    #[tokio::test]
    async fn a_library_that_is_again_as_it_was_has_another_version_and_an_unchanged_one_the_same() {
        let index = LibraryIndex::watched(rules());
        index.has_namespaces.store(true, Ordering::Relaxed);
        let sobel = |board: &str| object("sobel", board, &json!({ "from": "All" }));
        assert_eq!(index.version(), None);
        after(&index, vec![Event::Init, Event::InitDone]).await;
        assert_eq!(index.version(), Some(LibraryVersion::default()), "an empty library is no change");
        after(&index, vec![Event::Apply(sobel("a10"))]).await;
        let before = index.version().unwrap();
        let mut counted = sobel("a10");
        counted.status = Some(serde_json::from_value(json!({ "pods": 3 })).unwrap());
        after(&index, vec![Event::Apply(counted)]).await;
        after(&index, vec![Event::Init, Event::InitApply(sobel("a10")), Event::InitDone]).await;
        assert_eq!(index.version(), Some(before));
        after(&index, vec![Event::Apply(sobel("s10")), Event::Apply(sobel("a10"))]).await;
        assert_eq!(index.version(), Some(LibraryVersion { changes: before.changes + 2, ..before }));
    }

    #[tokio::test]
    async fn a_selector_is_read_with_all_its_operators_and_an_unknown_one_selects_nothing() {
        let index = LibraryIndex::watched(rules());
        let labels =
            [("team", "vision"), ("fpga", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        index.library.write().set_namespace("pods", labels.into());
        let expression = |key: &str, operator: &str, values: Value| json!({"matchLabels": {"fpga": ""}, "matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, is_allowed) in [
            (expression("team", "In", json!(["vision", "shop"])), true),
            (expression("team", "NotIn", json!(["vision"])), false),
            (expression("team", "Exists", json!(null)), true),
            (expression("team", "DoesNotExist", json!(null)), false),
            (expression("team", "Like", json!(["vision"])), false),
            (json!({"matchLabels": {"fpga": "no"}}), false),
            (json!({}), true),
        ] {
            let allowed = json!({"from": "Selector", "selector": selector});
            after(&index, vec![Event::Apply(object("sobel", "a10", &allowed))]).await;
            assert_eq!(board(&index, "sobel").is_some(), is_allowed, "{selector}");
        }
    }
}
