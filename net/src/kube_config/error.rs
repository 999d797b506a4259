//! Why there is no way to the API server.

use crate::proxy::InvalidProxy;
use kube::config::{InClusterError, KubeconfigError};
use std::path::PathBuf;

/// Reason why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum KubeConfigError {
    /// A kubeconfig can't be read, or does not go with those before it.
    #[error("the kubeconfig {path} can't be used")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The kubeconfigs do not have the context.
    #[error("{files} has no context {context:?}; write --context with one of: {known}")]
    UnknownContext {
        /// The files.
        files: String,
        /// Name of the context.
        context: String,
        /// Names of the contexts that there are.
        known: String,
    },
    /// The kubeconfigs have contexts, and none is chosen.
    #[error("{files} has no current context; write --context with one of: {known}")]
    NoContext {
        /// The files.
        files: String,
        /// Names of the contexts that there are.
        known: String,
    },
    /// The kubeconfigs do not have the context's cluster.
    #[error("the context {context} names the cluster {cluster:?}, which {files} does not have")]
    UnknownCluster {
        /// The files.
        files: String,
        /// Name of the context.
        context: String,
        /// Name of the cluster.
        cluster: String,
    },
    /// A cluster in the kubeconfigs can't be used.
    #[error("the cluster {cluster} in the kubeconfig can't be used: {reason}")]
    Cluster {
        /// Name of the cluster.
        cluster: String,
        /// The reason.
        reason: String,
    },
    /// The proxy is none.
    #[error(transparent)]
    Proxy(#[from] InvalidProxy),
    /// The service account of the pod can't be used.
    #[error("the service account of this pod can't be used")]
    Pod(#[source] Box<InClusterError>),
    /// There is no kubeconfig, and no pod.
    #[error("there is no kubeconfig ({0}), and this is no pod of a cluster; write --kubeconfig PATH")]
    Nowhere(String),
}
