//! Asks the API server what the bitstreams of a pod mean. The plugin reads single Bitstreams when a container starts, and
//! watches none: so a cluster's nodes hold nothing of the library, and a new container gets what a name means now.

use crate::meanings::{Meanings, Variant};
use fpga_bitstream_store::{InvalidSource, Source, Wanted};
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::library::{Library, LibraryVariant, Meaning};
use fpga_registry_api::{Bitstream, FromNamespaces, Variant as Listed, library_bitstream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use tracing::warn;

/// Longest time that the API server may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Number of Bitstreams of a namespace among which a digest is looked for.
const MAX_LISTED: u32 = 5000;

/// The Bitstreams of the cluster.
pub(crate) struct Bitstreams {
    pub(crate) client: Client,
    /// Namespace whose Bitstreams all pods may name without it.
    pub(crate) shared: Option<String>,
}

/// The reason why it is unknown what a pod's bitstreams mean.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// The API server did not answer.
    #[error("the API server does not tell about Bitstreams: {0}")]
    Api(String),
    /// A Bitstream has a place that can't be understood.
    #[error(transparent)]
    Source(#[from] InvalidSource),
}

impl Bitstreams {
    /// What these identifiers mean for the pods of a namespace.
    ///
    /// # Errors
    /// [`LibraryError`]
    pub(crate) async fn meanings<'b>(
        &self,
        namespace: &str,
        ids: impl Iterator<Item = &'b BitstreamId>,
    ) -> Result<Meanings, LibraryError> {
        let ids: BTreeSet<&BitstreamId> = ids.collect();
        let mut library = Library::new(self.shared.clone());
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
                BitstreamId::Digest(digest) => objects.extend(self.with_digest(namespace, *digest).await?),
            }
        }
        for object in &objects {
            let of = object.namespace().unwrap_or_default();
            library.insert(&of, &object.name_any(), library_bitstream(object));
        }
        let selects = |object: &Bitstream| object.spec.allowed_namespaces.from == FromNamespaces::Selector;
        if objects.iter().any(selects)
            && let Some(labels) = self.labels(namespace).await?
        {
            library.set_namespace(namespace, labels);
        }
        let mut meanings = Meanings::default();
        for id in ids {
            let variants = match library.meaning(namespace, id) {
                Meaning::Unlisted => continue,
                Meaning::Refused => Vec::new(),
                Meaning::Variants(variants) => {
                    let variants = variants.into_iter().filter_map(|variant| with_place(variant, &objects));
                    variants.collect::<Result<_, _>>()?
                }
            };
            meanings.insert(id.clone(), variants);
        }
        Ok(meanings)
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Bitstream>, LibraryError> {
        let api: Api<Bitstream> = Api::namespaced(self.client.clone(), namespace);
        Ok(unless_absent(api.get_opt(name)).await?.flatten())
    }

    /// The Bitstreams with this digest of the namespace and of the shared one.
    async fn with_digest(&self, namespace: &str, digest: Digest) -> Result<Vec<Bitstream>, LibraryError> {
        let mut found = Vec::new();
        for of in BTreeSet::from([Some(namespace), self.shared.as_deref()]).into_iter().flatten() {
            let api: Api<Bitstream> = Api::namespaced(self.client.clone(), of);
            let params = ListParams::default().limit(MAX_LISTED);
            let listed = unless_absent(api.list(&params)).await?.map(|list| list.items).unwrap_or_default();
            let digest = digest.to_string();
            let has =
                |object: &Bitstream| object.spec.variants.iter().any(|variant| variant.digest == digest);
            found.extend(listed.into_iter().filter(has));
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

/// The answer of the API server; `None` where it does not serve Bitstreams or lets the plugin not read them. Then the
/// library is empty, and files of the node are used.
async fn unless_absent<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<Option<T>, LibraryError> {
    let answer = tokio::time::timeout(TIMEOUT, answer).await;
    match answer.map_err(|_| LibraryError::Api(format!("no answer in {TIMEOUT:?}")))? {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            warn!(reason = status.message, "Bitstreams may not be read; files of the node are used");
            Ok(None)
        }
        Err(error) => Err(LibraryError::Api(error.to_string())),
    }
}

/// The variant with the place of its bytes; `None` if no object has it.
fn with_place(variant: &LibraryVariant, objects: &[Bitstream]) -> Option<Result<Variant, InvalidSource>> {
    let digest = variant.digest.to_string();
    let is_it = |listed: &&Listed| {
        let LibraryVariant { boards, .. } = variant;
        listed.digest == digest
            && boards.vendor.as_ref() == Some(&listed.vendor)
            && boards.board.as_ref() == Some(&listed.board)
            && boards.shell.as_ref() == Some(&listed.shell)
    };
    let listed = objects.iter().flat_map(|object| &object.spec.variants).find(is_it)?;
    let source = match (&listed.source.oci, &listed.source.https) {
        (Some(oci), _) => Source::oci(oci),
        (None, Some(https)) => Source::https(https),
        (None, None) => return None,
    };
    let (bytes, region_size) = (u64::try_from(listed.bytes).ok()?, u32::try_from(listed.region_size).ok()?);
    Some(source.map(|source| Variant {
        boards: variant.boards.clone(),
        region_size,
        wanted: Wanted { digest: variant.digest, bytes, source },
    }))
}
