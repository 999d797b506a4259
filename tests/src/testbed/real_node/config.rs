//! The configuration files of containerd, the CNI plugin and the kubelet.

use super::cgroup::Cgroup;
use super::cluster_dns;
use super::programs::Programs;
use super::{CONTAINERD_SOCKET, PAUSE_IMAGE};
use crate::testbed::network::NodeNetwork;
use anyhow::{Context as _, Result};
use serde_json::json;
use std::path::Path;

/// Writes `containerd.toml`, `cni/10-ptp.conflist` and `kubelet.json` into the node's folder.
pub fn write(dir: &Path, network: &NodeNetwork, cgroup: &Cgroup, programs: &Programs) -> Result<()> {
    let cni = dir.join("cni");
    std::fs::create_dir_all(&cni).context("can't make a node's folder")?;
    let files = [
        (dir.join("containerd.toml"), containerd(&cni, programs)),
        (cni.join("10-ptp.conflist"), pod_network(network)),
        (dir.join("kubelet.json"), kubelet(network, cgroup)),
    ];
    for (path, text) in files {
        std::fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

/// containerd's configuration. `restrict_oom_score_adj`: where the test program may not lower the score of a process,
/// runc could not either.
fn containerd(cni: &Path, programs: &Programs) -> String {
    let (cni, plugins) = (cni.display(), programs.cni().display());
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[ttrpc]
  address = "{CONTAINERD_SOCKET}.ttrpc"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{cni}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE_IMAGE}"
"#
    )
}

/// A network in which the node reaches each pod by a pair of interfaces.
fn pod_network(network: &NodeNetwork) -> String {
    let [first, last] = network.pod_range();
    let ipam = json!({
        "type": "host-local",
        "ranges": [[{
            // The way to pods of all nodes is the gateway, and there is none to anything else.
            "subnet": network.pods_of_all_nodes(),
            "rangeStart": first,
            "rangeEnd": last,
            "gateway": network.pod_gateway(),
        }]],
        "dataDir": "/var/lib/cni/networks",
    });
    let plugins = json!([{"type": "ptp", "ipMasq": false, "ipam": ipam}]);
    json!({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}).to_string()
}

fn kubelet(network: &NodeNetwork, cgroup: &Cgroup) -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.host(),
        "port": 10250,
        "readOnlyPort": 0,
        "healthzBindAddress": network.host(),
        "healthzPort": 10248,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup.path(),
        "failCgroupV1": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        // The disks of developers' machines are often full.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "clusterDNS": [network.pod_gateway()],
        "clusterDomain": cluster_dns::DOMAIN,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}},
        "authorization": {"mode": "Webhook"},
        // Tests wait for pods' ends.
        "nodeStatusUpdateFrequency": "4s",
        "shutdownGracePeriod": "0s",
    })
    .to_string()
}
