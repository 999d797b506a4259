//! Streams with the identities of the manifests: certificates of manifests/certificates.sh or of the chart, and tokens that
//! a real API server creates for pods and checks. A collector reports for the node of its pod and for no other node.

use fpga_test_kit::patience;
use fpga_tests::testbed::certificates;
use fpga_tests::testbed::cluster::rbac;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const NAMESPACE: &str = "kube-fpga";
const COLLECTOR: &str = "fpga-collector";
const AUDIENCE: &str = "fpga-scheduler-extender";
const PORT: u16 = 9461;
const STREAM_PORT: u16 = 9463;

struct Bed {
    plane: ControlPlane,
    http: HttpClient,
    extender: Process,
    authority: PathBuf,
}

impl Bed {
    /// A bed with the certificates of manifests/certificates.sh.
    async fn start() -> Self {
        let plane = ControlPlane::start(&[]).await.unwrap();
        let host = plane.network().control_plane();
        let authority = plane.run_dir().path().join("authority");
        let objects = script(&authority, &format!("IP:{host}"));
        rbac::grant(&plane).await.unwrap();
        let file = plane.run_dir().path().join("certificates.yaml");
        std::fs::write(&file, objects).unwrap();
        kubectl(&plane, &["apply", "--validate=strict", "-f", file.to_str().unwrap()]).await;
        Self::with_certificates(plane, authority).await
    }

    /// A bed with the certificates that the chart's Job makes, which end in a day.
    async fn with_chart() -> Self {
        let plane = ControlPlane::start(&[]).await.unwrap();
        rbac::grant(&plane).await.unwrap();
        let address = format!("certificates.addresses[0]={}", plane.network().control_plane());
        certificates::apply(&plane, &[address.as_str(), "certificates.days=1"]).await.unwrap();
        certificates::make(&plane, NAMESPACE).await.unwrap();
        let folder = plane.run_dir().path().join("mounted");
        std::fs::create_dir(&folder).unwrap();
        mount_authorities(&plane, &folder).await;
        mount_certificate(&plane, &folder).await;
        Self::with_certificates(plane, folder).await
    }

    /// A bed whose extender has the certificate of this folder.
    async fn with_certificates(plane: ControlPlane, authority: PathBuf) -> Self {
        let host = plane.network().control_plane();
        let nodes: Api<Node> = Api::all(plane.client().clone());
        for name in ["mine", "other"] {
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let name = "fpga-scheduler-extender";
        let spec = ProcessSpec::new(name, programs::built(name).unwrap(), plane.run_dir().log(name))
            .args(["--listen".to_owned(), format!("{host}:{PORT}")])
            .args(["--stream-listen".to_owned(), format!("{host}:{STREAM_PORT}")])
            .args(["--shutdown-delay", "0s", "--stream-service-account", "kube-fpga/fpga-collector"])
            .arg("--stream-tls-cert")
            .arg(authority.join("tls.crt"))
            .arg("--stream-tls-key")
            .arg(authority.join("tls.key"))
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(&Identity::Extender).unwrap());
        let extender = Process::start(&spec).unwrap();
        let http = HttpClient::new(patience());
        let bed = Self { plane, http, extender, authority };
        bed.extender.wait_ready(&bed.http, &bed.url("/readyz"), patience()).await.unwrap();
        bed
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}:{PORT}{path}", self.plane.network().control_plane())
    }

    /// Creates a pod with the collector's account on this node.
    async fn create_pod(&self, name: &str, node: &str) {
        let pods: Api<Pod> = Api::namespaced(self.plane.client().clone(), NAMESPACE);
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "serviceAccountName": COLLECTOR, "containers": [{"name": "c", "image": "none"}]},
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// A file with the token that a kubelet would give to the pod.
    async fn token(&self, pod: Option<&str>, audience: &str) -> PathBuf {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client().clone(), NAMESPACE);
        let bound = pod.map(|pod| json!({"apiVersion": "v1", "kind": "Pod", "name": pod}));
        let request = json!({"metadata": {}, "spec": {"audiences": [audience], "boundObjectRef": bound}});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let answer =
            accounts.create_token_request(COLLECTOR, &PostParams::default(), &request).await.unwrap();
        let file = self.plane.run_dir().path().join(format!("token-{}-{audience}", pod.unwrap_or("no-pod")));
        std::fs::write(&file, answer.status.unwrap().token.unwrap()).unwrap();
        file
    }

    async fn start_collector(&self, node: &str, token: &Path) -> Process {
        let nodes: Api<Node> = Api::all(self.plane.client().clone());
        let uid = nodes.get(node).await.unwrap().metadata.uid.unwrap();
        let host = self.plane.network().control_plane();
        let name = format!("collector-{node}-{}", token.file_name().unwrap().to_str().unwrap());
        let spec =
            ProcessSpec::new(&name, programs::built(COLLECTOR).unwrap(), self.plane.run_dir().log(&name))
                .args(["--no-publish", "--node-name", node, "--node-uid", &uid, "--listen"])
                .args([format!("{}:0", self.plane.network().node(0).host()), "--checkpoint-dir".to_owned()])
                .arg(self.plane.run_dir().path().join(format!("checkpoint-{name}")))
                .args(["--extenders".to_owned(), format!("https://{host}:{STREAM_PORT}")])
                .arg("--stream-ca")
                .arg(self.authority.join("ca.crt"))
                .arg("--stream-token-file")
                .arg(token);
        Process::start(&spec).unwrap()
    }

    async fn is_streamed(&self, node: &str) -> bool {
        let nodes = self.http.get(&self.url("/nodes")).await.unwrap().json().unwrap();
        let mut nodes = nodes.as_array().unwrap().iter();
        nodes.any(|shown| shown["name"] == node && shown["source"] == "stream")
    }

    /// Number of open streams.
    async fn streams(&self) -> anyhow::Result<f64> {
        Ok(self.http.get(&self.url("/metrics")).await?.metric("fpga_extender_streams"))
    }

    async fn until_refused(&self, reason: &str, least: f64) {
        let name = format!("fpga_extender_streams_refused_total{{reason=\"{reason}\"}}");
        wait::until(&name, async || {
            let text = self.http.get(&self.url("/metrics")).await?.text();
            let value = text.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse::<f64>().ok());
            Ok((value.unwrap_or(0.0) >= least).then_some(()))
        })
        .await
        .unwrap_or_else(|error| panic!("{error:#}\n{}", self.extender.log_tail()));
    }
}

/// Puts the authorities of the cluster where a kubelet mounts them.
async fn mount_authorities(plane: &ControlPlane, folder: &Path) {
    std::fs::write(folder.join("ca.crt"), authorities(plane).await).unwrap();
}

/// The authorities that collectors trust.
async fn authorities(plane: &ControlPlane) -> String {
    certificates::authorities(plane, NAMESPACE, "fpga-stream-ca").await.unwrap()
}

/// Puts the extender's certificate where a kubelet mounts it.
async fn mount_certificate(plane: &ControlPlane, folder: &Path) {
    for (file, content) in certificate(plane).await {
        std::fs::write(folder.join(file), content.0).unwrap();
    }
}

/// The extender's certificate and key.
async fn certificate(plane: &ControlPlane) -> BTreeMap<String, ByteString> {
    certificates::secret(plane, NAMESPACE, "fpga-extender-stream-tls").await.unwrap()
}

/// The command of the chart's `CronJob`, with the rights of its account.
async fn renewal(plane: &ControlPlane) -> tokio::process::Command {
    let jobs: Api<CronJob> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let job = jobs.get(certificates::JOB).await.unwrap();
    let pod = job.spec.job_template.spec.unwrap().template.spec.unwrap();
    certificates::command(plane, NAMESPACE, &pod).await.unwrap()
}

/// The output of manifests/certificates.sh.
fn script(dir: &Path, names: &str) -> Vec<u8> {
    let script = programs::repository().join("manifests/certificates.sh");
    let output = std::process::Command::new(script).arg(dir).env("NAMES", names).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

async fn kubectl(plane: &ControlPlane, arguments: &[&str]) {
    let output = tokio::process::Command::new(plane.kubectl())
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(&Identity::Admin).unwrap())
        .args(arguments)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_streams_for_the_node_of_its_pod_and_for_no_other() {
    let bed = Bed::start().await;
    bed.create_pod("on-mine", "mine").await;
    let token = bed.token(Some("on-mine"), AUDIENCE).await;
    let collector = bed.start_collector("mine", &token).await;
    wait::until("the stream", async || Ok(bed.is_streamed("mine").await.then_some(())))
        .await
        .unwrap_or_else(|error| panic!("{error:#}\n{}\n{}", bed.extender.log_tail(), collector.log_tail()));

    // The same token is used to report for another node.
    let liar = bed.start_collector("other", &token).await;
    bed.until_refused("other_node", 1.0).await;
    liar.kill().await;
    // A token for another audience, a token without a pod, and an invalid token.
    let mut refused = 0.0;
    let nonsense = bed.plane.run_dir().path().join("token-nonsense");
    std::fs::write(&nonsense, "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmF0dXJl").unwrap();
    for wrong in
        [bed.token(Some("on-mine"), "other-audience").await, bed.token(None, AUDIENCE).await, nonsense]
    {
        let liar = bed.start_collector("other", &wrong).await;
        refused += 1.0;
        bed.until_refused("token", refused).await;
        liar.kill().await;
        let text = bed.http.get(&bed.url("/metrics")).await.unwrap();
        refused = text.metric("fpga_extender_streams_refused_total") - 1.0;
    }
    assert!(!bed.is_streamed("other").await);
    assert!(bed.is_streamed("mine").await);

    // The extender loads a new certificate of the same authority.
    script(&bed.authority, &format!("IP:{}", bed.plane.network().control_plane()));
    wait::until("the new certificate", async || {
        let text = bed.http.get(&bed.url("/metrics")).await?.text();
        let line = "fpga_extender_certificate_reloads_total{port=\"stream\",outcome=\"loaded\"} ";
        Ok(text.lines().any(|shown| shown.starts_with(line)).then_some(()))
    })
    .await
    .unwrap();
    collector.kill().await;
    // The token is invalid when its pod is gone.
    let pods: Api<Pod> = Api::namespaced(bed.plane.client().clone(), NAMESPACE);
    pods.delete("on-mine", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait::until("the pod to be gone", async || Ok(pods.get_opt("on-mine").await?.is_none().then_some(())))
        .await
        .unwrap();
    let refusals = async || {
        let metrics = bed.http.get(&bed.url("/metrics")).await?;
        anyhow::Ok(metrics.metric("fpga_extender_streams_refused_total"))
    };
    let before = refusals().await.unwrap();
    // The API server caches its check of a token for some seconds.
    wait::until("the dead pod's token to be refused", async || {
        let late = bed.start_collector("mine", &token).await;
        let refused = wait::until("a refusal or a stream", async || {
            let refused = refusals().await? > before;
            Ok((refused || bed.streams().await? > 0.5).then_some(refused))
        })
        .await;
        late.kill().await;
        Ok(refused?.then_some(()))
    })
    .await
    .unwrap();
    assert!(bed.extender.stop(patience()).await.success());
    bed.plane.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_replaces_certificate_and_authority_and_a_collector_can_connect_at_every_moment() {
    let bed = Bed::with_chart().await;
    let (plane, folder) = (&bed.plane, &bed.authority);
    bed.create_pod("on-mine", "mine").await;
    let token = bed.token(Some("on-mine"), AUDIENCE).await;
    let connects = async |when: &str| {
        let collector = bed.start_collector("mine", &token).await;
        wait::until(when, async || Ok((bed.streams().await? > 0.5).then_some(()))).await.unwrap_or_else(
            |error| panic!("{error:#}\n{}\n{}", bed.extender.log_tail(), collector.log_tail()),
        );
        collector.kill().await;
        wait::until("the stream to end", async || Ok((bed.streams().await? < 0.5).then_some(())))
            .await
            .unwrap();
    };
    connects("a stream with the certificate of the Job").await;

    let (old_authority, old_certificate) = (authorities(plane).await, certificate(plane).await);
    let mut renewing = renewal(plane).await.env("FPGA_CERTIFICATE_SPREAD", "10s").spawn().unwrap();
    wait::until("the new authority", async || Ok((authorities(plane).await != old_authority).then_some(())))
        .await
        .unwrap();
    assert!(authorities(plane).await.contains(old_authority.trim()), "both are trusted");
    assert_eq!(certificate(plane).await, old_certificate, "collectors hear of the authority first");
    mount_authorities(plane, folder).await;
    connects("a stream with the old certificate and both authorities").await;

    assert!(renewing.wait().await.unwrap().success());
    assert_ne!(certificate(plane).await["tls.key"], old_certificate["tls.key"]);
    mount_certificate(plane, folder).await;
    wait::until("the extender to take the certificate", async || {
        let text = bed.http.get(&bed.url("/metrics")).await?.text();
        let line = "fpga_extender_certificate_reloads_total{port=\"stream\",outcome=\"loaded\"} ";
        Ok(text.lines().any(|shown| shown.starts_with(line)).then_some(()))
    })
    .await
    .unwrap();
    connects("a stream with the new certificate").await;
    assert!(bed.extender.stop(patience()).await.success());
    bed.plane.stop().await;
}
