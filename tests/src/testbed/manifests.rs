//! Applies the manifests to a real API server as users do, and creates the tokens that a kubelet would give to their
//! pods.

use super::control_plane::ControlPlane;
pub use super::helm::NAMESPACE;
use super::identity::Identity;
use super::programs::repository;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, ValidationDirective,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource as _};
use serde_json::json;
use std::path::PathBuf;

/// The kinds of the chart that run nothing: namespace, definitions, accounts, rights and settings. Its Leases are left out, as by Argo CD:
/// programs make their own.
pub const KINDS_WITHOUT_PODS: [&str; 8] = [
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
];

/// Runs kubectl as the administrator. Returns its output, including warnings.
///
/// # Errors
/// kubectl fails; the error has its message.
pub async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new(plane.kubectl())
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(&Identity::Admin)?)
        .args(arguments)
        .output()
        .await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {arguments:?}: {error}");
    Ok(String::from_utf8(output.stdout)? + &error)
}

/// Applies the manifests that are rendered from the chart with these values: a name of manifests/rendered.
///
/// # Errors
/// The API server refuses a part of it.
pub async fn apply(plane: &ControlPlane, values: &str) -> Result<String> {
    let file = rendered(values);
    let file = file.to_str().context("the repository's path is not UTF-8")?;
    kubectl(plane, &["apply", "--server-side", "--validate=strict", "-f", file]).await
}

/// Applies the objects of these kinds among the rendered manifests.
///
/// # Errors
/// There are none, or the API server refuses one.
pub async fn apply_kinds(plane: &ControlPlane, values: &str, kinds: &[&str]) -> Result<()> {
    apply_where(plane, values, |kind, _| kinds.contains(&kind)).await
}

/// Applies the objects among the rendered manifests whose kind and name `is_wanted` takes. Needs no kubectl.
///
/// # Errors
/// There are none, or the API server refuses one.
pub async fn apply_where(
    plane: &ControlPlane,
    values: &str,
    is_wanted: impl Fn(&str, &str) -> bool,
) -> Result<()> {
    let text = std::fs::read_to_string(rendered(values))?;
    let mut applied = 0;
    for object in text.split("\n---\n") {
        let Some((kind, name)) = field(object, "kind: ").zip(field(object, "  name: ")) else { continue };
        if is_wanted(kind, name) {
            apply_object(plane.client(), object)
                .await
                .with_context(|| format!("{values}.yaml: {kind} {name}"))?;
            applied += 1;
        }
    }
    ensure!(applied > 0, "manifests/rendered/{values}.yaml has none of them");
    Ok(())
}

/// The rest of the first line with this prefix, which is enough for what Helm renders of our chart.
fn field<'a>(object: &'a str, prefix: &str) -> Option<&'a str> {
    object.lines().find_map(|line| line.strip_prefix(prefix))
}

/// Applies an object as it is written: the API server reads YAML.
async fn apply_object(client: &Client, object: &str) -> Result<()> {
    let field = |prefix| field(object, prefix).with_context(|| format!("no {prefix:?}"));
    let api_version = field("apiVersion: ")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, field("kind: ")?));
    let url = DynamicObject::url_path(&resource, self::field(object, "  namespace: "));
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("fpga-tests")
    };
    let patch = Patch::Apply(object);
    let mut request = kube::core::Request::new(url).patch(field("  name: ")?, &params, &patch)?;
    *request.body_mut() = object.as_bytes().to_vec();
    client.request_text(request).await?;
    Ok(())
}

fn rendered(values: &str) -> PathBuf {
    repository().join(format!("manifests/rendered/{values}.yaml"))
}

/// Creates a pod with this service account, on `node` if there is one, in the namespace of the manifests.
///
/// # Errors
/// The API server refuses the pod.
pub async fn create_pod(client: &Client, name: &str, account: &str, node: Option<&str>) -> Result<()> {
    create_pod_in(client, NAMESPACE, name, account, node).await
}

/// Creates a pod with this service account, on `node` if there is one.
///
/// # Errors
/// The API server refuses the pod.
pub async fn create_pod_in(
    client: &Client,
    namespace: &str,
    name: &str,
    account: &str,
    node: Option<&str>,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let container = json!([{"name": "c", "image": "none"}]);
    let mut spec = json!({"serviceAccountName": account, "containers": container});
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

/// Creates a replica of the extender whose address nobody reaches. The API server checks a user's right to the replica
/// before it connects.
///
/// # Errors
/// The API server refuses the pod or its address.
pub async fn create_unreachable_extender(plane: &ControlPlane) -> Result<()> {
    let (pod, service) = (plane.unique("extender"), "fpga-scheduler-extender");
    create_pod(plane.client(), &pod, service, None).await?;
    let slice = json!({
        "addressType": "IPv4",
        "metadata": {"name": pod, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true},
                       "targetRef": {"kind": "Pod", "name": pod, "namespace": NAMESPACE}}],
        "ports": [{"name": "http", "port": 9461}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(plane.client().clone(), NAMESPACE);
    slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
    Ok(())
}

/// Grants a service account the rights of users of the kubectl plugin, as the first lines of the file of these rights
/// describe.
///
/// # Errors
/// The API server refuses one.
pub async fn grant_plugins_rights(plane: &ControlPlane, namespace: &str, account: &str) -> Result<()> {
    let rights = repository().join("kubectl-fpga/rights.yaml");
    let rights = rights.to_str().context("the repository's path is not UTF-8")?;
    kubectl(plane, &["apply", "-f", rights]).await?;
    let account = format!("--serviceaccount={namespace}:{account}");
    let name = plane.unique("kubectl-fpga");
    let binding = ["create", "clusterrolebinding", &name, "--clusterrole=kubectl-fpga", &account];
    kubectl(plane, &binding).await?;
    let binding = ["create", "rolebinding", &name, "--role=kubectl-fpga", &account, "-n", NAMESPACE];
    kubectl(plane, &binding).await?;
    Ok(())
}

/// A token for the API server of a service account in the namespace of the manifests. It is bound to `pod`, like a
/// kubelet's tokens, if there is one.
///
/// # Errors
/// The API server creates no token.
pub async fn token(client: &Client, account: &str, pod: Option<&str>) -> Result<String> {
    token_in(client, NAMESPACE, account, pod).await
}

/// A token for the API server of a service account. It is bound to `pod`, like a kubelet's tokens, if there is one.
///
/// # Errors
/// The API server creates no token.
pub async fn token_in(client: &Client, namespace: &str, account: &str, pod: Option<&str>) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let bound = pod.map(|name| json!({"apiVersion": "v1", "kind": "Pod", "name": name}));
    let request = json!({"metadata": {}, "spec": {"audiences": [], "boundObjectRef": bound}});
    let request: TokenRequest = serde_json::from_value(request)?;
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    answer.status.and_then(|status| status.token).context("no token")
}

/// The administrator's kubeconfig with this token instead of the administrator's credentials.
///
/// # Errors
/// The kubeconfig can't be read.
pub fn kubeconfig(plane: &ControlPlane, token: &str) -> Result<Kubeconfig> {
    let mut kubeconfig = Kubeconfig::read_from(plane.kubeconfig(&Identity::Admin)?)?;
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(serde_json::from_value(json!({ "token": token }))?);
    }
    Ok(kubeconfig)
}

/// A client with this token.
///
/// # Errors
/// The client can't be created.
pub async fn client(plane: &ControlPlane, token: &str) -> Result<Client> {
    let kubeconfig = kubeconfig(plane, token)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
