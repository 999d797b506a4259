//! Asks the API server what the bitstreams of a pod mean. The plugin reads single Bitstreams when a container starts, and
//! watches none: so a cluster's nodes hold nothing of the library, and a new container gets what a name means now.

use crate::meanings::{Meanings, Variant};
use fpga_bitstream_store::{InvalidSource, Owner, Source, Wanted};
use fpga_core::bitstream::BitstreamId;
use fpga_core::library::{Library, LibraryVariant, Meaning};
use fpga_core::requirement::Requirement;
use fpga_registry_api::{Bitstream, FromNamespaces, LibraryRules, Variant as Listed};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use tracing::warn;

/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of Bitstreams in an answer of the API server.
const PAGE: u32 = 500;

/// The Bitstreams of the cluster.
pub(crate) struct Bitstreams {
    pub(crate) client: Client,
    /// Which Bitstreams count, and whose all pods may name.
    pub(crate) rules: LibraryRules,
}

/// The reason why it is unknown what a pod's bitstreams mean.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// The API server did not answer.
    #[error("the API server does not tell about Bitstreams: {0}")]
    Api(String),
    /// The API server has never answered the gate.
    #[error("what the library lists is not known: {0}")]
    NotKnown(String),
    /// A Bitstream has a place that can't be understood.
    #[error(transparent)]
    Source(#[from] InvalidSource),
}

impl Bitstreams {
    /// What the bitstreams of `asked` mean for the pods of a namespace.
    ///
    /// # Errors
    /// [`LibraryError`]
    pub(crate) async fn meanings(
        &self,
        namespace: &str,
        asked: &Requirement,
    ) -> Result<Meanings, LibraryError> {
        let ids: BTreeSet<&BitstreamId> = asked.all_bitstreams().collect();
        let mut library = Library::new(self.rules.shared.clone());
        let mut objects = Vec::new();
        for id in &ids {
            match id {
                BitstreamId::Name(name) => {
                    for (of, name) in library.candidates(namespace, name) {
                        if let Some(object) = self.get(of, name).await? {
                            objects.push(object);
                            break;
                        }
                    }
                }
                BitstreamId::Digest(_) => {}
            }
        }
        if ids.iter().any(|id| matches!(id, BitstreamId::Digest(_))) {
            objects.extend(self.all(namespace).await?);
        }
        for object in &objects {
            let of = object.namespace().unwrap_or_default();
            library.insert(&of, &object.name_any(), self.rules.bitstream(object));
        }
        let selects = |object: &Bitstream| object.spec.allowed_namespaces.from == FromNamespaces::Selector;
        if objects.iter().any(selects)
            && let Some(labels) = self.labels(namespace).await?
        {
            library.set_namespace(namespace, labels);
        }
        Ok(meanings((&library, &self.rules), &objects, namespace, asked)?)
    }

    /// All Bitstreams that pods of a namespace may name by their digests; `None` if the API server has no Bitstreams.
    ///
    /// # Errors
    /// [`LibraryError::Api`], also if the plugin may not read them: nothing is known then.
    pub(crate) async fn of_namespace(&self, namespace: &str) -> Result<Option<Library>, LibraryError> {
        let mut library = Library::new(self.rules.shared.clone());
        let mut selects = false;
        for of in BTreeSet::from([Some(namespace), self.rules.shared.as_deref()]).into_iter().flatten() {
            let listed = match in_time(self.list(of)).await? {
                Ok(listed) => listed,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
                Err(error) => return Err(LibraryError::Api(error.to_string())),
            };
            for object in &listed {
                selects |= object.spec.allowed_namespaces.from == FromNamespaces::Selector;
                library.insert(of, &object.name_any(), self.rules.bitstream(object));
            }
        }
        if selects && let Some(labels) = self.labels(namespace).await? {
            library.set_namespace(namespace, labels);
        }
        Ok(Some(library))
    }

    /// All Bitstreams of a namespace, page by page.
    async fn list(&self, namespace: &str) -> kube::Result<Vec<Bitstream>> {
        let api: Api<Bitstream> = Api::namespaced(self.client.clone(), namespace);
        let (mut params, mut found) = (ListParams::default().limit(PAGE), Vec::new());
        loop {
            let page = api.list(&params).await?;
            found.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Bitstream>, LibraryError> {
        let api: Api<Bitstream> = Api::namespaced(self.client.clone(), namespace);
        Ok(unless_absent(api.get_opt(name)).await?.flatten())
    }

    /// The Bitstreams of the namespace and of the shared one: any of them may have a digest, or take a name from another.
    async fn all(&self, namespace: &str) -> Result<Vec<Bitstream>, LibraryError> {
        let mut found = Vec::new();
        for of in BTreeSet::from([Some(namespace), self.rules.shared.as_deref()]).into_iter().flatten() {
            found.extend(unless_absent(self.list(of)).await?.unwrap_or_default());
        }
        Ok(found)
    }

    /// The labels of a namespace.
    async fn labels(&self, namespace: &str) -> Result<Option<BTreeMap<String, String>>, LibraryError> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = unless_absent(api.get_metadata_opt(namespace)).await?.flatten();
        Ok(found.map(|namespace| namespace.metadata.labels.unwrap_or_default()))
    }
}

/// What the bitstreams of `asked` mean by the library, whose places the objects have.
fn meanings(
    (library, rules): (&Library, &LibraryRules),
    objects: &[Bitstream],
    namespace: &str,
    asked: &Requirement,
) -> Result<Meanings, InvalidSource> {
    let mut meanings = Meanings::with_synonyms(library.synonyms(namespace, asked));
    for id in asked.all_bitstreams() {
        let variants = match library.meaning(namespace, id) {
            Meaning::Unlisted => continue,
            Meaning::Refused => Vec::new(),
            Meaning::Variants(variants) => {
                let Some(of) = library.owner(namespace, id) else { continue };
                let variants = variants.into_iter().filter_map(|variant| {
                    // A Bitstream that does not count says nothing of the source and the size either.
                    let counts = |object: &&Bitstream| {
                        object.namespace().as_deref() == Some(of)
                            && rules.bitstream(object).variants.contains(variant)
                    };
                    with_place(variant, objects.iter().filter(counts), rules)
                });
                variants.collect::<Result<_, _>>()?
            }
        };
        meanings.insert(id.clone(), variants);
    }
    Ok(meanings)
}

/// The answer of the API server; `None` where it does not serve Bitstreams or lets the plugin not read them. Then the
/// library is empty, and files of the node are used.
async fn unless_absent<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, LibraryError> {
    match in_time(answer).await? {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            warn!(reason = status.message, "Bitstreams may not be read; files of the node are used");
            Ok(None)
        }
        Err(error) => Err(LibraryError::Api(error.to_string())),
    }
}

/// The answer of the API server, if it comes in time.
async fn in_time<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<kube::Result<T>, LibraryError> {
    let answer = tokio::time::timeout(TIMEOUT, answer).await;
    answer.map_err(|_| LibraryError::Api(format!("no answer in {TIMEOUT:?}")))
}

/// The variant with the place of its bytes, which one of the objects names; `None` if none does.
fn with_place<'o>(
    variant: &LibraryVariant,
    mut objects: impl Iterator<Item = &'o Bitstream>,
    rules: &LibraryRules,
) -> Option<Result<Variant, InvalidSource>> {
    let digest = variant.digest.to_string();
    let is_it = |listed: &&Listed| {
        let LibraryVariant { boards, .. } = variant;
        listed.digest == digest
            && boards.vendor.as_ref() == Some(&listed.vendor)
            && boards.board.as_ref() == Some(&listed.board)
            && boards.shell.as_ref() == Some(&listed.shell)
    };
    let found = objects.find_map(|object| Some((object, object.spec.variants.iter().find(is_it)?)));
    let (object, listed) = found?;
    let namespace = object.namespace().unwrap_or_default();
    let owner = match rules.shared.as_ref() == Some(&namespace) {
        true => Owner::Library,
        false => Owner::Own { namespace, uid: object.uid().unwrap_or_default() },
    };
    let source = match (&listed.source.oci, &listed.source.https) {
        (Some(oci), _) => Source::oci(oci),
        (None, Some(https)) => Source::https(https),
        (None, None) => return None,
    };
    let (bytes, region_size) = (u64::try_from(listed.bytes).ok()?, u32::try_from(listed.region_size).ok()?);
    Some(source.map(|source| Variant {
        boards: variant.boards.clone(),
        region_size,
        wanted: Wanted { digest: variant.digest, bytes, source, owner },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_cluster::allocation::{Occupation, choose};
    use fpga_core::fixtures::{mk_asked, mk_bitstream, mk_board, mk_state};
    use fpga_core::node_state::{DigestPrefix, NodeState, RecentBitstream};
    use fpga_registry_api::{OwnBitstreams, library_bitstream};
    use serde_json::json;

    struct Nobody;

    impl Occupation for Nobody {
        fn instances(&self, _: &str) -> u32 {
            0
        }
    }

    /// A Bitstream for boards `a10` with this digest.
    fn bitstream(namespace: &str, name: &str, digest: &str) -> Bitstream {
        let variant = json!({
            "vendor": "intel", "board": "a10", "shell": "1", "digest": digest, "bytes": 1,
            "source": {"https": "https://files.example/x"},
        });
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{namespace}-{name}")},
            "spec": {"variants": [variant], "allowedNamespaces": {"from": "All"}},
        });
        serde_json::from_value(object).unwrap()
    }

    fn rules() -> LibraryRules {
        LibraryRules { shared: Some("library".to_owned()), ..LibraryRules::default() }
    }

    #[test]
    fn size_and_source_are_those_of_a_bitstream_that_counts() {
        let digest = format!("sha256:{}", "07".repeat(32));
        let with = |name: &str, accepted: &str, bytes: i64| {
            let mut object = serde_json::to_value(bitstream("shop", name, &digest)).unwrap();
            object["metadata"]["generation"] = json!(1);
            object["spec"]["variants"][0]["bytes"] = json!(bytes);
            let condition = json!({
                "type": "Accepted", "status": accepted, "observedGeneration": 1, "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            object["status"] = json!({"conditions": [condition]});
            serde_json::from_value::<Bitstream>(object).unwrap()
        };
        let objects = [with("a", "False", 1 << 32), with("z", "True", 1)];
        let rules = LibraryRules { own: OwnBitstreams::Accepted, ..rules() };
        let mut library = Library::new(rules.shared.clone());
        for object in &objects {
            library.insert("shop", &object.name_any(), rules.bitstream(object));
        }
        let asked = mk_asked(&[&digest]);
        let meanings = meanings((&library, &rules), &objects, "shop", &asked).unwrap();
        let node = NodeState { devices: vec![mk_board("a", &[])], ..mk_state() };
        let files = meanings.files(&["a".to_owned()].into(), &node);
        assert_eq!(files[&format!("{digest}.bitstream")].bytes, 1);
    }

    #[tokio::test]
    async fn a_digest_is_found_on_the_last_page_of_a_long_list() {
        let digest = format!("sha256:{}", "08".repeat(32));
        let on_last = digest.clone();
        let list = move |request: axum::extract::Request| async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (items, next) = if query.contains("continue=second") {
                (vec![bitstream("shop", "last", &on_last)], "")
            } else {
                (vec![bitstream("shop", "first", &format!("sha256:{}", "07".repeat(32)))], "second")
            };
            axum::Json(json!({
                "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "BitstreamList",
                "metadata": {"continue": next}, "items": items,
            }))
        };
        let client = Client::new(axum::Router::new().fallback(list), "default");
        let rules = LibraryRules { shared: None, ..LibraryRules::default() };
        let library = Bitstreams { client, rules }.of_namespace("shop").await.unwrap().unwrap();
        assert!(matches!(library.meaning("shop", &digest.parse().unwrap()), Meaning::Variants(_)));
    }

    #[test]
    fn a_source_is_its_own_namespaces_also_where_the_library_has_the_same_digest() {
        let digest = format!("sha256:{}", "07".repeat(32));
        let id: BitstreamId = digest.parse().unwrap();
        // The names of the library and of the mill come first.
        // Another Bitstream of this name, for example in a namespace that was made anew, has another UID.
        let own = Owner::Own { namespace: "zoo".to_owned(), uid: "uid-of-zoo-a".to_owned() };
        for (asking, owner) in [("zoo", own), ("shop", Owner::Library)] {
            let objects = [
                bitstream("library", "a", &digest),
                bitstream("mill", "a", &digest),
                bitstream("zoo", "a", &digest),
            ];
            let mut library = Library::new(Some("library".to_owned()));
            for object in &objects {
                library.insert(&object.namespace().unwrap(), &object.name_any(), library_bitstream(object));
            }
            let asked = mk_asked(&[&digest]);
            let meanings = meanings((&library, &rules()), &objects, asking, &asked).unwrap();
            let node = NodeState { devices: vec![mk_board("a", &[])], ..mk_state() };
            let boards = ["a".to_owned()].into();
            let files = meanings.files(&boards, &node);
            assert_eq!(files[&format!("{id}.bitstream")].owner, owner, "{asking}");
        }
    }

    #[test]
    fn a_container_gets_the_board_that_has_its_bitstream_by_another_identifier() {
        let (ours, theirs) = (format!("sha256:{}", "07".repeat(32)), format!("sha256:{}", "08".repeat(32)));
        let objects = [
            bitstream("library", "sobel", &ours),
            bitstream("shop", "mm", &theirs),
            bitstream("library", "mm", &ours),
        ];
        let mut library = Library::new(Some("library".to_owned()));
        for object in &objects {
            let of = object.namespace().unwrap();
            library.insert(&of, &object.name_any(), library_bitstream(object));
        }
        let prefix = |digest: &str| {
            let BitstreamId::Digest(digest) = digest.parse().unwrap() else { panic!("no digest") };
            Some(DigestPrefix::from(&digest))
        };
        let bitstreams = vec![
            RecentBitstream { name: None, digest: prefix(&ours), ..mk_bitstream("", 0) },
            mk_bitstream("sobel", 0),
            mk_bitstream("mm", 0),
            RecentBitstream { digest: prefix(&theirs), ..mk_bitstream("sobel", 0) },
        ];
        let chosen = |asked: &str, loaded: u32| {
            let devices = vec![mk_board("a", &[]), mk_board("b", &[loaded])];
            let node = NodeState { devices, bitstreams: bitstreams.clone(), ..mk_state() };
            let asked = mk_asked(&[asked]);
            let meanings = meanings((&library, &rules()), &objects, "shop", &asked).unwrap();
            let requirement = meanings.required(&asked);
            let node = meanings.in_words_of_pod(node);
            choose(&requirement, &node, &Nobody, 16).unwrap().boards().next().unwrap().to_owned()
        };
        assert_eq!(chosen("sobel", 0), "b", "a name, and a slot with the digest");
        assert_eq!(chosen(&ours, 1), "b", "a digest, and a slot with a name that means it");
        assert_eq!(chosen(&ours, 2), "a", "this name means another one for the pod");
        assert_eq!(chosen("sobel", 3), "a", "another file of the same name");
    }
}
