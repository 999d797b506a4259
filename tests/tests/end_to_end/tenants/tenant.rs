//! What a tenant has: a namespace with a service account of ordinary rights, a pod with a board, Bitstreams and a function.

use super::installed::NODE;
use fpga_accelerators::Accelerator;
use fpga_test_kit::Server;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::manifests::{self, kubectl};
use fpga_tests::testbed::{artifacts, wait};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The accelerator that the boards have. Each tenant has a name of its own for it.
pub const BUILT: &str = "sha-256";

/// A namespace with a service account of ordinary rights, a pod with a board, a Bitstream and a function.
pub struct Tenant {
    pub namespace: String,
    pub account: &'static str,
    pub pod: &'static str,
    pub uid: String,
    pub bitstream: &'static str,
    pub digest: String,
    pub function: &'static str,
    /// The Bitstream of the tenant's jobs.
    pub accelerator: &'static str,
}

/// The bytes of a tenant's bitstream.
fn content(name: &str) -> Vec<u8> {
    format!("the bytes of {name}").into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Tenant {
    pub async fn create(
        plane: &ControlPlane,
        prefix: &str,
        [account, pod, bitstream, function, accelerator]: [&'static str; 5],
        files: &Server,
    ) -> Self {
        let namespace = plane.new_namespace(prefix).await.unwrap();
        let in_it = |args: &[&str]| {
            [&["-n", &namespace][..], args].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let owner = format!("--serviceaccount={namespace}:{account}");
        for args in [
            in_it(&["create", "serviceaccount", account]),
            in_it(&["create", "rolebinding", account, "--clusterrole=edit", &owner]),
        ] {
            kubectl(plane, &args.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
        }
        let digest = hex(&content(bitstream));
        let board = json!({"limits": {"fpga-scheduling.io/accelerated": "1"}});
        let annotations = json!({"fpga-scheduling.io/bitstreams": bitstream});
        let uid = String::new();
        let mut tenant = Self { namespace, account, pod, uid, bitstream, digest, function, accelerator };
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "annotations": annotations},
            "spec": {
                "serviceAccountName": account, "nodeName": NODE, "schedulerName": "kube-fpga",
                "containers": [{"name": "main", "image": "none", "resources": board}],
            },
        });
        tenant.apply(plane, "bitstream", &tenant.bitstream(bitstream, files.address())).await;
        tenant.apply(plane, "accelerator", &bitstream_of_jobs(accelerator)).await;
        tenant.apply(plane, "pod", &object).await;
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": function, "labels": {"fpga-scheduling.io/function": function}},
            "spec": {"selector": {"app": function}, "ports": [{"port": 80}]},
        });
        tenant.apply(plane, "service", &service).await;
        let uid = ["get", "pod", pod, "-n", &tenant.namespace, "-o", "jsonpath={.metadata.uid}"];
        tenant.uid = kubectl(plane, &uid).await.unwrap();
        tenant
    }

    /// A Bitstream of the namespace with its own bytes at this host.
    pub fn bitstream(&self, name: &str, host: &str) -> Value {
        let digest = format!("sha256:{}", self.digest);
        let variant = json!({
            "vendor": "pocl", "board": "pocl", "shell": "1", "digest": digest, "bytes": content(self.bitstream).len(),
            "source": {"oci": format!("{host}/{name}@{digest}")},
        });
        json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": name},
            "spec": {"variants": [variant]},
        })
    }

    /// Deletes an object of the namespace.
    pub async fn delete(&self, plane: &ControlPlane, kind: &str, name: &str) {
        kubectl(plane, &["delete", kind, name, "-n", &self.namespace, "--wait=true"]).await.unwrap();
    }

    /// Applies an object in the namespace.
    pub async fn apply(&self, plane: &ControlPlane, what: &str, object: &Value) {
        apply(plane, &self.namespace, what, object).await;
    }
}

/// A Bitstream by whose name jobs use the accelerator.
fn bitstream_of_jobs(name: &str) -> Value {
    let bytes = std::fs::read(accelerator()).unwrap();
    let variant = json!({
        "vendor": "pocl", "board": "pocl", "shell": "1", "digest": format!("sha256:{}", hex(&bytes)), "bytes": bytes.len(),
        "source": {"https": "https://files.example/sha-256"},
    });
    json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": name},
        "spec": {"variants": [variant], "interface": Accelerator::Sha256.interface()},
    })
}

/// Lets the library give the accelerator to all namespaces: the pool lends no bitstream that another namespace withholds.
pub async fn give_to_all(plane: &ControlPlane) {
    let mut object = bitstream_of_jobs(BUILT);
    object["spec"]["allowedNamespaces"] = json!({"from": "All"});
    apply(plane, NAMESPACE, "accelerator", &object).await;
}

async fn apply(plane: &ControlPlane, namespace: &str, what: &str, object: &Value) {
    let file = plane.run_dir().path().join(format!("{namespace}-{what}.json"));
    std::fs::write(&file, object.to_string()).unwrap();
    wait::until(&format!("the API server to take the {what}"), async || {
        kubectl(plane, &["apply", "-n", namespace, "-f", file.to_str().unwrap()]).await?;
        Ok(Some(()))
    })
    .await
    .unwrap();
}

pub fn accelerator() -> PathBuf {
    artifacts::accelerator_bitstreams(Runtime::Pocl).unwrap().join(format!("{BUILT}.bitstream"))
}

/// A server with the bytes of both tenants' bitstreams.
pub fn files(address: Ipv4Addr) -> Server {
    use axum::extract::Path;
    let blob = |Path((name, _)): Path<(String, String)>| async move { content(&name) };
    Server::tcp(
        &format!("{address}:0"),
        axum::Router::new().route("/v2/{repository}/blobs/{digest}", axum::routing::get(blob)),
    )
}

/// A client of the API server with a tenant's rights.
pub async fn client(plane: &ControlPlane, tenant: &Tenant) -> kube::Client {
    let token = manifests::token_in(plane.client(), &tenant.namespace, tenant.account, None).await.unwrap();
    manifests::client(plane, &token).await.unwrap()
}
