//! Functions on modelled nodes, as Services without selectors, whose EndpointSlices are written here. Pods there have
//! loopback addresses, which the API server refuses as addresses, so that kube-controller-manager can't write them, but
//! takes as names.

use super::invoke::FUNCTION_PORT;
use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Label of a pod with the name of its function.
const APP: &str = "app";
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Writes the EndpointSlices of a namespace until it is dropped.
#[derive(Debug)]
pub struct EndpointSlices {
    services: Api<Service>,
    task: AbortHandle,
}

impl EndpointSlices {
    /// Begins to write an EndpointSlice for each value of the label `app` that pods of the namespace have.
    #[must_use]
    pub fn keep(client: &Client, namespace: &str) -> Self {
        let pods = Api::namespaced(client.clone(), namespace);
        let slices = Api::namespaced(client.clone(), namespace);
        let services = Api::namespaced(client.clone(), namespace);
        Self { services, task: tokio::spawn(write_all(pods, slices)).abort_handle() }
    }

    /// Creates the Service of the function whose pods have the label `app=NAME`.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn create_function(&self, name: &str) -> Result<()> {
        let service = json!({
            "metadata": {"name": name, "labels": {"fpga-scheduling.io/function": name}},
            "spec": {"ports": [{"port": 80, "targetPort": FUNCTION_PORT}]},
        });
        self.services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }
}

impl Drop for EndpointSlices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_all(pods: Api<Pod>, slices: Api<EndpointSlice>) {
    let mut events = pin!(watcher(pods, Config::default().labels(APP)).default_backoff());
    let mut known: BTreeMap<String, Pod> = BTreeMap::new();
    let mut written: BTreeSet<String> = BTreeSet::new();
    while let Some(event) = events.next().await {
        let changed: BTreeSet<String> = match event {
            Ok(Event::Init) => {
                known.clear();
                continue;
            }
            Ok(Event::InitApply(pod)) => {
                known.insert(pod.name_any(), pod);
                continue;
            }
            Ok(Event::InitDone) => known.values().filter_map(app).chain(written.clone()).collect(),
            Ok(Event::Apply(pod)) => {
                let app = app(&pod);
                known.insert(pod.name_any(), pod);
                app.into_iter().collect()
            }
            Ok(Event::Delete(pod)) => {
                known.remove(&pod.name_any());
                app(&pod).into_iter().collect()
            }
            // The watcher tries again.
            Err(_) => continue,
        };
        for name in changed {
            let slice = Patch::Apply(slice(&name, known.values()));
            let params = PatchParams::apply("fpga-tests").force();
            while slices.patch(&name, &params, &slice).await.is_err() {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            written.insert(name);
        }
    }
}

fn app(pod: &Pod) -> Option<String> {
    pod.labels().get(APP).cloned()
}

/// The EndpointSlice of a function, with those of the pods that are ready.
fn slice<'p>(name: &str, pods: impl Iterator<Item = &'p Pod>) -> Value {
    let endpoint = |pod: &Pod| {
        let status = pod.status.as_ref()?;
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let is_ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
        let of_function = app(pod).is_some_and(|app| app == name);
        let ends = pod.metadata.deletion_timestamp.is_some();
        let address = status.pod_ip.as_ref().filter(|_| of_function && is_ready && !ends)?;
        Some(json!({
            "addresses": [address],
            "conditions": {"ready": true},
            "nodeName": pod.spec.as_ref()?.node_name,
            "targetRef": {"kind": "Pod", "name": pod.name_any(), "namespace": pod.namespace(), "uid": pod.uid()},
        }))
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/service-name": name, "fpga-scheduling.io/function": name,
        }},
        "addressType": "FQDN",
        "ports": [{"port": FUNCTION_PORT}],
        "endpoints": pods.filter_map(endpoint).collect::<Vec<_>>(),
    })
}
