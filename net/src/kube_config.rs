//! The way to the API server: a kubeconfig, or the service account of the pod.

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::path::{Path, PathBuf};

/// Reason why there is no way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum KubeConfigError {
    /// The file of `--kubeconfig` can't be read.
    #[error("--kubeconfig {path} can't be read")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The file of `--kubeconfig` names no cluster that can be used.
    #[error("--kubeconfig {path} can't be used")]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The user's kubeconfig does not have the context.
    #[error("the context {context} can't be used")]
    Context {
        /// Name of the context.
        context: String,
        /// The reason.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// Neither $KUBECONFIG, ~/.kube/config, nor the service account of a pod can be used.
    #[error("no API server is configured; write --kubeconfig PATH")]
    Nowhere(#[source] Box<InferConfigError>),
}

/// Reads the kubeconfig in the file at `path`; without one the file of $KUBECONFIG, ~/.kube/config, or the service
/// account of the pod. `context` is taken instead of the current context.
///
/// # Errors
/// [`KubeConfigError`] for the first of these that is given and can't be used.
pub async fn load(path: Option<&Path>, context: Option<&str>) -> Result<Config, KubeConfigError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match (path, context) {
        (Some(path), _) => {
            let path = path.to_owned();
            let file = match Kubeconfig::read_from(&path) {
                Ok(file) => file,
                Err(source) => return Err(KubeConfigError::File { path, source: source.into() }),
            };
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|source| KubeConfigError::Content { path, source: source.into() })
        }
        (None, Some(context)) => {
            let config = Config::from_kubeconfig(&options).await;
            let context = context.to_owned();
            config.map_err(|source| KubeConfigError::Context { context, source: source.into() })
        }
        (None, None) => Config::infer().await.map_err(|source| KubeConfigError::Nowhere(source.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_test_kit::kubeconfig;

    #[tokio::test]
    async fn a_file_gives_the_address_and_a_problem_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let read = async |context| load(Some(&path), context).await;
        assert!(matches!(read(None).await, Err(KubeConfigError::File { path: named, .. }) if named == path));
        std::fs::write(&path, kubeconfig("http://127.0.0.1:9")).unwrap();
        assert_eq!(read(None).await.unwrap().cluster_url, "http://127.0.0.1:9/");
        assert!(read(Some("c")).await.is_ok());
        let other = read(Some("other")).await;
        assert!(matches!(other, Err(KubeConfigError::Content { path: named, .. }) if named == path));
    }
}
