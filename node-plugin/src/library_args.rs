//! The flags of the library and of the store.

use crate::layout::Layout;
use crate::library::Bitstreams;
use crate::listed::Listed;
use crate::node_bitstreams::NodeLibrary;
use anyhow::{Context as _, ensure};
use clap::Args;
use fpga_artifacts::{Host, Hosts};
use fpga_bitstream_store::{Store, StoreOptions};
use fpga_registry_api::{LibraryRules, OwnBitstreams};
use kube::Client;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The library of bitstreams, and the store of its files on the node.
#[derive(Debug, Args)]
#[command(next_help_heading = "Library of bitstreams")]
pub(crate) struct LibraryArgs {
    /// Size of the files of bitstreams that the plugin fetches to the node, for example 10GiB. By default it fetches
    /// none, and names of pods are files in --bitstreams.
    #[arg(long, env = "FPGA_BITSTREAM_STORE_SIZE", value_name = "SIZE", value_parser = fpga_net::size::parse)]
    bitstream_store_size: Option<u64>,

    /// Namespace whose Bitstreams all pods may name without it, where these allow it.
    #[arg(long, env = "FPGA_LIBRARY_NAMESPACE", value_name = "NAMESPACE")]
    library_namespace: Option<String>,

    /// Which Bitstreams of other namespaces count: any, or those that the registry has accepted (condition Accepted).
    #[arg(long, env = "FPGA_OWN_BITSTREAMS", value_name = "RULE", default_value = "any")]
    own_bitstreams: OwnBitstreams,

    /// Hosts that bitstreams are fetched from, also at private addresses: HOST or HOST:PORT, *.NAME for all names below
    /// NAME, http://HOST:PORT for one without TLS; comma-separated. By default every host is asked that has a public
    /// address. A host may send to another one that may be asked.
    #[arg(long, env = "FPGA_BITSTREAM_HOSTS", value_name = "HOST", value_delimiter = ',')]
    bitstream_hosts: Vec<Host>,

    /// Certificate authorities of these hosts instead of the system's, PEM.
    #[arg(long, env = "FPGA_BITSTREAM_CA", value_name = "PATH")]
    bitstream_ca: Option<PathBuf>,

    /// File with users and passwords of registries, as `docker login` writes it: the key .dockerconfigjson of a Secret.
    /// It is read for each download; a missing file has none.
    #[arg(long, env = "FPGA_BITSTREAM_CREDENTIALS", value_name = "PATH")]
    bitstream_credentials: Option<PathBuf>,

    /// Longest time for an answer of such a host, and for bytes that come with less than 64 KiB a second.
    #[arg(long, env = "FPGA_BITSTREAM_TIMEOUT", value_name = "TIME", default_value = "20s", value_parser = fpga_net::duration::parse)]
    bitstream_timeout: Duration,
}

impl LibraryArgs {
    /// Opens the store; `None` if nothing is to be fetched.
    ///
    /// # Errors
    /// A setting is wrong, or the folder can't be made or read.
    pub(crate) fn open(&self, client: &Client, layout: &Layout) -> anyhow::Result<Option<NodeLibrary>> {
        let Some(limit_bytes) = self.bitstream_store_size else { return Ok(None) };
        ensure!(!self.bitstream_timeout.is_zero(), "--bitstream-timeout is 0; write for example 20s");
        let hosts = match self.bitstream_hosts.as_slice() {
            [] => Hosts::Public,
            hosts => Hosts::Listed(hosts.to_vec()),
        };
        let folder = layout.store();
        let options = StoreOptions {
            folder: folder.clone(),
            limit_bytes,
            hosts,
            ca: self.bitstream_ca.clone(),
            credentials: self.bitstream_credentials.clone(),
            timeout: self.bitstream_timeout,
        };
        let store =
            Store::open(options).with_context(|| format!("can't open the store {}", folder.display()))?;
        let rules = LibraryRules { shared: self.library_namespace.clone(), own: self.own_bitstreams };
        let bitstreams = Arc::new(Bitstreams { client: client.clone(), rules });
        let listed = Arc::new(Listed::new(Arc::clone(&bitstreams), layout.libraries()));
        Ok(Some(NodeLibrary { bitstreams, listed, store }))
    }
}
