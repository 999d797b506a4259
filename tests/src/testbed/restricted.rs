//! Pods in namespaces that enforce Pod Security `restricted`, as users write them: a board is one line.

use super::cluster::Runtime;
use super::invoke::FUNCTION_PORT;
use super::{artifacts, programs, wait};
use crate::functions::Function;
use anyhow::Result;
use fpga_images::Image;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Makes a namespace that enforces Pod Security `restricted`, and returns its pods.
///
/// # Errors
/// The API server refuses the namespace, or no controller gives it a service account.
pub async fn namespace(client: &Client, name: &str) -> Result<Api<Pod>> {
    let namespace: Namespace = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    wait::until("the namespace's service account", async || Ok(accounts.get_opt("default").await?.map(drop)))
        .await?;
    Ok(Api::namespaced(client.clone(), name))
}

/// The Service by which the router finds the replicas of a function: its pods have the label `app` of this name.
///
/// # Errors
/// The name is none of a Service.
pub fn function_service(name: &str) -> Result<Service> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"fpga-scheduling.io/function": name}},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": FUNCTION_PORT}]},
    }))?)
}

/// Whether the pod is ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Waits until a Deployment has a Ready pod on each of these nodes, and returns the pods; `ready` waits for as many Ready pods.
/// Other nodes are closed, but kube-scheduler may see a pod before it sees that. Such a pod is deleted, and the Deployment
/// makes another one.
///
/// # Errors
/// A misplaced pod can't be deleted.
pub async fn until_on(
    pods: &Api<Pod>,
    nodes: &[&str],
    mut ready: impl AsyncFnMut() -> Vec<Pod>,
) -> Result<Vec<Pod>> {
    loop {
        let mut ready = ready().await;
        ready.sort_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
        let mut free = nodes.to_vec();
        let is_misplaced = |pod: &&Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let place = free.iter().position(|free| Some(*free) == node);
            place.map(|place| free.swap_remove(place)).is_none()
        };
        let Some(misplaced) = ready.iter().find(is_misplaced).map(|pod| pod.name_any()) else {
            return Ok(ready);
        };
        pods.delete(&misplaced, &DeleteParams::default()).await?;
        wait::until("the misplaced pod to be gone", async || {
            Ok(pods.get_opt(&misplaced).await?.is_none().then_some(()))
        })
        .await?;
    }
}

/// A pod of one container that such a namespace takes, or a controller of such pods.
#[derive(Debug, Clone)]
pub struct RestrictedPod {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    volumes: Vec<Value>,
    node: Option<String>,
    scheduler: Option<String>,
    container: Value,
}

impl RestrictedPod {
    /// A pod called `name` that runs the image.
    #[must_use]
    pub fn new(name: &str, image: &str) -> Self {
        let container = json!({
            "name": "main",
            "image": image,
            "imagePullPolicy": "Never",
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        });
        Self {
            name: name.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), name.to_owned())]),
            annotations: BTreeMap::new(),
            volumes: Vec::new(),
            node: None,
            scheduler: None,
            container,
        }
    }

    /// A pod that serves a function with a board: one line asks for it, the others are the function's own.
    #[must_use]
    pub fn function(name: &str, function: Function, image: &str) -> Self {
        Self::serving(name, function.name(), image)
    }

    /// The same of any program in the manner of tests/functions, with this bitstream.
    #[must_use]
    pub fn serving(name: &str, bitstream: &str, image: &str) -> Self {
        Self::new(name, image)
            .boards("fpga-scheduling.io/accelerated", 1)
            .with(
                "env",
                json!([
                    {"name": "BITSTREAM", "value": format!("/run/fpga/bitstreams/{bitstream}.bitstream")},
                    {"name": "PORT", "value": FUNCTION_PORT.to_string()},
                    {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ]),
            )
            .with(
                "readinessProbe",
                // The function serves one request at a time, so that the probe waits behind calls: a busy one is ready.
                json!({
                    "httpGet": {"path": "/healthz", "port": FUNCTION_PORT}, "periodSeconds": 1, "timeoutSeconds": 30,
                }),
            )
    }

    /// Asks for this number of boards by a resource.
    #[must_use]
    pub fn boards(self, resource: &str, number: u32) -> Self {
        self.with("resources", json!({"limits": {resource: number}}))
    }

    /// Adds a variable to the container's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        if let Value::Array(variables) = &mut self.container["env"] {
            variables.push(json!({"name": name, "value": value}));
            return self;
        }
        self.with("env", json!([{"name": name, "value": value}]))
    }

    /// Sets a field of the container.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.container[field] = value;
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Mounts a ConfigMap at this folder.
    #[must_use]
    pub fn config_map(mut self, name: &str, folder: &str) -> Self {
        self.volumes.push(json!({"name": name, "configMap": {"name": name}}));
        self.with("volumeMounts", json!([{"name": name, "mountPath": folder, "readOnly": true}]))
    }

    /// Lets the container ask the pool for slots: it knows the broker, which it reaches at this address, and proves whose pod
    /// it is in.
    #[must_use]
    pub fn in_pool(mut self, broker: &str) -> Self {
        let token = json!({"serviceAccountToken": {"audience": "fpga-pool", "path": "token"}});
        let sources = json!([token, {"configMap": {"name": "fpga-pool"}}]);
        self.volumes.push(json!({"name": "fpga-pool", "projected": {"sources": sources}}));
        let node = json!({"fieldRef": {"fieldPath": "spec.nodeName"}});
        self.with(
            "env",
            json!([
                {"name": "FPGA_POOL", "value": broker},
                {"name": "FPGA_POOL_CA", "value": "/run/fpga-pool/ca.crt"},
                {"name": "FPGA_POOL_TOKEN_FILE", "value": "/run/fpga-pool/token"},
                {"name": "FPGA_NODE_NAME", "valueFrom": node},
            ]),
        )
        .with("volumeMounts", json!([{"name": "fpga-pool", "mountPath": "/run/fpga-pool", "readOnly": true}]))
    }

    /// Selects the node.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    /// Names the scheduler, where no policy does so.
    #[must_use]
    pub fn scheduler(mut self, name: &str) -> Self {
        self.scheduler = Some(name.to_owned());
        self
    }

    /// The pod.
    ///
    /// # Errors
    /// The fields are none of a pod.
    pub fn pod(&self) -> Result<Pod> {
        let mut pod = self.template();
        pod["metadata"]["name"] = json!(self.name);
        Ok(serde_json::from_value(pod)?)
    }

    /// A `ReplicaSet` of such pods.
    ///
    /// # Errors
    /// The fields are none of a pod.
    pub fn replica_set(&self, replicas: u32) -> Result<ReplicaSet> {
        self.controller(replicas)
    }

    /// A Deployment of such pods.
    ///
    /// # Errors
    /// The fields are none of a pod.
    pub fn deployment(&self, replicas: u32) -> Result<Deployment> {
        self.controller(replicas)
    }

    fn controller<C: DeserializeOwned>(&self, replicas: u32) -> Result<C> {
        Ok(serde_json::from_value(json!({
            "metadata": {"name": self.name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": self.template(),
            },
        }))?)
    }

    fn template(&self) -> Value {
        let mut spec = json!({
            "terminationGracePeriodSeconds": 2,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [self.container],
        });
        if !self.volumes.is_empty() {
            spec["volumes"] = json!(self.volumes);
        }
        if let Some(node) = &self.node {
            spec["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        }
        if let Some(scheduler) = &self.scheduler {
            spec["schedulerName"] = json!(scheduler);
        }
        json!({"metadata": {"labels": self.labels, "annotations": self.annotations}, "spec": spec})
    }
}

/// An image whose program waits for the end and does nothing else.
///
/// # Errors
/// The program does not build.
pub fn idle_image() -> Result<Image> {
    let program = artifacts::node_images()?.join("pause");
    Ok(Image::new("localhost/idle:1", "/idle").file("/idle", program))
}

/// An image with a function of tests/functions and the libraries that it and an OpenCL driver need, but with no OpenCL
/// driver.
///
/// # Errors
/// The function does not build, or our driver is not built.
pub fn function_image(function: Function) -> Result<Image> {
    function_image_as(function, &format!("localhost/{function}:1"))
}

/// The same image under another name.
///
/// # Errors
/// As [`function_image`].
pub fn function_image_as(function: Function, name: &str) -> Result<Image> {
    let program = artifacts::functions()?.join(function.name());
    let driver = programs::built("libfpga_opencl_icd.so")?;
    let entrypoint = format!("/{function}");
    let image = Image::new(name, &entrypoint).file(&entrypoint, &program);
    Ok(image.libraries_of(&program)?.libraries_of(&driver)?)
}

/// Copies the bitstreams of all functions into a folder, for the nodes on which pods expect them.
///
/// # Errors
/// A bitstream does not build, or can't be copied.
pub fn install_bitstreams(runtime: Runtime, folder: &std::path::Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for bitstream in std::fs::read_dir(artifacts::bitstreams(runtime)?)? {
        let bitstream = bitstream?;
        std::fs::copy(bitstream.path(), folder.join(bitstream.file_name()))?;
    }
    Ok(())
}
