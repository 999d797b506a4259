//! Runs the containers of the shipped manifests as local processes, with the commands, variables and files that the
//! API server has for them. There are stand-ins for what a kubelet and a container runtime provide: a folder for each
//! volume instead of mounts, a loopback address instead of the pod's own network (in which 127.0.0.1 and `[::]` are
//! the pod itself), a kubeconfig with the pod's token instead of the in-cluster configuration, and the built program
//! instead of an image.

use super::control_plane::ControlPlane;
use super::manifests::{self, NAMESPACE, kubectl};
use super::process::ProcessSpec;
use super::programs::built;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// A pod of an applied Deployment or DaemonSet.
#[derive(Debug)]
pub struct ShippedPod {
    spec: Value,
    name: String,
    uid: String,
    node: String,
    address: Ipv4Addr,
    /// The pod's own folder, and the folder that stands for its node's root.
    own: PathBuf,
    node_root: PathBuf,
    kubeconfig: PathBuf,
    /// The folder of each volume.
    volumes: BTreeMap<String, PathBuf>,
}

impl ShippedPod {
    /// Creates a pod of `workload` (for example `daemonset/fpga-collector`) on a node, with its own object and token.
    ///
    /// # Errors
    /// The API server has no such workload, or a volume has no content.
    pub async fn create(
        plane: &ControlPlane,
        workload: &str,
        node: &str,
        address: Ipv4Addr,
        node_root: &Path,
    ) -> Result<Self> {
        let text = kubectl(plane, &["get", workload, "-n", NAMESPACE, "-o", "json"]).await?;
        let spec = serde_json::from_str::<Value>(&text)?["spec"]["template"]["spec"].take();
        let account = spec["serviceAccountName"].as_str().context("no service account")?.to_owned();
        let name = format!("{account}-on-{node}");
        manifests::create_pod(plane.client(), &name, &account, Some(node)).await?;
        let text = kubectl(plane, &["get", "pod", &name, "-n", NAMESPACE, "-o", "json"]).await?;
        let uid = serde_json::from_str::<Value>(&text)?["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        let own = plane.run_dir().path().join("pods").join(&name);
        std::fs::create_dir_all(&own)?;
        let kubeconfig = own.join("kubeconfig");
        let token = manifests::token(plane.client(), &account, Some(&name)).await?;
        std::fs::write(&kubeconfig, serde_json::to_string(&manifests::kubeconfig(plane, &token)?)?)?;
        let (node, node_root) = (node.to_owned(), node_root.to_owned());
        let mut pod =
            Self { spec, name, uid, node, address, own, node_root, kubeconfig, volumes: BTreeMap::new() };
        for volume in pod.spec["volumes"].as_array().cloned().unwrap_or_default() {
            let name = volume["name"].as_str().context("a volume has no name")?;
            let folder = pod.folder_of(plane, name, &volume, &account).await?;
            std::fs::create_dir_all(&folder)?;
            pod.volumes.insert(name.to_owned(), folder);
        }
        Ok(pod)
    }

    /// The folder of a volume, with its content.
    async fn folder_of(
        &self,
        plane: &ControlPlane,
        name: &str,
        volume: &Value,
        account: &str,
    ) -> Result<PathBuf> {
        let folder = self.own.join(name);
        std::fs::create_dir_all(&folder)?;
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            return Ok(self.node_root.join(path.trim_start_matches('/')));
        }
        if let Some(map) = volume["configMap"]["name"].as_str() {
            for (file, text) in data(plane, "configmap", map).await? {
                std::fs::write(folder.join(file), self.localised(&text))?;
            }
        } else if let Some(secret) = volume["secret"]["secretName"].as_str() {
            let found = data(plane, "secret", secret).await;
            let optional = volume["secret"]["optional"] == true;
            for (file, text) in if optional { found.unwrap_or_default() } else { found? } {
                std::fs::write(folder.join(file), decoded(&text)?)?;
            }
        }
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            if let Some(map) = source["configMap"]["name"].as_str() {
                for (file, text) in data(plane, "configmap", map).await? {
                    std::fs::write(folder.join(file), text)?;
                }
                continue;
            }
            let wanted = &source["serviceAccountToken"];
            let path = wanted["path"].as_str().context("a projected volume that is no token")?;
            let token = audience_token(plane, account, &self.name, &wanted["audience"]).await?;
            std::fs::write(folder.join(path), token)?;
        }
        Ok(folder)
    }

    /// The process for a container of the pod.
    ///
    /// # Errors
    /// The pod has no such container, or the container uses something without a stand-in.
    pub async fn process(&self, plane: &ControlPlane, container: &str) -> Result<ProcessSpec> {
        let lists = [&self.spec["containers"], &self.spec["initContainers"]];
        let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
        let found = all.find(|one| one["name"] == container);
        let found = found.with_context(|| format!("{} has no container {container}", self.name))?;
        let mut mounts = BTreeMap::new();
        for mount in found["volumeMounts"].as_array().into_iter().flatten() {
            let (name, path) = (mount["name"].as_str(), mount["mountPath"].as_str());
            let folder = name.and_then(|name| self.volumes.get(name)).context("a mount without a volume")?;
            mounts.insert(path.context("a mount without a path")?.to_owned(), folder.clone());
        }
        let local = |text: &str| mounted(&self.localised(text), &mounts);
        let mut env = BTreeMap::new();
        for from in found["envFrom"].as_array().into_iter().flatten() {
            let map = from["configMapRef"]["name"].as_str().context("envFrom of no config map")?;
            env.extend(data(plane, "configmap", map).await?);
        }
        for variable in found["env"].as_array().into_iter().flatten() {
            let name = variable["name"].as_str().context("a variable without a name")?;
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some(field) => self.field(field)?,
                None => expanded(variable["value"].as_str().unwrap_or_default(), &env),
            };
            env.insert(name.to_owned(), value);
        }
        let words = |key: &str| -> Vec<String> {
            let words = found[key].as_array().into_iter().flatten();
            words.filter_map(Value::as_str).map(|word| local(&expanded(word, &env))).collect()
        };
        let log = plane.run_dir().log(&format!("{}-{container}", self.name));
        let program = self.program(plane, found["image"].as_str().unwrap_or_default())?;
        let mut spec = ProcessSpec::new(format!("{container} of {}", self.name), program, log);
        // The entry point of an image is its program. A container's command replaces it, and names the same program
        // here.
        spec = spec.args(words("args"));
        for (name, value) in &env {
            spec = spec.env(name, local(value));
        }
        Ok(spec.env("FPGA_KUBECONFIG", self.kubeconfig.display().to_string()))
    }

    /// The process of our own kube-scheduler in the pod. Outside of a container there is no in-cluster configuration,
    /// and no network of the pod in which to bind.
    ///
    /// # Errors
    /// The pod has no kube-scheduler, or its configuration can't be written.
    pub async fn kube_scheduler(&self, plane: &ControlPlane) -> Result<ProcessSpec> {
        let file = self.volume("kube-scheduler")?.join("kube-scheduler.yaml");
        let config = std::fs::read_to_string(&file).context("can't read the configuration")?;
        let kubeconfig = format!("kubeconfig: {}", self.kubeconfig.display());
        std::fs::write(&file, config.replace("kubeconfig: \"\"", &kubeconfig))
            .context("can't write the configuration")?;
        let spec = self.process(plane, "kube-scheduler").await?;
        Ok(spec.arg(format!("--bind-address={}", self.address)))
    }

    /// The folder of the volume with this name.
    ///
    /// # Errors
    /// There is no such volume.
    pub fn volume(&self, name: &str) -> Result<&Path> {
        Ok(self.volumes.get(name).with_context(|| format!("{} has no volume {name}", self.name))?)
    }

    fn program(&self, plane: &ControlPlane, image: &str) -> Result<PathBuf> {
        let name = image.rsplit('/').next().unwrap_or_default().split(':').next().unwrap_or_default();
        match name {
            "kube-scheduler" => Ok(plane.kubectl().with_file_name(name)),
            "fpga-device-manager-pocl" => built("fpga-device-manager"),
            name if image.starts_with("kube-fpga/") => built(name),
            _ => bail!("no program stands in for the image {image:?}"),
        }
    }

    fn field(&self, path: &str) -> Result<String> {
        Ok(match path {
            "metadata.name" => self.name.clone(),
            "metadata.namespace" => NAMESPACE.to_owned(),
            "metadata.uid" => self.uid.clone(),
            "spec.nodeName" => self.node.clone(),
            "status.podIP" => self.address.to_string(),
            path => bail!("no stand-in for the field {path}"),
        })
    }

    /// Replaces the two addresses that mean the pod itself in its own network.
    fn localised(&self, text: &str) -> String {
        let address = self.address.to_string();
        text.replace("127.0.0.1", &address).replace("[::]", &address)
    }
}

/// Replaces the path in `text`, if it has one, by the path below the folder of its mount.
fn mounted(text: &str, mounts: &BTreeMap<String, PathBuf>) -> String {
    let Some(start) = text.find('/') else { return text.to_owned() };
    let (before, path) = text.split_at(start);
    if !before.is_empty() && !before.ends_with(['=', ':']) {
        return text.to_owned();
    }
    let below =
        |mount: &str| path.strip_prefix(mount).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let found = mounts.iter().rev().find_map(|(mount, folder)| Some((folder, below(mount)?)));
    // A folder that has mounts below it is where they are, if they are at the same places on the node.
    let above = || {
        let (mount, folder) = mounts.iter().find(|(mount, _)| mount.starts_with(&format!("{path}/")))?;
        folder.to_str()?.strip_suffix(mount.strip_prefix(path)?)
    };
    match found {
        Some((folder, rest)) => format!("{before}{}{rest}", folder.display()),
        None => above().map_or_else(|| text.to_owned(), |folder| format!("{before}{folder}")),
    }
}

/// Replaces `$(NAME)` by the variable's value.
fn expanded(text: &str, env: &BTreeMap<String, String>) -> String {
    let replace =
        |text: String, (name, value): (&String, &String)| text.replace(&format!("$({name})"), value);
    env.iter().fold(text.to_owned(), replace)
}

async fn data(plane: &ControlPlane, kind: &str, name: &str) -> Result<BTreeMap<String, String>> {
    let text = kubectl(plane, &["get", kind, name, "-n", NAMESPACE, "-o", "json"]).await?;
    Ok(serde_json::from_value(serde_json::from_str::<Value>(&text)?["data"].take())?)
}

fn decoded(base64: &str) -> Result<Vec<u8>> {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(json!(base64))?;
    Ok(bytes.0)
}

async fn audience_token(plane: &ControlPlane, account: &str, pod: &str, audience: &Value) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod});
    let request = json!({"metadata": {}, "spec": {"audiences": [audience], "boundObjectRef": bound}});
    let request: TokenRequest = serde_json::from_value(request)?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    answer.status.and_then(|status| status.token).context("no token")
}
