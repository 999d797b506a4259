//! The bitstreams that containers see: files of the store, and those of the node's own folder.

use crate::allocations::AllocationId;
use crate::layout::Layout;
use crate::library::Bitstreams;
use crate::listed::Listed;
use fpga_bitstream_store::{Asker, Store, StoreError, Wanted};
use fpga_core::bitstream::Digest;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// What the plugin has of bitstreams.
pub(crate) struct NodeBitstreams {
    /// Folder of the node with files, for containers.
    pub(crate) folder: Option<PathBuf>,
    /// The library and its files; `None` where containers see the folder only.
    pub(crate) library: Option<NodeLibrary>,
}

/// The cluster's library, and those of its files that the node has.
pub(crate) struct NodeLibrary {
    pub(crate) bitstreams: Arc<Bitstreams>,
    /// What the gate knows of the library.
    pub(crate) listed: Arc<Listed>,
    pub(crate) store: Arc<Store>,
}

/// The reason why a container does not get its bitstreams.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProvideError {
    /// The bytes are still on their way.
    #[error("the bitstream {path} is being fetched from {place}: {come} of {bytes} bytes are here")]
    OnTheWay {
        /// The path in the container's folder.
        path: String,
        /// Where it is fetched from.
        place: String,
        /// Number of bytes that have come.
        come: u64,
        /// Number of all bytes.
        bytes: u64,
    },
    /// The store does not have them.
    #[error("the bitstream {path}: {source}")]
    Store {
        /// The path in the container's folder.
        path: String,
        /// The store's reason.
        source: Box<StoreError>,
    },
    /// The container's folder can't be written.
    #[error("the folder of a container's bitstreams: {0}")]
    Folder(#[from] io::Error),
}

impl NodeBitstreams {
    /// Fetches the files that are not there, and lays all of them out for the container of this namespace. `in_use` says
    /// whether a file of the store must stay.
    ///
    /// # Errors
    /// [`ProvideError`], at `deadline` at the latest.
    pub(crate) async fn provide(
        &self,
        layout: &Layout,
        (id, namespace): (&AllocationId, &str),
        files: &BTreeMap<String, Wanted>,
        in_use: impl Fn(&Digest) -> bool + Clone + Send + Sync + 'static,
        deadline: Instant,
    ) -> Result<(), ProvideError> {
        let Some(NodeLibrary { store, .. }) = &self.library else { return Ok(()) };
        let asker = Asker { namespace: namespace.to_owned(), id: id.as_str().to_owned() };
        store.retain(&asker.id, |wanted| files.values().any(|file| file == wanted));
        let (asker, in_use) = (&asker, &in_use);
        let gets = files.iter().map(|(path, wanted)| async move {
            let path = path.clone();
            match timeout_at(deadline, store.get(wanted, asker, in_use.clone())).await {
                Ok(Ok(file)) => Ok((path, file)),
                Ok(Err(error)) => Err(ProvideError::Store { path, source: Box::new(error) }),
                Err(_) => Err(ProvideError::OnTheWay {
                    path,
                    place: wanted.source.to_string(),
                    come: store.come(wanted).unwrap_or_default(),
                    bytes: wanted.bytes,
                }),
            }
        });
        let there: BTreeMap<String, PathBuf> =
            futures::future::try_join_all(gets).await?.into_iter().collect();
        Ok(layout.lay_out_bitstreams(id, &there, self.folder.as_deref())?)
    }

    /// The container wants no bitstreams any more.
    pub(crate) fn leave(&self, id: &AllocationId) {
        if let Some(NodeLibrary { store, .. }) = &self.library {
            store.retain(id.as_str(), |_| false);
        }
    }
}
