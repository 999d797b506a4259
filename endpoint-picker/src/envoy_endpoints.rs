//! The file from which an Envoy beside the picker learns the endpoints of all functions: an endpoint discovery response
//! (EDS) with one cluster, `functions`. Envoy reads a file that is renamed into its place, so that it sees a whole one.
//! It then knows exactly the endpoints that the picker chooses from.

use crate::function::FunctionName;
use crate::picker::Picker;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Name of the cluster in Envoy's configuration.
pub const CLUSTER: &str = "functions";
/// Pause after the file could not be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The endpoints of functions, and the functions of each endpoint.
pub type Endpoints = BTreeMap<SocketAddr, BTreeSet<FunctionName>>;

/// The file, which is written whenever replicas come or go.
#[derive(Debug)]
pub struct EndpointsFile {
    path: PathBuf,
    /// The namespace of functions that requests name without one.
    namespace: Arc<str>,
    version: u64,
}

impl EndpointsFile {
    /// The file at `path`. Envoy starts only with a file that exists, so a missing one is written, without endpoints. One
    /// of an earlier picker stays until the functions are known.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn create(path: PathBuf, namespace: Arc<str>) -> io::Result<Self> {
        let mut file = Self { path, namespace, version: 0 };
        if !file.path.exists() {
            file.write(&Endpoints::new())?;
        }
        Ok(file)
    }

    /// Writes the file at each change of the replicas. Changes that come while a file is written are in the next one.
    /// Never returns.
    pub async fn keep(mut self, picker: Arc<Picker>) {
        let mut written = None;
        loop {
            picker.replicas_changed().await;
            if !picker.is_synced() {
                continue;
            }
            let endpoints = picker.with(|state, _| state.endpoints());
            if written.as_ref() == Some(&endpoints) {
                continue;
            }
            // Some kilobytes on a memory file system: less than a thread for it would cost.
            while let Err(error) = self.write(&endpoints) {
                warn!(path = %self.path.display(), %error, "Envoy's endpoints can't be written, trying again");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            written = Some(endpoints);
        }
    }

    fn write(&mut self, endpoints: &Endpoints) -> io::Result<()> {
        self.version += 1;
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        std::fs::write(&partial, response(endpoints, &self.namespace, self.version).to_string())?;
        std::fs::rename(&partial, &self.path)
    }
}

/// The endpoint discovery response.
fn response(endpoints: &Endpoints, namespace: &str, version: u64) -> Value {
    let endpoints = endpoints.iter().map(|(address, functions)| {
        json!({
            "endpoint": {"address": {"socket_address": {
                "address": address.ip().to_string(), "port_value": address.port(),
            }}},
            // By these names Envoy finds a function's replicas while it has no picker.
            "metadata": {"filter_metadata": {"envoy.lb": {"function": names(functions, namespace)}}},
        })
    });
    json!({
        "version_info": version.to_string(),
        "resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": CLUSTER,
            "endpoints": [{"lb_endpoints": endpoints.collect::<Vec<_>>()}],
        }],
    })
}

/// The names by which requests ask for these functions.
fn names(functions: &BTreeSet<FunctionName>, namespace: &str) -> Vec<String> {
    let mut names = Vec::new();
    for function in functions {
        names.push(format!("{}.{}", function.name, function.namespace));
        if *function.namespace == *namespace {
            names.push(function.name.to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_the_names_by_which_requests_ask_for_its_functions() {
        let address: SocketAddr = "10.0.0.1:8080".parse().unwrap();
        let functions = [FunctionName::new("default", "a"), FunctionName::new("team", "b")];
        let endpoints = Endpoints::from([(address, BTreeSet::from(functions))]);
        let response = response(&endpoints, "default", 7);
        let endpoint = &response["resources"][0]["endpoints"][0]["lb_endpoints"][0];
        assert_eq!(endpoint["endpoint"]["address"]["socket_address"]["port_value"], 8080);
        let names = &endpoint["metadata"]["filter_metadata"]["envoy.lb"]["function"];
        assert_eq!(*names, json!(["a.default", "a", "b.team"]));
        assert_eq!(response["version_info"], "7");
    }

    #[test]
    fn a_missing_file_is_written_and_one_of_an_earlier_picker_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("endpoints.json");
        EndpointsFile::create(path.clone(), "default".into()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"lb_endpoints\":[]"), "{text}");
        std::fs::write(&path, "earlier").unwrap();
        EndpointsFile::create(path.clone(), "default".into()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "earlier");
        let missing = folder.path().join("no/folder");
        assert!(EndpointsFile::create(missing, "default".into()).is_err());
    }
}
