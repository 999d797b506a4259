//! The way to the API server, as kubectl finds it: kubeconfigs, or the service account of the pod.

mod error;

pub use error::KubeConfigError;

use crate::proxy::{self, Proxies};
use http::Uri;
use kube::Config;
use kube::config::{AuthInfo, Cluster, ExecAuthCluster, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The variables of an environment.
type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Whether a kubeconfig must exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refused,
    Skipped,
}

/// The kubeconfigs that count, merged.
struct Merged {
    files: Vec<PathBuf>,
    content: Kubeconfig,
}

/// Reads the kubeconfig in the file at `path`; without one the files of $KUBECONFIG, or ~/.kube/config, or the service
/// account of the pod. `context` is taken instead of the current context. Proxies are those of the cluster in the
/// kubeconfig, else of the environment.
///
/// # Errors
/// [`KubeConfigError`] for the first of these that is given and can't be used.
pub async fn load(path: Option<&Path>, context: Option<&str>) -> Result<Config, KubeConfigError> {
    load_with(&|name| std::env::var_os(name), path, context)
}

fn load_with(
    variables: Variables<'_>,
    path: Option<&Path>,
    context: Option<&str>,
) -> Result<Config, KubeConfigError> {
    let merged = match path {
        Some(path) => Merged::read(vec![path.to_owned()], Missing::Refused)?,
        None => Merged::read(standard_files(variables), Missing::Skipped)?,
    };
    let current = merged.content.current_context.as_deref();
    let mut config = match context.or(current).filter(|name| !name.is_empty()) {
        Some(context) => merged.config(context)?,
        None if path.is_none() && is_in_pod(variables) => {
            Config::incluster().map_err(|source| KubeConfigError::Pod(source.into()))?
        }
        None if merged.content.contexts.is_empty() && path.is_none() => {
            return Err(KubeConfigError::Nowhere(merged.shown()));
        }
        None => return Err(KubeConfigError::NoContext { files: merged.shown(), known: merged.contexts() }),
    };
    if config.proxy_url.is_none() {
        let proxies = Proxies::from_variables(|name| variables(name)?.into_string().ok());
        config.proxy_url = proxies.proxy(&config.cluster_url)?;
    }
    if config.proxy_url.is_some() {
        config.cluster_url = proxy::with_port(config.cluster_url);
    }
    Ok(config)
}

/// The files of $KUBECONFIG, or ~/.kube/config.
fn standard_files(variables: Variables<'_>) -> Vec<PathBuf> {
    match variables("KUBECONFIG").filter(|list| !list.is_empty()) {
        Some(list) => std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => variables("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect(),
    }
}

/// Whether the kubelet has told this process where the API server is.
fn is_in_pod(variables: Variables<'_>) -> bool {
    ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]
        .iter()
        .all(|name| variables(name).is_some_and(|value| !value.is_empty()))
}

impl Merged {
    /// Reads files, of which earlier ones outdo later ones.
    fn read(files: Vec<PathBuf>, missing: Missing) -> Result<Self, KubeConfigError> {
        let mut content = Kubeconfig::default();
        for path in &files {
            let of_file = |source| KubeConfigError::File { path: path.clone(), source: Box::new(source) };
            let more = match Kubeconfig::read_from(path) {
                Err(KubeconfigError::ReadConfig(error, _))
                    if error.kind() == io::ErrorKind::NotFound && missing == Missing::Skipped =>
                {
                    continue;
                }
                more => more.map_err(of_file)?,
            };
            content = content.merge(more).map_err(of_file)?;
        }
        Ok(Self { files, content })
    }

    /// What a context names.
    fn config(&self, name: &str) -> Result<Config, KubeConfigError> {
        let context = self.content.contexts.iter().find(|found| found.name == name);
        let context = context.and_then(|found| found.context.as_ref()).ok_or_else(|| {
            let (context, files, known) = (name.to_owned(), self.shown(), self.contexts());
            KubeConfigError::UnknownContext { context, files, known }
        })?;
        let cluster = self.content.clusters.iter().find(|found| found.name == context.cluster);
        let cluster = cluster.and_then(|found| found.cluster.as_ref()).ok_or_else(|| {
            let (context, files, cluster) = (name.to_owned(), self.shown(), context.cluster.clone());
            KubeConfigError::UnknownCluster { context, cluster, files }
        })?;
        // As in kubectl, a context may name a user that no file has.
        let users = &self.content.auth_infos;
        let user = context.user.as_ref().and_then(|user| users.iter().find(|found| &found.name == user));
        let user = user.and_then(|found| found.auth_info.clone()).unwrap_or_default();
        let mut config = config(&context.cluster, cluster, user)?;
        if let Some(namespace) = context.namespace.clone().filter(|namespace| !namespace.is_empty()) {
            config.default_namespace = namespace;
        }
        Ok(config)
    }

    /// The files, for messages.
    fn shown(&self) -> String {
        let files = self.files.iter().map(|path| path.display().to_string());
        files.collect::<Vec<_>>().join(", ")
    }

    /// Names of all contexts, for messages.
    fn contexts(&self) -> String {
        let names: Vec<&str> = self.content.contexts.iter().map(|context| context.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// The way to the cluster `name` as this user.
fn config(name: &str, cluster: &Cluster, mut user: AuthInfo) -> Result<Config, KubeConfigError> {
    let unusable = |reason: String| KubeConfigError::Cluster { cluster: name.to_owned(), reason };
    let for_plugins = ExecAuthCluster::try_from(cluster).map_err(|error| unusable(error.to_string()))?;
    let mut config = Config::new(server(cluster, &user).map_err(unusable)?);
    if let Some(pem) =
        for_plugins.certificate_authority_data.as_ref().filter(|pem| !pem.trim_ascii().is_empty())
    {
        let certificates = CertificateDer::pem_slice_iter(pem).map(|found| Ok(found?.to_vec()));
        let certificates: Result<Vec<_>, rustls::pki_types::pem::Error> = certificates.collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => config.root_cert = Some(certificates),
            _ => return Err(unusable("its certificate authority has no certificate in PEM form".to_owned())),
        }
    }
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.disable_compression = cluster.disable_compression.unwrap_or_default();
    config.tls_server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
    if let Some(proxy) = cluster.proxy_url.as_ref().filter(|proxy| !proxy.is_empty()) {
        config.proxy_url = Some(proxy::parse(&format!("proxy-url of the cluster {name}"), proxy)?);
    }
    if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(for_plugins);
    }
    if user.token_file.is_some() {
        user.token = None;
    }
    config.auth_info = user;
    Ok(config)
}

/// The address of a cluster. As in kubectl, one without a scheme has TLS if there are files for it.
fn server(cluster: &Cluster, user: &AuthInfo) -> Result<Uri, String> {
    let server = cluster.server.as_deref().filter(|server| !server.is_empty());
    let server = server.ok_or("it has no server")?;
    let has_tls = cluster.certificate_authority.is_some()
        || cluster.certificate_authority_data.is_some()
        || user.client_certificate.is_some()
        || user.client_certificate_data.is_some()
        || cluster.insecure_skip_tls_verify == Some(true);
    let uri = match server.contains("://") {
        true => server.parse(),
        false => format!("{}://{server}", if has_tls { "https" } else { "http" }).parse(),
    };
    let uri: Uri = uri.map_err(|error| format!("its server {server:?} is no address: {error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(format!("its server {server:?} is no address of http or https")),
    }
}

#[cfg(test)]
mod tests;
